# Canonical bytes of rows whose values are in columns of Arrow: no Python object is made for a value.
#
# Invariant: row i has the bytes of its pieces, in their order: a constant, or the form that the value in row i of a column
# has as a Python value. No byte outside of a column's buffers is read, whatever offsets and sizes say.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef enum Kind:
    INTEGER
    NATURAL
    REAL
    BOOLEAN
    TEXT
    BINARY
    TEXT_VIEW
    BINARY_VIEW
    MOMENT
    MOMENT_IN_UTC
    VALUES
    CODED
    CONSTANT
    EXTENSION
    EXTENSION_END

cdef dict _KINDS = {
    "integer": INTEGER, "natural": NATURAL, "real": REAL, "boolean": BOOLEAN, "text": TEXT, "binary": BINARY,
    "text view": TEXT_VIEW, "binary view": BINARY_VIEW, "moment": MOMENT, "moment in UTC": MOMENT_IN_UTC,
}
cdef enum:
    VIEW_BYTES = 16
    VIEW_MAX = 12  # bytes of a text that is in its view
    NESTED_MAX = 8
    PIECE_MAX = 16  # bytes of a short piece
    HASHED_ROWS = 64  # rows whose forms are hashed together
    PIECE_ROOM = 64  # for a short piece with what comes before it, and what is written behind both
    DAY_S = 86400
    FIRST_DAY = 719162  # days from 0001-01-01 to 1970-01-01
    LAST_DAY = 2932896  # days from 1970-01-01 to 9999-12-31

cdef extern from *:
    """
    static const int MONTH_ENDS[13] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    """
    const int MONTH_ENDS[13]



@cython.final
cdef class Memory:
    """The bytes of a buffer, for as long as this lives."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


@cython.final
cdef class Column:
    """A column of one value or more.

    Args:
        kind: of the values: "integer", "natural", "real", "boolean", "text", "binary", "text view", "binary view",
            or "moment" and "moment in UTC", which are in microseconds.
        width: bytes of a value, or of an offset.
        start, count: the rows of the buffers that are the column's.
        valid: a bit for each row, 0 for null; None where no value is null.
        data: the values, offsets or views.
        others: where texts are.
    """

    cdef Kind kind
    cdef int width
    cdef Py_ssize_t start
    cdef Py_ssize_t count
    cdef Memory valid_memory
    cdef Memory data_memory
    cdef list others
    cdef const uint8_t *valid
    cdef const uint8_t *data
    cdef list values  # of VALUES; forms of CODED

    def __init__(self, str kind not None, int width, Py_ssize_t start, Py_ssize_t count, valid, data, others=()):
        cdef Py_ssize_t rows = start + count
        if start < 0 or count < 0 or rows < 0 or rows > <Py_ssize_t>1 << 56:
            raise ValueError(f"there are no {count} rows from {start} on")
        self.kind = _KINDS[kind]
        self.width, self.start, self.count = width, start, count
        self.data_memory = Memory(data)
        self.data = <const uint8_t *>self.data_memory.view.buf
        if valid is not None:
            self.valid_memory = Memory(valid)
            self.valid = <const uint8_t *>self.valid_memory.view.buf
            if self.valid_memory.view.len < (rows + 7) // 8:
                raise ValueError(f"{rows} rows have {self.valid_memory.view.len} bytes of bits")
        self.others = [Memory(each) for each in others]
        if self.kind == INTEGER or self.kind == NATURAL:
            known = width == 1 or width == 2 or width == 4 or width == 8
        elif self.kind == TEXT or self.kind == BINARY:
            known = (width == 4 or width == 8) and len(self.others) == 1
            rows += 1
        elif self.kind == TEXT_VIEW or self.kind == BINARY_VIEW:
            known = width == VIEW_BYTES
        else:
            known = width == 8 or (width == 4 and self.kind == REAL) or self.kind == BOOLEAN
        if not known:
            raise ValueError(f"a column of kind {kind} has no width {width}")
        need = (rows + 7) // 8 if self.kind == BOOLEAN else rows * width
        if count and self.data_memory.view.len < need:
            raise ValueError(f"{rows} rows have {self.data_memory.view.len} bytes, and need {need}")


def values_column(list values not None):
    """A column of Python values."""
    cdef Column made = Column.__new__(Column)
    made.kind, made.values, made.count = VALUES, values, PyList_GET_SIZE(values)
    return made


def coded_column(list forms not None, codes, Py_ssize_t count):
    """A column of few different values: the canonical bytes of each, and for each row its index, in four bytes."""
    cdef Column made = Column.__new__(Column)
    made.kind, made.values, made.count = CODED, forms, count
    made.data_memory = Memory(codes)
    made.data = <const uint8_t *>made.data_memory.view.buf
    if count < 0 or made.data_memory.view.len < 4 * count:
        raise ValueError(f"{count} rows have {made.data_memory.view.len} bytes of codes")
    return made


cdef inline int64_t signed_at(const uint8_t *data, int width, Py_ssize_t at) noexcept nogil:
    cdef int8_t one
    cdef int16_t two
    cdef int32_t four
    cdef int64_t eight
    if width == 8:
        memcpy(&eight, data + 8 * at, 8)
        return eight
    if width == 4:
        memcpy(&four, data + 4 * at, 4)
        return four
    if width == 2:
        memcpy(&two, data + 2 * at, 2)
        return two
    memcpy(&one, data + at, 1)
    return one


cdef inline uint64_t unsigned_at(const uint8_t *data, int width, Py_ssize_t at) noexcept nogil:
    cdef uint64_t mask = ~<uint64_t>0 if width == 8 else (<uint64_t>1 << (8 * width)) - 1
    return <uint64_t>signed_at(data, width, at) & mask


cdef struct Piece:
    Kind kind
    int width
    size_t size
    const uint8_t *data
    const uint8_t *valid
    Py_ssize_t start
    uint8_t before[PIECE_MAX]  # a constant that comes first, if it has no more bytes
    size_t before_size
    PyObject *column  # which `kept` holds


cdef inline uint8_t *put_short(const Piece *piece, Py_ssize_t row, uint8_t *to) noexcept nogil:
    """A piece that has `PIECE_MAX` bytes at most: where it ends; NULL if it is another one."""
    cdef Kind kind = piece.kind
    cdef Py_ssize_t at = piece.start + row
    cdef const uint8_t *view
    cdef double eight
    cdef float four
    cdef int64_t size
    if kind == CONSTANT and piece.size == 0:
        return to
    if piece.valid != NULL and not piece.valid[at >> 3] >> (at & 7) & 1:
        to[0] = 0xC0
        return to + 1
    if kind == INTEGER:
        return put_integer(to, signed_at(piece.data, piece.width, at))
    if kind == NATURAL:
        return put_natural(to, unsigned_at(piece.data, piece.width, at))
    if kind == REAL:
        if piece.width == 8:
            memcpy(&eight, piece.data + 8 * at, 8)
        else:
            memcpy(&four, piece.data + 4 * at, 4)
            eight = four
        return put_real(to, eight)
    if kind == BOOLEAN:
        to[0] = 0xC3 if piece.data[at >> 3] >> (at & 7) & 1 else 0xC2
        return to + 1
    if kind != TEXT_VIEW:
        return NULL
    view = piece.data + VIEW_BYTES * at
    size = signed_at(view, 4, 0)
    if not 0 <= size <= VIEW_MAX:
        return NULL
    to[0] = 0xA0 | <uint8_t>size
    memcpy(to + 1, view + 4, VIEW_MAX)
    return to + 1 + size


@cython.final
cdef class RowForms:
    """The forms of rows.

    Args:
        pieces: constants (bytes), columns, and tuples of the code of an extension and the pieces in it.
        count: of the rows that each column has at least.
        twin, whole, plan_of, in_order: for values that are in no column, see `Encoding`.
    """

    cdef Encoding coder
    cdef list kept
    cdef Piece *pieces
    cdef Py_ssize_t size
    cdef Py_ssize_t count
    cdef int64_t day  # whose date is in `date`
    cdef uint8_t date[10]

    def __cinit__(self):
        self.day = FIRST_DAY + LAST_DAY  # none

    def __init__(self, pieces, Py_ssize_t count, twin, whole, plan_of, bint in_order):
        cdef list flat = []
        cdef Column column
        cdef Piece *piece
        cdef size_t size
        self.coder = Encoding(twin, whole, plan_of, in_order)
        self.count = count
        flatten(flat, pieces, 0)
        if self.pieces != NULL:
            raise TypeError("rows are described once")
        self.pieces = <Piece *>PyMem_Calloc(len(flat) + 1, sizeof(Piece))
        if self.pieces == NULL:
            raise MemoryError
        self.kept = flat
        for each in flat:
            piece = &self.pieces[self.size]
            if type(each) is bytes:
                size = <size_t>PyBytes_GET_SIZE(each)
                if piece.before_size + size <= PIECE_MAX:
                    memcpy(piece.before + piece.before_size, PyBytes_AS_STRING(each), size)
                    piece.before_size += size
                    continue
                piece.data, piece.size = <const uint8_t *>PyBytes_AS_STRING(each), size
                piece.kind = CONSTANT
            elif type(each) is Column:
                column = <Column>each
                if column.count < count:
                    raise ValueError(f"{count} rows have a column of {column.count}")
                piece.kind, piece.width, piece.start = column.kind, column.width, column.start
                piece.data, piece.valid = column.data, column.valid
                piece.column = <PyObject *>each
            else:
                piece.kind = EXTENSION_END if each < 0 else EXTENSION
                piece.size = <size_t>(-1 - each if each < 0 else each)
            self.size += 1
        if self.pieces[self.size].before_size:
            self.pieces[self.size].kind = CONSTANT
            self.size += 1

    def __dealloc__(self):
        PyMem_Free(self.pieces)

    cdef int put_row(self, Py_ssize_t row) except -1:
        cdef size_t starts[NESTED_MAX]
        cdef int depth = 0
        cdef Py_ssize_t at
        cdef Out *out = &self.coder.out
        cdef Piece *piece
        cdef uint8_t *write
        cdef uint8_t *put
        out_need(out, PIECE_ROOM * <size_t>self.size)
        write = out.data + out.size
        for at in range(self.size):
            piece = &self.pieces[at]
            memcpy(write, piece.before, PIECE_MAX)
            write += piece.before_size
            put = put_short(piece, row, write)
            if put != NULL:
                write = put
                continue
            out.size = <size_t>(write - out.data)
            if piece.kind == CONSTANT:
                out_add(out, piece.data, piece.size)
            elif piece.kind == EXTENSION:
                starts[depth] = out.size
                depth += 1
                out_need(out, HEAD_MAX)
                out.size += HEAD_MAX
            elif piece.kind == EXTENSION_END:
                depth -= 1
                if out.size - starts[depth] >> 32:
                    raise OverflowError("the form of a row has more than 4 GB")
                out_extension(out, starts[depth], <uint8_t>piece.size)
            else:
                self.put_cell(<Column>piece.column, row)
            out_need(out, PIECE_ROOM * <size_t>(self.size - at))
            write = out.data + out.size
        out.size = <size_t>(write - out.data)
        return 0

    cdef int put_cell(self, Column column, Py_ssize_t row) except -1:
        """A value that may be long."""
        cdef Py_ssize_t at = column.start + row
        cdef int64_t code
        if column.kind == TEXT or column.kind == BINARY:
            return self.put_slice(column, at)
        if column.kind == TEXT_VIEW or column.kind == BINARY_VIEW:
            return self.put_view(column, at)
        if column.kind == VALUES:
            if row >= PyList_GET_SIZE(column.values):
                raise ValueError("a column has fewer values than before")
            return self.coder.value(column.values[row])
        if column.kind == CODED:
            code = signed_at(column.data, 4, row)
            if not 0 <= code < PyList_GET_SIZE(column.values):
                raise ValueError(f"of {PyList_GET_SIZE(column.values)} values there is no number {code}")
            form = <bytes?>column.values[code]
            return out_add(&self.coder.out, PyBytes_AS_STRING(form), <size_t>PyBytes_GET_SIZE(form))
        return self.put_moment(column, signed_at(column.data, 8, at))

    cdef int put_body(self, Kind kind, const uint8_t *data, size_t size) except -1:
        if kind == TEXT or kind == TEXT_VIEW:
            return out_text(&self.coder.out, data, size)
        return out_binary(&self.coder.out, data, size)

    cdef int put_slice(self, Column column, Py_ssize_t at) except -1:
        cdef int64_t start = signed_at(column.data, column.width, at)
        cdef int64_t end = signed_at(column.data, column.width, at + 1)
        cdef Memory memory = <Memory>column.others[0]
        if not 0 <= start <= end <= memory.view.len or (end - start) >> 32:
            raise ValueError(f"a value is from byte {start} to {end} of {memory.view.len}")
        return self.put_body(column.kind, <const uint8_t *>memory.view.buf + start, <size_t>(end - start))

    cdef int put_view(self, Column column, Py_ssize_t at) except -1:
        cdef const uint8_t *view = column.data + VIEW_BYTES * at
        cdef int64_t size = signed_at(view, 4, 0), number, start
        cdef Memory memory
        if 0 <= size <= VIEW_MAX:
            return self.put_body(column.kind, view + 4, <size_t>size)
        number, start = signed_at(view, 4, 2), signed_at(view, 4, 3)
        if size < 0 or not 0 <= number < PyList_GET_SIZE(column.others) or start < 0:
            raise ValueError(f"a view is of {size} bytes from {start} on in buffer {number} of {len(column.others)}")
        memory = <Memory>column.others[number]
        if start + size > memory.view.len:
            raise ValueError(f"a view is of {size} bytes from {start} on, and there are {memory.view.len}")
        return self.put_body(column.kind, <const uint8_t *>memory.view.buf + start, <size_t>size)

    cdef int put_moment(self, Column column, int64_t micros) except -1:
        """A datetime: its ISO format, the name of its zone or None, and the fold, which is 0."""
        cdef Out *out = &self.coder.out
        cdef size_t start = out.size, text
        cdef int64_t seconds = micros // 1000000, day
        cdef int rest
        micros -= 1000000 * seconds
        if micros < 0:
            micros += 1000000
            seconds -= 1
        day = seconds // DAY_S
        if seconds < DAY_S * day:
            day -= 1
        rest = <int>(seconds - DAY_S * day)
        if not -FIRST_DAY <= day <= LAST_DAY:
            raise OverflowError("a moment is not in the years 1 to 9999")
        out_need(out, 64)
        out.size += HEAD_MAX + 1
        text = out.size
        self.put_day(day)
        out_byte(out, 84)
        self.coder.digits(rest // 3600, 2)
        out_byte(out, 58)
        self.coder.digits(rest // 60 % 60, 2)
        out_byte(out, 58)
        self.coder.digits(rest % 60, 2)
        if micros:
            out_byte(out, 46)
            self.coder.digits(<unsigned int>micros, 6)
        if column.kind == MOMENT_IN_UTC:
            out_add(out, b"+00:00", 6)
        out.data[text - 1] = 0xA0 | <uint8_t>(out.size - text) if out.size - text < 32 else 0xD9
        if out.size - text >= 32:
            memmove(out.data + text + 1, out.data + text, out.size - text)
            out.data[text] = <uint8_t>(out.size - text)
            out.size += 1
        if column.kind == MOMENT_IN_UTC:
            out_add(out, b"\xa3UTC", 4)
        else:
            out_byte(out, 0xC0)
        out_byte(out, 0)
        return out_extension(out, start, 6)

    cdef int put_day(self, int64_t day) except -1:
        """A date, by its days since 1970; mostly it is that of the row before."""
        cdef Out *out = &self.coder.out
        cdef int n, year, hundreds, fours, ones, month
        cdef bint leap
        if day != self.day:
            n = <int>(day + FIRST_DAY)
            year = 400 * (n // 146097) + 1
            n %= 146097
            hundreds = min(n // 36524, 3)
            n -= 36524 * hundreds
            fours = n // 1461
            n -= 1461 * fours
            ones = min(n // 365, 3)
            n -= 365 * ones
            year += 100 * hundreds + 4 * fours + ones
            leap = ones == 3 and (fours != 24 or hundreds == 3)
            month = 1
            while n >= MONTH_ENDS[month] + (leap and month >= 2):
                month += 1
            n -= MONTH_ENDS[month - 1] + (leap and month > 2)
            self.coder.put_day(year, month, n + 1)
            memcpy(self.date, out.data + out.size - 10, 10)
            self.day = day
            return 0
        return out_add(out, self.date, 10)

    cdef int check(self, Py_ssize_t start, Py_ssize_t end) except -1:
        if not 0 <= start <= end <= self.count:
            raise IndexError(f"rows {start} to {end} of {self.count}")
        return 0

    def joined(self, Py_ssize_t start, Py_ssize_t end):
        """The forms of the rows from `start` to `end`, joined."""
        cdef Py_ssize_t row
        self.check(start, end)
        self.coder.out.size = 0
        for row in range(start, end):
            self.put_row(row)
        return out_taken(&self.coder.out)

    def each(self, Py_ssize_t start, Py_ssize_t end):
        """A list of them."""
        cdef Py_ssize_t row
        cdef list found = []
        self.check(start, end)
        for row in range(start, end):
            self.coder.out.size = 0
            self.put_row(row)
            found.append(out_taken(&self.coder.out))
        return found

    cdef Py_ssize_t put_hashes(self, Py_ssize_t start, Py_ssize_t end, uint64_t *hashes) except -1:
        """The xxh64 of some rows from `start` on, at most `HASHED_ROWS`: how many.

        What was just written is not read again at once: a processor would wait for it.
        """
        cdef size_t ends[HASHED_ROWS]
        cdef Py_ssize_t at, count = min(end - start, HASHED_ROWS)
        cdef size_t before = 0
        self.coder.out.size = 0
        for at in range(count):
            self.put_row(start + at)
            ends[at] = self.coder.out.size
        for at in range(count):
            hashes[at] = drift_xxh64(self.coder.out.data + before, ends[at] - before)
            before = ends[at]
        return count

    def hashes(self, Py_ssize_t start, Py_ssize_t end):
        """The xxh64 of each, eight bytes big-endian, joined."""
        cdef uint64_t hashes[HASHED_ROWS]
        cdef bytes found
        cdef uint8_t *write
        cdef Py_ssize_t at, count
        self.check(start, end)
        found = PyBytes_FromStringAndSize(NULL, 8 * (end - start))
        write = <uint8_t *>PyBytes_AS_STRING(found)
        while start < end:
            count = self.put_hashes(start, end, hashes)
            for at in range(count):
                put_be64(write + 8 * at, hashes[at])
            write += 8 * count
            start += count
        return found


    def remainders(self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count):
        """The remainder of the xxh64 of each by `count`, which is 1 to 256; a byte each."""
        cdef uint64_t hashes[HASHED_ROWS]
        cdef bytes found
        cdef uint8_t *write
        cdef Py_ssize_t at, rows
        self.check(start, end)
        if not 1 <= count <= 256:
            raise ValueError(f"a remainder by {count} is no byte")
        found = PyBytes_FromStringAndSize(NULL, end - start)
        write = <uint8_t *>PyBytes_AS_STRING(found)
        while start < end:
            rows = self.put_hashes(start, end, hashes)
            for at in range(rows):
                write[at] = <uint8_t>(hashes[at] % <uint64_t>count)
            write += rows
            start += rows
        return found


def joined_in_turn(list parts not None, bytes owners not None):
    """The forms of the values of several parts in turn, joined.

    Args:
        parts: of each a list of forms; or `RowForms`, and the first row in them.
        owners: for each value the number of its part, whose next one it is.
    """
    cdef Buffer found = Buffer()
    cdef list each_part = [], nexts = []
    cdef array.array rows
    cdef const uint8_t *owner = <const uint8_t *>PyBytes_AS_STRING(owners)
    cdef Py_ssize_t at, number, row, count = len(parts)
    cdef RowForms forms
    cdef bytes form
    for part in parts:
        each_part.append(part if type(part) is list else part[0])
        nexts.append(0 if type(part) is list else part[1])
    rows = _python_array("q", nexts)
    for at in range(PyBytes_GET_SIZE(owners)):
        number = owner[at]
        if number >= count:
            raise IndexError(f"there are {count} parts, and none has the number {number}")
        row = rows.data.as_longlongs[number]
        rows.data.as_longlongs[number] = row + 1
        if type(each_part[number]) is RowForms:
            forms = <RowForms>each_part[number]
            if not 0 <= row < forms.count:
                raise IndexError(f"there are {forms.count} rows, and none has the number {row}")
            forms.coder.out.size = 0
            forms.put_row(row)
            out_add(&found.out, forms.coder.out.data, forms.coder.out.size)
        else:
            form = <bytes?>(<list?>each_part[number])[row]
            out_add(&found.out, <const uint8_t *>PyBytes_AS_STRING(form), <size_t>PyBytes_GET_SIZE(form))
    return out_taken(&found.out)


cdef int flatten(list flat, pieces, int depth) except -1:
    """Pieces in a row: an extension is its code, what is in it, and -1 less its code."""
    if depth >= NESTED_MAX:
        raise ValueError("extensions are nested too deep")
    for each in pieces:
        if type(each) is bytes or type(each) is Column:
            flat.append(each)
        else:
            code, inside = each
            if type(code) is not int or not 0 <= code < 128:
                raise ValueError(f"{code!r} is no code of an extension")
            flat.append(code)
            flatten(flat, inside, depth + 1)
            flat.append(-1 - code)
    return 0
