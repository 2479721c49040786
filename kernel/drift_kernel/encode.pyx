# Canonical bytes of Python objects, see `drift_graph.canonical`, which says what they are.
#
# Invariant: what is written for a value is what the twin gives for it. A type that is not known here is asked of the
# twin, value by value; a value that is nested too deep to be sure of is asked of it whole. Nothing that Python code may
# change during a call is read without a reference of our own, and sizes are read again after each call of Python code.

cimport cython
from cpython.datetime cimport (
    PyDateTimeAPI, PyDateTime_DATE_GET_FOLD, date_day, date_month, date_year, datetime_day, datetime_hour, datetime_microsecond,
    datetime_minute, datetime_month, datetime_second, datetime_tzinfo, datetime_year, import_datetime,
)
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyObject_GetAttr, PyTypeObject, Py_TYPE
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memmove

import_datetime()

cdef extern from "Python.h":
    int PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void *PyUnicode_DATA(object text)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? 0xFFFFFFFFFFFFFFFF
    double PyFloat_AS_DOUBLE(object number)

cdef extern from *:
    """
    #include <structmember.h>

    /* Where an object of a class has what this attribute of the class gives; -1 if it is not in a place of its own. */
    static Py_ssize_t drift_place(PyObject *kind, PyObject *attribute) {
        PyMemberDef *member;
        if (!Py_IS_TYPE(attribute, &PyMemberDescr_Type)) return -1;
        if (((PyTypeObject *)kind)->tp_getattro != PyObject_GenericGetAttr) return -1;
        if (!PyType_IsSubtype((PyTypeObject *)kind, PyDescr_TYPE(attribute))) return -1;
        member = ((PyMemberDescrObject *)attribute)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    """
    Py_ssize_t drift_place(object kind, object attribute)

cdef enum:
    DEPTH_MAX = 60  # below what the twin can recurse to
    HEAD_MAX = 6  # bytes of the header of an extension
    NUMBER_MAX = 16  # bytes that are written for a number, of which some are none of it
    SHORT = 16  # entries that are sorted without memory of their own

cdef enum:  # what is in values, see `encode`
    OTHERS = 1
    DICTS = 2
    NO_DICTS = 4

cdef struct Entry:
    const uint8_t *start
    size_t key  # bytes of the key, or of the item
    size_t size


cdef int compared(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size) noexcept nogil:
    cdef int found = memcmp(one, other, min(one_size, other_size))
    return found if found else (one_size > other_size) - (one_size < other_size)


cdef int entries_compared(const void *left, const void *right) noexcept nogil:
    cdef const Entry *one = <const Entry *>left
    cdef const Entry *other = <const Entry *>right
    cdef int found = compared(one.start, one.key, other.start, other.key)
    if found:
        return found
    return compared(one.start + one.key, one.size - one.key, other.start + other.key, other.size - other.key)


cdef struct Out:
    uint8_t *data
    size_t size
    size_t room


cdef int out_grow(Out *out, size_t more) except -1:
    cdef size_t room = out.room if out.room else 512
    cdef uint8_t *data
    if more > <size_t>1 << 62:
        raise MemoryError
    while room < out.size + more:
        room *= 2
    data = <uint8_t *>PyMem_Realloc(out.data, room)
    if data == NULL:
        raise MemoryError
    out.data, out.room = data, room
    return 0


cdef inline int out_need(Out *out, size_t more) except -1:
    return out_grow(out, more) if out.room - out.size < more else 0


cdef inline void out_byte(Out *out, uint8_t value) noexcept:
    out.data[out.size] = value
    out.size += 1


cdef inline void out_word(Out *out, uint64_t value, int size) noexcept:
    """The last bytes of a number, the greatest first; there is room for eight."""
    put_be64(out.data + out.size, value << (64 - 8 * size))
    out.size += size


cdef inline int out_add(Out *out, const void *data, size_t size) except -1:
    out_need(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef bytes out_taken(Out *out):
    return PyBytes_FromStringAndSize(<const char *>out.data, <Py_ssize_t>out.size)


cdef inline uint8_t *put_word(uint8_t *to, uint64_t value, int size) noexcept nogil:
    """The last bytes of a number, the greatest first; where they end. There is room for eight."""
    put_be64(to, value << (64 - 8 * size))
    return to + size


cdef inline uint8_t *put_integer(uint8_t *to, int64_t value) noexcept nogil:
    """Where it ends; there is room for `NUMBER_MAX` bytes, as for all numbers."""
    if value >= 0:
        return put_natural(to, <uint64_t>value)
    if value >= -32:
        return put_word(to, <uint64_t>value, 1)
    to[0] = 0xD0 if value >= -128 else 0xD1 if value >= -32768 else 0xD2 if value >= -(<int64_t>1 << 31) else 0xD3
    return put_word(to + 1, <uint64_t>value, 1 << (to[0] - 0xD0))


cdef inline uint8_t *put_natural(uint8_t *to, uint64_t value) noexcept nogil:
    if value < 128:
        return put_word(to, value, 1)
    to[0] = 0xCC if value < 256 else 0xCD if value < 65536 else 0xCE if value < <uint64_t>1 << 32 else 0xCF
    return put_word(to + 1, value, 1 << (to[0] - 0xCC))


cdef inline uint8_t *put_real(uint8_t *to, double value) noexcept nogil:
    cdef uint64_t bits = 0x7FF8000000000000
    if value == value:
        memcpy(&bits, &value, 8)
    to[0] = 0xCB
    return put_word(to + 1, bits, 8)


cdef inline int out_integer(Out *out, int64_t value) except -1:
    out_need(out, NUMBER_MAX)
    out.size = <size_t>(put_integer(out.data + out.size, value) - out.data)
    return 0


cdef inline int out_natural(Out *out, uint64_t value) except -1:
    out_need(out, NUMBER_MAX)
    out.size = <size_t>(put_natural(out.data + out.size, value) - out.data)
    return 0


cdef inline int out_real(Out *out, double value) except -1:
    out_need(out, NUMBER_MAX)
    out.size = <size_t>(put_real(out.data + out.size, value) - out.data)
    return 0


cdef inline int out_head(Out *out, size_t size, uint8_t few, size_t few_max, uint8_t mark8, uint8_t mark16, uint8_t mark32) except -1:
    """The header of something of this size: in one byte up to `few_max`, or a mark and the size."""
    out_need(out, 16)
    if size <= few_max and few:
        out_byte(out, few | <uint8_t>size)
    elif size < 256 and mark8:
        out_byte(out, mark8)
        out_byte(out, <uint8_t>size)
    elif size < 65536:
        out_byte(out, mark16)
        out_word(out, size, 2)
    else:
        out_byte(out, mark32)
        out_word(out, size, 4)
    return 0


cdef inline int out_text(Out *out, const void *data, size_t size) except -1:
    out_head(out, size, 0xA0, 31, 0xD9, 0xDA, 0xDB)
    return out_add(out, data, size)


cdef inline int out_binary(Out *out, const void *data, size_t size) except -1:
    out_head(out, size, 0, 0, 0xC4, 0xC5, 0xC6)
    return out_add(out, data, size)


cdef int out_extension(Out *out, size_t start, uint8_t code) except -1:
    """Put the header of an extension in front of what is behind `start + HEAD_MAX`, and move that there."""
    cdef size_t size = out.size - start - HEAD_MAX
    cdef uint8_t *body = out.data + start
    cdef size_t head
    if size == 1 or size == 2 or size == 4 or size == 8 or size == 16:
        body[0] = 0xD4 if size == 1 else 0xD5 if size == 2 else 0xD6 if size == 4 else 0xD7 if size == 8 else 0xD8
        head = 2
    elif size < 256:
        body[0], body[1] = 0xC7, <uint8_t>size
        head = 3
    elif size < 65536:
        body[0], body[1], body[2] = 0xC8, <uint8_t>(size >> 8), <uint8_t>size
        head = 4
    else:
        body[0], body[1], body[2], body[3], body[4] = (
            0xC9, <uint8_t>(size >> 24), <uint8_t>(size >> 16), <uint8_t>(size >> 8), <uint8_t>size
        )
        head = 6
    body[head - 1] = code
    if head < HEAD_MAX:
        memmove(body + head, body + HEAD_MAX, size)
    out.size -= HEAD_MAX - head
    return 0


cdef int out_sort(Out *out, size_t start, Entry *entries, size_t count) except -1:
    """Sort what is behind `start`, in consecutive entries without their places yet."""
    cdef size_t at, size = out.size - start
    cdef bint sorted_already = True
    cdef uint8_t *to
    out_need(out, size)  # the entries are copied behind themselves, and back
    for at in range(count):
        entries[at].start = out.data + start
        start += entries[at].size
        if at and sorted_already and entries_compared(&entries[at - 1], &entries[at]) > 0:
            sorted_already = False
    if sorted_already:
        return 0
    qsort(entries, count, sizeof(Entry), entries_compared)
    to = out.data + out.size
    for at in range(count):
        memcpy(to, entries[at].start, entries[at].size)
        to += entries[at].size
    memcpy(out.data + out.size - size, out.data + out.size, size)
    return 0


cdef class Buffer:
    """Bytes that grow, which are freed with it."""

    cdef Out out

    def __dealloc__(self):
        PyMem_Free(self.out.data)


@cython.final
cdef class Plan:
    """Where the fields of a class's instances are; see `drift_graph.content.Shape`."""

    cdef uint8_t code
    cdef bint is_tuple
    cdef bytes head
    cdef tuple names
    cdef tuple forms
    cdef object known  # names that may be in an instance's __dict__; None where there is none
    cdef list places  # of the fields, see `drift_place`

    def __init__(self, kind, int code, bytes head not None, tuple names not None, tuple forms not None, known):
        self.code, self.head, self.names, self.forms, self.known = code, head, names, forms, known
        self.places = [drift_place(kind, getattr(kind, name, None)) for name in names]
        self.is_tuple = code == 15
        if len(names) != len(forms):
            raise ValueError("a form for each name")


cdef str _DICT = "__dict__"


@cython.final
cdef class Encoding(Buffer):
    """The encoding of values in one call.

    Args:
        twin: gives the canonical bytes of one value; it may raise RecursionError.
        whole: the same, with an error that names the value.
        plan_of: the arguments of a Plan for a class; None where the twin is to be asked.
        in_order: whether entries of dicts are sorted.
    """

    cdef object twin
    cdef object whole
    cdef object plan_of
    cdef dict plans
    cdef bint in_order
    cdef int seen

    def __init__(self, twin, whole, plan_of, bint in_order):
        self.twin, self.whole, self.plan_of, self.in_order = twin, whole, plan_of, in_order
        self.plans = {}

    cdef int value(self, object value) except -1:
        """One value, at the top."""
        cdef size_t start = self.out.size
        cdef bint deep
        try:
            deep = self.put(value, 0)
        except RecursionError:
            deep = True
        if deep:
            self.out.size = start
            self.seen |= OTHERS
            self.asked(self.whole, value)
        return 0

    cdef int asked(self, object twin, object value) except -1:
        cdef bytes form = twin(value)
        if form is None:
            raise TypeError(f"the form of {type(value).__qualname__} is None, and bytes were expected")
        return out_add(&self.out, PyBytes_AS_STRING(form), <size_t>PyBytes_GET_SIZE(form))

    cdef int put(self, object value, int depth) except -1:
        """Write a value; 1 if it is nested too deep."""
        cdef PyObject *kind = <PyObject *>Py_TYPE(value)
        cdef int beyond = 0
        cdef long long number
        cdef size_t start
        if kind == <PyObject *>str:
            return self.put_text(value)
        if kind == <PyObject *>int:
            number = PyLong_AsLongLongAndOverflow(value, &beyond)
            return self.put_large(value, beyond) if beyond else out_integer(&self.out, number)
        if kind == <PyObject *>tuple:
            return self.put_tuple(value, depth)
        if kind == <PyObject *>float:
            if PyFloat_AS_DOUBLE(value) != PyFloat_AS_DOUBLE(value):
                self.seen |= OTHERS
            return out_real(&self.out, PyFloat_AS_DOUBLE(value))
        if kind == <PyObject *>dict:
            self.seen |= OTHERS if depth else DICTS
            return self.put_dict(value, depth)
        if value is None:
            out_need(&self.out, 1)
            out_byte(&self.out, 0xC0)
            return 0
        if kind == <PyObject *>bool:
            out_need(&self.out, 1)
            out_byte(&self.out, 0xC3 if value is True else 0xC2)
            return 0
        if kind == <PyObject *>bytes:
            start = <size_t>PyBytes_GET_SIZE(value)
            if start >> 32:
                return 1
            return out_binary(&self.out, PyBytes_AS_STRING(value), start)
        self.seen |= OTHERS
        if kind == <PyObject *>list:
            return self.put_list(value, depth)
        if kind == <PyObject *>set or kind == <PyObject *>frozenset:
            return self.put_set(value, depth, 2 if kind == <PyObject *>set else 3)
        if kind == <PyObject *>PyDateTimeAPI.DateTimeType and datetime_tzinfo(value) is None:
            return self.put_moment(value)
        if kind == <PyObject *>PyDateTimeAPI.DateType:
            return self.put_date(value)
        return self.put_instance(value, depth)

    cdef int put_text(self, object value) except -1:
        cdef Py_ssize_t size
        cdef const char *data
        if PyUnicode_IS_COMPACT_ASCII(value):
            size = PyUnicode_GET_LENGTH(value)
            data = <const char *>PyUnicode_DATA(value)
        else:
            try:
                data = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError:  # a lone surrogate
                self.seen |= OTHERS
                return self.asked(self.twin, value)
        if <size_t>size >> 32:
            return 1
        return out_text(&self.out, data, <size_t>size)

    cdef int put_large(self, object value, int beyond) except -1:
        cdef unsigned long long number
        if beyond > 0:
            try:
                number = PyLong_AsUnsignedLongLong(value)
            except OverflowError:
                pass
            else:
                return out_natural(&self.out, number)
        self.seen |= OTHERS
        return self.asked(self.twin, value)

    cdef int put_tuple(self, tuple value, int depth) except -1:
        cdef Py_ssize_t at, size = PyTuple_GET_SIZE(value)
        if depth >= DEPTH_MAX or <size_t>size >> 32:
            return 1
        out_head(&self.out, <size_t>size, 0x90, 15, 0, 0xDC, 0xDD)
        for at in range(size):
            if self.put(value[at], depth + 1):
                return 1
        return 0

    cdef int put_list(self, list value, int depth) except -1:
        cdef size_t start = self.out.size
        cdef Py_ssize_t at = 0
        if depth >= DEPTH_MAX:
            return 1
        out_need(&self.out, HEAD_MAX)
        self.out.size += HEAD_MAX
        while at < PyList_GET_SIZE(value):
            if self.put(value[at], depth + 1):
                return 1
            at += 1
        return self.closed(start, 1)

    cdef int closed(self, size_t start, uint8_t code) except -1:
        if (self.out.size - start - HEAD_MAX) >> 32:
            return 1
        return out_extension(&self.out, start, code)

    cdef int put_set(self, object value, int depth, uint8_t code) except -1:
        cdef list items = list(value)
        cdef size_t start = self.out.size, before
        cdef Py_ssize_t at, count = PyList_GET_SIZE(items)
        cdef Entry few[SHORT]
        cdef Entry *entries = few
        if depth >= DEPTH_MAX:
            return 1
        out_need(&self.out, HEAD_MAX)
        self.out.size += HEAD_MAX
        if count > SHORT:
            entries = <Entry *>PyMem_Malloc(count * sizeof(Entry))
            if entries == NULL:
                raise MemoryError
        try:
            for at in range(count):
                before = self.out.size
                if self.put(items[at], depth + 1):
                    return 1
                entries[at].key = entries[at].size = self.out.size - before
            out_sort(&self.out, start + HEAD_MAX, entries, count)
        finally:
            if entries != few:
                PyMem_Free(entries)
        return self.closed(start, code)

    cdef int put_dict(self, dict value, int depth) except -1:
        cdef Py_ssize_t place = 0, at = 0, count = len(value)
        cdef PyObject *key
        cdef PyObject *item
        cdef object kept_key, kept_item
        cdef size_t start, before
        cdef Entry few[SHORT]
        cdef Entry *entries = few
        if depth >= DEPTH_MAX or <size_t>count >> 32:
            return 1
        out_head(&self.out, <size_t>count, 0x80, 15, 0, 0xDE, 0xDF)
        start = self.out.size
        if count > SHORT:
            entries = <Entry *>PyMem_Malloc(count * sizeof(Entry))
            if entries == NULL:
                raise MemoryError
        try:
            while PyDict_Next(value, &place, &key, &item):
                if at >= count:
                    raise RuntimeError("dictionary changed size during iteration")
                kept_key, kept_item = <object>key, <object>item
                before = self.out.size
                if self.put_key(kept_key, depth + 1):
                    return 1
                entries[at].key = self.out.size - before
                if self.put(kept_item, depth + 1):
                    return 1
                entries[at].size = self.out.size - before
                at += 1
            if at != count:
                raise RuntimeError("dictionary changed size during iteration")
            if self.in_order and count > 1:
                out_sort(&self.out, start, entries, count)
        finally:
            if entries != few:
                PyMem_Free(entries)
        return 0

    cdef int put_key(self, object key, int depth) except -1:
        cdef PyObject *kind = <PyObject *>Py_TYPE(key)
        if kind == <PyObject *>str:
            return self.put_text(key)
        if kind == <PyObject *>tuple or kind == <PyObject *>float:
            self.seen |= OTHERS
        return self.put(key, depth)

    cdef int put_instance(self, object value, int depth) except -1:
        """An instance of a class with fields, or a value for the twin."""
        cdef object kind = type(value)
        cdef Plan plan = None
        cdef Py_ssize_t at, place
        cdef size_t start = self.out.size
        cdef object of_names
        cdef PyObject *own
        plan = <Plan>self.plans.get(kind)
        if plan is None and kind not in self.plans:
            found = self.plan_of(kind)
            plan = None if found is None else Plan(kind, *found)
            self.plans[kind] = plan
        if plan is None:
            return self.asked(self.twin, value)
        if depth >= DEPTH_MAX:
            return 1
        if plan.is_tuple and PyTuple_GET_SIZE(value) != PyTuple_GET_SIZE(plan.names):
            return self.asked(self.twin, value)
        out_need(&self.out, HEAD_MAX)
        self.out.size += HEAD_MAX
        out_add(&self.out, PyBytes_AS_STRING(plan.head), <size_t>PyBytes_GET_SIZE(plan.head))
        for at in range(PyTuple_GET_SIZE(plan.names)):
            place = plan.places[at]
            if plan.is_tuple:
                field = (<tuple>value)[at]
            elif place > 0:
                own = (<PyObject **>(<char *><PyObject *>value + place))[0]
                if own == NULL:  # never set, or deleted
                    continue
                field = <object>own
            else:
                try:
                    field = PyObject_GetAttr(value, plan.names[at])
                except AttributeError:  # never set, or deleted
                    continue
            of_name = <bytes>plan.forms[at]
            out_add(&self.out, PyBytes_AS_STRING(of_name), <size_t>PyBytes_GET_SIZE(of_name))
            if self.put(field, depth + 1):
                return 1
        if plan.known is not None:
            for of_names in list(PyObject_GetAttr(value, _DICT)):
                if of_names not in plan.known:  # an attribute that is no field
                    self.out.size = start
                    return self.asked(self.twin, value)
        return self.closed(start, plan.code)

    cdef int digits(self, unsigned int value, int count) except -1:
        cdef int at
        for at in range(count - 1, -1, -1):
            self.out.data[self.out.size + at] = <uint8_t>(48 + value % 10)
            value //= 10
        self.out.size += count
        return 0

    cdef int put_day(self, int year, int month, int day) except -1:
        self.digits(year, 4)
        out_byte(&self.out, 45)
        self.digits(month, 2)
        out_byte(&self.out, 45)
        return self.digits(day, 2)

    cdef int put_moment(self, object value) except -1:
        """A datetime without a zone: its ISO format, None, and the fold."""
        cdef int micros = datetime_microsecond(value)
        cdef size_t start = self.out.size
        out_need(&self.out, 64)
        self.out.size += HEAD_MAX
        out_byte(&self.out, 0xA0 | (26 if micros else 19))
        self.put_day(datetime_year(value), datetime_month(value), datetime_day(value))
        out_byte(&self.out, 84)
        self.digits(datetime_hour(value), 2)
        out_byte(&self.out, 58)
        self.digits(datetime_minute(value), 2)
        out_byte(&self.out, 58)
        self.digits(datetime_second(value), 2)
        if micros:
            out_byte(&self.out, 46)
            self.digits(micros, 6)
        out_byte(&self.out, 0xC0)
        out_byte(&self.out, <uint8_t>PyDateTime_DATE_GET_FOLD(value))
        return out_extension(&self.out, start, 6)

    cdef int put_date(self, object value) except -1:
        cdef size_t start = self.out.size
        out_need(&self.out, 64)
        self.out.size += HEAD_MAX
        out_byte(&self.out, 0xA0 | 10)
        self.put_day(date_year(value), date_month(value), date_day(value))
        out_byte(&self.out, 0xC0)
        out_byte(&self.out, 0)
        return out_extension(&self.out, start, 7)


def encode(values, twin, whole, plan_of, bint in_order):
    """The canonical bytes of all values, joined; where each ends; and what is in them.

    Returns:
        The bytes; the end of each value's, as native 8-byte numbers; 0, or the sum of 1 for anything but scalars,
        tuples, and dicts at the top; 2 for dicts at the top; 4 for other values at the top.
    """
    cdef Encoding coder = Encoding(twin, whole, plan_of, in_order)
    cdef Buffer ends = Buffer()
    cdef int64_t end
    for value in values:
        if type(value) is not dict:
            coder.seen |= NO_DICTS
        coder.value(value)
        end = <int64_t>coder.out.size
        out_add(&ends.out, &end, 8)
    return out_taken(&coder.out), out_taken(&ends.out), coder.seen


def encode_joined(values, twin, whole, plan_of, bint in_order):
    """The first and the last of what `encode` returns."""
    cdef Encoding coder = Encoding(twin, whole, plan_of, in_order)
    for value in values:
        if type(value) is not dict:
            coder.seen |= NO_DICTS
        coder.value(value)
    return out_taken(&coder.out), coder.seen


def encode_blocks(list values not None, Py_ssize_t first, Py_ssize_t size, twin, whole, plan_of, bint in_order):
    """What `encode_joined` returns for the first so many values, and for each `size` of those behind them."""
    cdef Encoding coder = Encoding(twin, whole, plan_of, in_order)
    cdef list blocks = []
    cdef Py_ssize_t at = 0, end = first
    if first < 1 or size < 1:
        raise ValueError(f"blocks of {first} and {size} values")
    while at < PyList_GET_SIZE(values):
        coder.out.size = 0
        coder.seen = 0
        while at < end and at < PyList_GET_SIZE(values):
            _fetch_ahead(values, at)
            value = values[at]
            if type(value) is not dict:
                coder.seen |= NO_DICTS
            coder.value(value)
            at += 1
        blocks.append((out_taken(&coder.out), coder.seen))
        end += size
    return blocks


def encode_one(value, twin, whole, plan_of, bint in_order):
    """The canonical bytes of one value."""
    cdef Encoding coder = Encoding(twin, whole, plan_of, in_order)
    coder.value(value)
    return out_taken(&coder.out)


def encode_each(values, twin, whole, plan_of, bint in_order):
    """A list of the canonical bytes of each value."""
    cdef Encoding coder = Encoding(twin, whole, plan_of, in_order)
    cdef list found = []
    for value in values:
        coder.out.size = 0
        coder.value(value)
        found.append(out_taken(&coder.out))
    return found


def hash_each(values, twin, whole, plan_of, bint in_order):
    """The xxh64 of the canonical bytes of each value, eight bytes big-endian, joined."""
    cdef Encoding coder = Encoding(twin, whole, plan_of, in_order)
    cdef Buffer found = Buffer()
    cdef Py_ssize_t at = 0
    for value in values:
        if type(values) is list:
            _fetch_ahead(values, at)
            at += 1
        coder.out.size = 0
        coder.value(value)
        out_need(&found.out, 8)
        out_word(&found.out, drift_xxh64(coder.out.data, coder.out.size), 8)
    return out_taken(&found.out)
