# The metas of a batch, in one array of bytes.
#
# Invariant: `Metas` answers every question as its twin does, `drift_graph.metas.ListedMetas`, a list of bytes; `Stamps`
# and `late_of` as the twins in `drift_graph.stamp_counts` and `drift_graph.lateness`.
#
# Why: a meta is a row, and then a tail that all metas of a batch have; so what operators append is stored once, and no
# Python object is made for a meta until somebody asks for one. Rows do not change, and are shared by metas that differ
# in their tails only. Sizes are added up before rows are written, and every index that comes from outside is checked.

from array import array as _python_array

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    _LATER_MARK = 0xFF  # see `drift_graph.meta`
    _LATER_MARK_AT = 8
    _IDENTITY_BYTES = 16
    _ONE_BYTE_MAX = 0xF7
    _PHASE_ITEMS = 1
    _PHASE_ROUND_END = 0xFF
    _INSERTED_MAX = 16  # so few are sorted by insertion
    _DIGIT_BITS = 11
    _DIGITS = 1 << _DIGIT_BITS
    _UNKNOWN = -1  # whether metas increase
    _NOT_INCREASING = 0
    _INCREASING = 1
    _INCREASING_ROWS = 2  # so that they increase whatever tail they have

cdef uint64_t _SIGN_BIT = <uint64_t>1 << 63
cdef array.array _INT64S = _python_array("q")
cdef array.array _INT32S = _python_array("i")
cdef array.array _UINT64S = _python_array("Q")


cdef inline uint64_t _read_big(const uint8_t *data) noexcept nogil:
    cdef uint64_t value = 0
    cdef int at
    for at in range(8):
        value = value << 8 | data[at]
    return value


cdef extern from *:
    int _leading_zeros "__builtin_clzll"(unsigned long long value) nogil  # of a value above 0


cdef inline int _bits(uint64_t value) noexcept nogil:
    """How many bits a value has."""
    return 64 - _leading_zeros(value) if value else 0


cdef inline void _copy(uint8_t *to, const uint8_t *source, Py_ssize_t size) noexcept nogil:
    """`memcpy`, without a call for as few bytes as metas have: what overlaps is copied twice."""
    if 8 <= size <= 16:
        memcpy(to, source, 8)
        memcpy(to + size - 8, source + size - 8, 8)
    elif 16 < size <= 32:
        memcpy(to, source, 16)
        memcpy(to + size - 16, source + size - 16, 16)
    elif 4 <= size < 8:
        memcpy(to, source, 4)
        memcpy(to + size - 4, source + size - 4, 4)
    elif size > 32:
        memcpy(to, source, size)
    else:
        while size > 0:
            size -= 1
            to[size] = source[size]


cdef inline int _varint_size(uint64_t value) noexcept nogil:
    """How many bytes `_write_varint` writes."""
    return 1 if value <= _ONE_BYTE_MAX else 1 + (_bits(value) + 7) // 8


cdef inline uint8_t *_write_varint(uint8_t *data, uint64_t value) noexcept nogil:
    """Writes the varint of `drift_graph.meta`; where it ends."""
    cdef int size
    cdef uint8_t number[8]
    if value <= _ONE_BYTE_MAX:
        data[0] = <uint8_t>value
        return data + 1
    size = _varint_size(value) - 1
    data[0] = <uint8_t>(_ONE_BYTE_MAX + size)
    put_be64(number, value)
    _copy(data + 1, number + 8 - size, size)
    return data + 1 + size


cdef inline Py_ssize_t _varint_end(const uint8_t *data, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    """Where the varint at `start` ends; -1 if there is none."""
    cdef Py_ssize_t end
    if start < 0 or start >= size:
        return -1
    end = start + 1 + (data[start] - _ONE_BYTE_MAX if data[start] > _ONE_BYTE_MAX else 0)
    return end if end <= size else -1


cdef inline uint64_t _varint_at(const uint8_t *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """The value of the varint from `start` up to `end`."""
    cdef uint64_t value = 0
    cdef Py_ssize_t at
    if end == start + 1:
        return data[start]
    for at in range(start + 1, end):
        value = value << 8 | data[at]
    return value


cdef inline bint _is_loop(uint8_t phase) noexcept nogil:
    return phase % 2 == 1 and _PHASE_ITEMS < phase < _PHASE_ROUND_END


cdef inline Py_ssize_t _global_end(const uint8_t *data, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    """Where the global time of an input item that begins at `start` ends; -1 if there is none."""
    cdef Py_ssize_t at = start + 8
    cdef int part
    for part in range(3):
        at = _varint_end(data, at, size)
    return at


cdef inline Py_ssize_t _round_at(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Where the innermost round of a later item is; -1 if there is none."""
    cdef Py_ssize_t start = 9, phase
    while True:
        phase = _varint_end(data, start, size)
        if phase < 0 or phase >= size:
            return -1
        if not _is_loop(data[phase]):
            return start
        start = phase + 1


cdef class _Rows:
    """What metas begin with, each with a size of its own, or all with one size."""

    cdef Py_ssize_t count
    cdef Py_ssize_t width  # the size of each; -1 if they differ
    cdef uint8_t *data
    cdef int64_t *ends  # where each ends, if they differ

    def __dealloc__(self):
        PyMem_Free(self.data)
        PyMem_Free(self.ends)

    cdef inline Py_ssize_t start(self, Py_ssize_t at) noexcept nogil:
        if self.width >= 0:
            return at * self.width
        return self.ends[at - 1] if at else 0

    cdef inline Py_ssize_t size(self, Py_ssize_t at) noexcept nogil:
        return self.width if self.width >= 0 else self.ends[at] - self.start(at)

    cdef inline const uint8_t *row(self, Py_ssize_t at) noexcept nogil:
        return self.data + self.start(at)


cdef _Rows _rows(Py_ssize_t count, Py_ssize_t width, Py_ssize_t total):
    """Rows to be written: `total` bytes; if sizes differ `width` is -1, and the caller writes `ends`."""
    cdef _Rows made = _Rows.__new__(_Rows)
    made.count, made.width = count, width
    made.data = <uint8_t *>PyMem_Malloc(max(total, 1))
    if made.data == NULL:
        raise MemoryError
    if width < 0:
        made.ends = <int64_t *>PyMem_Calloc(max(count, 1), sizeof(int64_t))
        if made.ends == NULL:
            raise MemoryError
    return made


cdef void _with_one_width(_Rows rows) noexcept:
    """Forget the ends if all rows have one size."""
    cdef Py_ssize_t at, width
    if rows.width >= 0:
        return
    width = rows.ends[0] if rows.count else 0
    for at in range(rows.count):
        if rows.ends[at] != (at + 1) * width:
            return
    PyMem_Free(rows.ends)
    rows.ends, rows.width = NULL, width


cdef void _shrink(_Rows rows, Py_ssize_t total) noexcept:
    """Give back what is behind the last row."""
    cdef uint8_t *data = <uint8_t *>PyMem_Realloc(rows.data, max(total, 1))
    if data != NULL:
        rows.data = data


cdef struct _Key:
    uint64_t first  # 16 bytes of a meta, as numbers
    uint64_t second
    int64_t at


cdef inline bint _is_above(const _Key *one, const _Key *other, Metas metas) noexcept:
    if one.first != other.first:
        return one.first > other.first
    if one.second != other.second:
        return one.second > other.second
    return metas is not None and metas.compare(one.at, metas, other.at) > 0


cdef void _sort(_Key *keys, _Key *spare, Py_ssize_t count, Metas metas) noexcept:
    """Sort keys; equal ones keep their order. What is in order already costs a comparison.

    Args:
        metas: of which these are the first bytes; None if they are all there is.
    """
    cdef Py_ssize_t at, left, right, half = count // 2
    cdef _Key key
    if count <= _INSERTED_MAX:
        for at in range(1, count):
            key, left = keys[at], at
            while left > 0 and _is_above(&keys[left - 1], &key, metas):
                keys[left] = keys[left - 1]
                left -= 1
            keys[left] = key
        return
    _sort(keys, spare, half, metas)
    _sort(keys + half, spare, count - half, metas)
    if not _is_above(&keys[half - 1], &keys[half], metas):
        return
    memcpy(spare, keys, half * sizeof(_Key))
    left, right, at = 0, half, 0
    while left < half:
        if right < count and _is_above(&spare[left], &keys[right], metas):
            keys[at] = keys[right]
            right += 1
        else:
            keys[at] = spare[left]
            left += 1
        at += 1


cdef int _sort_all(_Key *keys, _Key *spare, Py_ssize_t count, Metas metas) except -1:
    """Sort keys, as `_sort`, which takes longer: first they are put into stretches of equal length of the first number.

    Why: items come about in the order of their times, so a stretch has few keys, near to where they came.
    """
    cdef uint64_t least = keys[0].first, greatest = keys[0].first
    cdef Py_ssize_t at, start, stop, stretches
    cdef int shift = 0
    cdef int64_t *ends
    for at in range(count):
        least, greatest = min(least, keys[at].first), max(greatest, keys[at].first)
    while (greatest - least) >> shift >= <uint64_t>count:
        shift += 1
    stretches = <Py_ssize_t>((greatest - least) >> shift) + 1
    ends = <int64_t *>PyMem_Calloc(stretches + 1, sizeof(int64_t))
    if ends == NULL:
        raise MemoryError
    for at in range(count):
        ends[((keys[at].first - least) >> shift) + 1] += 1
    for at in range(stretches):
        ends[at + 1] += ends[at]
    memcpy(spare, keys, count * sizeof(_Key))
    for at in range(count):
        stop = <Py_ssize_t>((spare[at].first - least) >> shift)
        keys[ends[stop]] = spare[at]
        ends[stop] += 1
    start = 0
    for at in range(stretches):
        if ends[at] - start > 1:
            _sort(keys + start, spare, ends[at] - start, metas)
        start = ends[at]
    PyMem_Free(ends)
    return 0


cdef int _order_by_keys(const int64_t[::1] times, const uint64_t[::1] ties, int64_t *order) except -1:
    """The order of times and ties, equal ones as they come."""
    cdef Py_ssize_t at, count = times.shape[0]
    cdef _Key *keys = <_Key *>PyMem_Malloc(2 * count * sizeof(_Key))
    if keys == NULL:
        raise MemoryError
    try:
        for at in range(count):
            keys[at].first, keys[at].second, keys[at].at = <uint64_t>times[at] ^ _SIGN_BIT, ties[at], at
        _sort_all(keys, keys + count, count, None)
        for at in range(count):
            order[at] = keys[at].at
    finally:
        PyMem_Free(keys)
    return 0


cdef bint _order_by_digits(const int64_t[::1] times, const uint64_t[::1] ties, int64_t *order) except -1:
    """The order of times and ties, equal ones as they come, where few bits tell most of them apart; False if not.

    A number has a time, the first bits of a tie, and the index, as bits above the least of each. Numbers are sorted by
    digits, without the index, and stretches that are equal then by their ties.
    """
    cdef Py_ssize_t at, other, start, count = times.shape[0], ends[_DIGITS]
    cdef int64_t first = times[0], last = first
    cdef uint64_t least = ties[0], greatest = least, number, mask
    cdef uint64_t *numbers
    cdef uint64_t *spare
    cdef array.array room
    cdef int of_time, of_tie, of_index = _bits(<uint64_t>count), dropped, shift
    for at in range(count):
        first, last = min(first, times[at]), max(last, times[at])
        least, greatest = min(least, ties[at]), max(greatest, ties[at])
    of_time, of_tie = _bits(<uint64_t>last - <uint64_t>first), _bits(greatest - least)
    dropped = max(of_tie - max(3 * _DIGIT_BITS - of_time, 1), 0)
    of_tie -= dropped
    if of_time + of_tie + of_index > 64:
        return False
    room = array.clone(_UINT64S, 2 * count, False)
    numbers = <uint64_t *>room.data.as_ulonglongs
    spare = numbers + count
    for at in range(count):
        number = (<uint64_t>times[at] - <uint64_t>first) << of_tie | (ties[at] - least) >> dropped
        numbers[at] = number << of_index | <uint64_t>at
    for shift in range(of_index, of_index + of_time + of_tie, _DIGIT_BITS):
        memset(ends, 0, sizeof(ends))
        for at in range(count):
            ends[numbers[at] >> shift & (_DIGITS - 1)] += 1
        start = 0
        for at in range(_DIGITS):
            other = ends[at]
            ends[at] = start
            start += other
        for at in range(count):
            other = <Py_ssize_t>(numbers[at] >> shift & (_DIGITS - 1))
            spare[ends[other]] = numbers[at]
            ends[other] += 1
        numbers, spare = spare, numbers
    mask = (<uint64_t>1 << of_index) - 1
    start = 0
    for at in range(count):
        number = numbers[at] >> of_index
        if not dropped or number != numbers[start] >> of_index:
            start = at
        elif at - start > _INSERTED_MAX:
            return False
        other, number = at, numbers[at] & mask
        while other > start and ties[order[other - 1]] > ties[number]:
            order[other] = order[other - 1]
            other -= 1
        order[other] = <int64_t>number
    return True


cdef class MetasIterator:
    cdef Metas metas
    cdef Py_ssize_t at

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.metas.rows.count:
            raise StopIteration
        self.at += 1
        return self.metas.meta(self.at - 1)


cdef class Metas:
    """The compiled twin of `drift_graph.metas.ListedMetas`, which says what each method means."""

    cdef _Rows rows
    cdef bytes tail
    cdef int known  # whether they increase, see `_UNKNOWN`
    cdef object order  # the indices of the metas in sorted order, if they are known and the metas are not increasing
    cdef tuple ordered  # what `sorted` has answered
    cdef object __weakref__

    def __init__(self, metas=()):
        cdef list each = metas if type(metas) is list else list(metas)
        cdef Py_ssize_t at, total = 0
        cdef bytes meta
        for at in range(len(each)):
            if not isinstance(each[at], bytes):
                raise TypeError(f"a meta is bytes, not {type(each[at]).__name__}")
            total += PyBytes_GET_SIZE(each[at])
        cdef _Rows rows = _rows(len(each), -1, total)
        total = 0
        for at in range(rows.count):
            meta = each[at]
            memcpy(rows.data + total, PyBytes_AS_STRING(meta), PyBytes_GET_SIZE(meta))
            total += PyBytes_GET_SIZE(meta)
            rows.ends[at] = total
        _with_one_width(rows)
        self.rows, self.tail, self.known = rows, b"", _UNKNOWN

    # Made of numbers.

    @staticmethod
    def numbered(first_time, Py_ssize_t count, bytes ending not None):
        cdef _Rows rows
        cdef Py_ssize_t at
        cdef uint64_t first
        if count < 0 or not INT64_MIN <= first_time <= INT64_MAX - max(count - 1, 0):
            raise ValueError(f"{count} times from {first_time} on are no times of 64 bits")
        rows, first = _rows(count, 8, 8 * count), <uint64_t><int64_t>first_time ^ _SIGN_BIT
        for at in range(count):
            put_be64(rows.data + 8 * at, first + <uint64_t>at)
        return _metas(rows, ending, _INCREASING_ROWS)

    @staticmethod
    def stamped(const int64_t[::1] times, const uint64_t[::1] ties, bytes rank not None, bytes ending not None,
                const int64_t[::1] ordinals=None, order=None):
        cdef Py_ssize_t at, count = times.shape[0], total = 0, rank_size = PyBytes_GET_SIZE(rank)
        cdef uint8_t *write
        cdef Metas made
        cdef _Rows rows
        if ties.shape[0] != count or (ordinals is not None and ordinals.shape[0] != count):
            raise ValueError(f"there are {count} times, and as many ties and ordinals are needed")
        for at in range(count):
            total += 8 + rank_size + _varint_size(ties[at])
            if ordinals is not None:
                total += _varint_size(<uint64_t>ordinals[at])
        rows = _rows(count, -1, total)
        write = rows.data
        for at in range(count):
            put_be64(write, <uint64_t>times[at] ^ _SIGN_BIT)
            _copy(write + 8, <const uint8_t *>PyBytes_AS_STRING(rank), rank_size)
            write = _write_varint(write + 8 + rank_size, ties[at])
            if ordinals is not None:
                write = _write_varint(write, <uint64_t>ordinals[at])
            rows.ends[at] = write - rows.data
        _with_one_width(rows)
        made = _metas(rows, ending, _UNKNOWN)
        if order is not None:
            made.known, made.order = _NOT_INCREASING, order
        return made

    # As a sequence.

    def __len__(self):
        return self.rows.count

    def __iter__(self):
        cdef MetasIterator made = MetasIterator.__new__(MetasIterator)
        made.metas, made.at = self, 0
        return made

    def __getitem__(self, place):
        cdef Py_ssize_t at, stop, step
        if isinstance(place, slice):
            at, stop, step = place.indices(self.rows.count)
            if step != 1:
                raise ValueError(f"a slice of metas has a step of 1, not {step}")
            return self.part(at, max(at, stop))
        at = place
        if at < 0:
            at += self.rows.count
        if not 0 <= at < self.rows.count:
            raise IndexError(f"there are {self.rows.count} metas, and none at {place}")
        return self.meta(at)

    def __eq__(self, other):
        cdef Py_ssize_t at
        cdef Metas others
        if isinstance(other, list):
            return list(self) == other
        if not isinstance(other, Metas):
            return NotImplemented
        others = other
        if others.rows.count != self.rows.count:
            return False
        for at in range(self.rows.count):
            if self.compare(at, others, at) != 0:
                return False
        return True

    __hash__ = None

    def __repr__(self):
        return f"Metas({list(self)!r})"

    def __sizeof__(self):
        cdef _Rows rows = self.rows
        return rows.start(rows.count) + (0 if rows.ends == NULL else 8 * rows.count)

    cdef bytes meta(self, Py_ssize_t at):
        cdef Py_ssize_t size = self.rows.size(at), more = PyBytes_GET_SIZE(self.tail)
        cdef bytes made = PyBytes_FromStringAndSize(NULL, size + more)
        memcpy(PyBytes_AS_STRING(made), self.rows.row(at), size)
        memcpy(PyBytes_AS_STRING(made) + size, PyBytes_AS_STRING(self.tail), more)
        return made

    cdef Metas part(self, Py_ssize_t start, Py_ssize_t stop):
        cdef _Rows rows, old = self.rows
        cdef Py_ssize_t at, first, total
        if start == 0 and stop == old.count:
            return self
        first, total = old.start(start), old.start(stop) - old.start(start)
        rows = _rows(stop - start, old.width, total)
        memcpy(rows.data, old.data + first, total)
        if old.width < 0:
            for at in range(stop - start):
                rows.ends[at] = old.ends[start + at] - first
            _with_one_width(rows)
        return _metas(rows, self.tail, self.known if self.known > 0 else _UNKNOWN)

    # Order.

    cdef int compare(self, Py_ssize_t at, Metas others, Py_ssize_t other) noexcept:
        """Below 0, 0 or above 0: whether a meta is below another one, equal to it, or above it."""
        return _compared(
            self.rows.row(at), self.rows.size(at), <const uint8_t *>PyBytes_AS_STRING(self.tail),
            PyBytes_GET_SIZE(self.tail), others.rows.row(other), others.rows.size(other),
            <const uint8_t *>PyBytes_AS_STRING(others.tail), PyBytes_GET_SIZE(others.tail),
        )

    cdef int compare_with(self, Py_ssize_t at, bytes bound) noexcept:
        return _compared(
            self.rows.row(at), self.rows.size(at), <const uint8_t *>PyBytes_AS_STRING(self.tail),
            PyBytes_GET_SIZE(self.tail), <const uint8_t *>PyBytes_AS_STRING(bound), PyBytes_GET_SIZE(bound), NULL, 0,
        )

    def is_increasing(self):
        cdef Py_ssize_t at, least
        cdef _Rows rows = self.rows
        cdef bint by_rows = True
        cdef int found
        if self.known == _UNKNOWN:
            for at in range(1, rows.count):
                least = min(rows.size(at - 1), rows.size(at))
                found = memcmp(rows.row(at - 1), rows.row(at), least)
                if found == 0:
                    found, by_rows = self.compare(at - 1, self, at), False
                if found >= 0:
                    self.known = _NOT_INCREASING
                    return False
            self.known = _INCREASING_ROWS if by_rows else _INCREASING
        return self.known != _NOT_INCREASING

    def sorted(self):
        cdef Py_ssize_t at, count = self.rows.count
        cdef _Key *keys
        cdef array.array order
        cdef int64_t[::1] places
        cdef Metas made
        if self.ordered is not None:
            return self.ordered
        if self.order is not None:
            made = self.take(self.order)
            made.known = _INCREASING_ROWS
            self.ordered = self.order, made
            return self.ordered
        order = array.clone(_INT64S, count, False)
        places = order
        if self.is_increasing():
            for at in range(count):
                places[at] = at
            return order, self
        if self.merge(places):
            self.ordered = order, self.take(order)
            return self.ordered
        keys = <_Key *>PyMem_Malloc(2 * count * sizeof(_Key))
        if keys == NULL:
            raise MemoryError
        try:
            for at in range(count):
                keys[at].at = at
                self.write_key(&keys[at])
            _sort_all(keys, keys + count, count, self)
            for at in range(count):
                places[at] = keys[at].at
        finally:
            PyMem_Free(keys)
        self.ordered = order, self.take(order)
        return self.ordered

    cdef bint merge(self, int64_t[::1] places) noexcept:
        """Write the order of metas that are two sorted parts, one behind the other; False if they are not."""
        cdef Py_ssize_t at, count = self.rows.count, middle = 1, left = 0, right
        while middle < count and not self.is_above(middle - 1, self, middle):
            middle += 1
        for at in range(middle + 1, count):
            if self.is_above(at - 1, self, at):
                return False
        right = middle
        for at in range(count):
            if right < count and (left == middle or self.is_above(left, self, right)):
                places[at] = right
                right += 1
            else:
                places[at] = left
                left += 1
        return True

    cdef inline bint is_above(self, Py_ssize_t at, Metas others, Py_ssize_t other) noexcept:
        """Whether a meta is above another one; mostly the first eight bytes say it."""
        cdef uint64_t first, second
        if self.rows.size(at) >= 8 and others.rows.size(other) >= 8:
            first, second = _read_big(self.rows.row(at)), _read_big(others.rows.row(other))
            if first != second:
                return first > second
        return self.compare(at, others, other) > 0

    cdef void write_key(self, _Key *key) noexcept:
        cdef uint8_t start[16]
        cdef const uint8_t *row = self.rows.row(key.at)
        cdef Py_ssize_t size = self.rows.size(key.at), more = PyBytes_GET_SIZE(self.tail)
        if size < 16:
            memcpy(start, row, size)
            more = min(more, 16 - size)
            memcpy(start + size, PyBytes_AS_STRING(self.tail), more)
            for size in range(size + more, 16):
                start[size] = 0
            row = start
        key.first, key.second = _read_big(row), _read_big(row + 8)

    def count_below(self, bytes bound not None, Py_ssize_t start=0, stop=None):
        cdef Py_ssize_t end = self.rows.count if stop is None else stop, middle
        if not 0 <= start <= end <= self.rows.count:
            raise IndexError(f"there are {self.rows.count} metas, and none from {start} up to {end}")
        while start < end:
            middle = (start + end) // 2
            if self.compare_with(middle, bound) < 0:
                start = middle + 1
            else:
                end = middle
        return start

    def from_on(self, bytes bound not None):
        cdef Metas ordered = self if self.is_increasing() else self.sorted()[1]
        return ordered.part(ordered.count_below(bound), ordered.rows.count)

    def least(self):
        return self.meta(self.extreme(1))

    def greatest(self):
        return self.meta(self.extreme(-1))

    cdef Py_ssize_t extreme(self, int sign) except -1:
        cdef Py_ssize_t at, found = 0
        if not self.rows.count:
            raise ValueError("of no metas there is none")
        if self.known > 0:
            return 0 if sign > 0 else self.rows.count - 1
        for at in range(1, self.rows.count):
            if sign * self.compare(found, self, at) > 0:
                found = at
        return found

    # Some of them, or others made of them.

    def take(self, order):
        cdef const int64_t[::1] places = order if type(order) is not list else _python_array("q", order)
        cdef Py_ssize_t at, place, size, total = 0, count = places.shape[0]
        cdef _Rows rows, old = self.rows
        for at in range(count):
            if not 0 <= places[at] < old.count:
                raise IndexError(f"there are {old.count} metas, and none at {places[at]}")
            total += old.size(places[at])
        rows = _rows(count, old.width, total)
        total = 0
        for at in range(count):
            place = places[at]
            size = old.size(place)
            _copy(rows.data + total, old.row(place), size)
            total += size
            if rows.ends != NULL:
                rows.ends[at] = total
        _with_one_width(rows)
        return _metas(rows, self.tail, _UNKNOWN)

    def chosen(self, const uint8_t[::1] wanted):
        cdef Py_ssize_t at, size, total = 0, count = 0
        cdef int64_t *places
        cdef _Rows rows, old = self.rows
        if wanted.shape[0] != old.count:
            raise ValueError(f"there are {old.count} metas, and {wanted.shape[0]} were asked about")
        places = <int64_t *>PyMem_Malloc(max(old.count, 1) * sizeof(int64_t))
        if places == NULL:
            raise MemoryError
        try:
            for at in range(old.count):  # without a branch, since nobody can guess which are wanted
                places[count] = at
                total += old.size(at) if wanted[at] else 0
                count += wanted[at] != 0
            if count == old.count:
                return self
            rows = _rows(count, old.width, total)
            total = 0
            for at in range(count):
                size = old.size(places[at])
                _copy(rows.data + total, old.row(places[at]), size)
                total += size
                if rows.ends != NULL:
                    rows.ends[at] = total
        finally:
            PyMem_Free(places)
        _with_one_width(rows)
        return _metas(rows, self.tail, self.known if self.known > 0 else _UNKNOWN)

    def with_suffix(self, bytes suffix not None):
        if not suffix:
            return self
        return _metas(self.rows, self.tail + suffix, _INCREASING_ROWS if self.known == _INCREASING_ROWS else _UNKNOWN)

    def children(self, counts, endings):
        cdef const int64_t[::1] of_each = counts if type(counts) is not list else _python_array("q", counts)
        cdef list each = list(endings)
        cdef Py_ssize_t at, child, size, longest, total = 0, count = 0, more = PyBytes_GET_SIZE(self.tail)
        cdef _Rows rows, old = self.rows
        cdef bytes ending
        cdef uint8_t *write
        if of_each.shape[0] != old.count:
            raise ValueError(f"there are {old.count} metas, and {of_each.shape[0]} counts of children")
        for at in range(len(each)):
            if not isinstance(each[at], bytes):
                raise TypeError(f"an ending is bytes, not {type(each[at]).__name__}")
        for at in range(old.count):
            if not 0 <= of_each[at] <= len(each):
                raise ValueError(f"there are {len(each)} endings, for {of_each[at]} children")
            size = old.size(at) + more
            for child in range(of_each[at]):
                total += size + PyBytes_GET_SIZE(each[child])
            count += of_each[at]
        rows = _rows(count, -1, total)
        write, count = rows.data, 0
        for at in range(old.count):
            size = old.size(at)
            for child in range(of_each[at]):
                ending = each[child]
                memcpy(write, old.row(at), size)
                memcpy(write + size, PyBytes_AS_STRING(self.tail), more)
                memcpy(write + size + more, PyBytes_AS_STRING(ending), PyBytes_GET_SIZE(ending))
                write += size + more + PyBytes_GET_SIZE(ending)
                rows.ends[count] = write - rows.data
                count += 1
        _with_one_width(rows)
        return _metas(rows, b"", _UNKNOWN)

    @staticmethod
    def joined(several):
        cdef list every = [metas for metas in several if len(metas)]
        cdef Py_ssize_t at, size, total = 0, count = 0, width = -1
        cdef bint one_tail = True, one_width = True
        cdef Metas metas, first
        cdef _Rows rows
        cdef int known = _UNKNOWN
        if not every:
            return Metas()
        first = every[0]
        if len(every) == 1:
            return first
        for metas in every:
            one_tail = one_tail and metas.tail == first.tail
            one_width = one_width and metas.rows.width == first.rows.width
        if first.known == _INCREASING_ROWS and one_tail and one_width and first.rows.width >= 0:
            known = _INCREASING_ROWS
            for at in range(1, len(every)):
                metas = every[at]
                if metas.known <= 0 or metas.compare(0, every[at - 1], len(every[at - 1]) - 1) <= 0:
                    known = _UNKNOWN
        for metas in every:
            count += metas.rows.count
            total += metas.rows.start(metas.rows.count)
            if not one_tail:
                total += metas.rows.count * PyBytes_GET_SIZE(metas.tail)
        if one_tail and one_width:
            width = first.rows.width
        rows = _rows(count, width, total)
        total = count = 0
        for metas in every:
            if one_tail:
                size = metas.rows.start(metas.rows.count)
                memcpy(rows.data + total, metas.rows.data, size)
                if rows.ends != NULL:
                    for at in range(metas.rows.count):
                        rows.ends[count + at] = total + metas.rows.start(at + 1)
                total += size
                count += metas.rows.count
                continue
            for at in range(metas.rows.count):
                size = metas.rows.size(at)
                memcpy(rows.data + total, metas.rows.row(at), size)
                total += size
                size = PyBytes_GET_SIZE(metas.tail)
                memcpy(rows.data + total, PyBytes_AS_STRING(metas.tail), size)
                total += size
                rows.ends[count] = total
                count += 1
        _with_one_width(rows)
        return _metas(rows, first.tail if one_tail else b"", known)

    @staticmethod
    def merged(several):
        cdef list every = list(several)
        cdef Py_ssize_t number, least, row, size, more, total = 0, count = 0, parts = len(every)
        cdef array.array nexts = array.clone(_INT64S, parts + 1, True)
        cdef int64_t *at = <int64_t *>nexts.data.as_longlongs
        cdef Metas metas, other
        cdef _Rows rows
        cdef bytes numbers
        cdef uint8_t *write
        if parts > 256:
            raise ValueError(f"{parts} parts have no numbers of a byte")
        for metas in every:
            if not metas.is_increasing():
                raise ValueError("only increasing metas are merged")
            count += metas.rows.count
            total += metas.rows.start(metas.rows.count) + metas.rows.count * PyBytes_GET_SIZE(metas.tail)
        rows = _rows(count, -1, total)
        numbers = PyBytes_FromStringAndSize(NULL, count)
        write = rows.data
        for row in range(count):
            least, metas = -1, None
            for number in range(parts):
                other = <Metas>every[number]
                if at[number] < other.rows.count and (least < 0 or metas.is_above(at[least], other, at[number])):
                    least, metas = number, other
            size, more = metas.rows.size(at[least]), PyBytes_GET_SIZE(metas.tail)
            _copy(write, metas.rows.row(at[least]), size)
            _copy(write + size, <const uint8_t *>PyBytes_AS_STRING(metas.tail), more)
            write += size + more
            rows.ends[row] = write - rows.data
            (<uint8_t *>PyBytes_AS_STRING(numbers))[row] = <uint8_t>least
            at[least] += 1
        _with_one_width(rows)
        return numbers, _metas(rows, b"", _UNKNOWN)

    def later(self, bytes ending not None, time, phase, rounds=0, inward=0):
        cdef const int64_t[::1] times = None
        cdef Py_ssize_t at, size, more = PyBytes_GET_SIZE(self.tail), room = 0, longest = 0, count = self.rows.count
        cdef Py_ssize_t total = 0, moment, child_size, ending_size = PyBytes_GET_SIZE(ending)
        cdef bint of_parents = time is None, of_each = time is not None and not isinstance(time, int)
        cdef uint64_t own = 0
        cdef uint8_t *parent
        cdef uint8_t *write
        cdef uint8_t *buffer
        cdef _Rows rows, old = self.rows
        if of_each:
            times = time
            if times.shape[0] != count:
                raise ValueError(f"there are {count} metas, and {times.shape[0]} times")
        elif not of_parents:
            own = <uint64_t><int64_t>time ^ _SIGN_BIT
        for at in range(count):
            longest = max(longest, old.size(at))
            room += old.size(at)
        # beside its parent a later child has, at most, the mark, two varints, two phases, hops, the hash and the ending
        room += count * (more + 8 + 1 + 9 + 2 + 9 + 9 + _IDENTITY_BYTES + 2 * ending_size)
        rows = _rows(count, -1, room)
        buffer = <uint8_t *>PyMem_Malloc(longest + more + ending_size + 1)
        if buffer == NULL:
            raise MemoryError
        try:
            for at in range(count):
                parent, size = buffer, old.size(at)
                memcpy(parent, old.row(at), size)
                memcpy(parent + size, PyBytes_AS_STRING(self.tail), more)
                size += more
                memcpy(parent + size, PyBytes_AS_STRING(ending), ending_size)
                child_size = size + ending_size
                if size <= _LATER_MARK_AT:
                    raise ValueError(f"{bytes(parent[:size])!r} is no meta")
                if of_each:
                    own = <uint64_t>times[at] ^ _SIGN_BIT
                elif of_parents:
                    own = _read_big(parent)
                write = _write_later(
                    rows.data + total, parent, size, child_size, own, phase, rounds, inward
                )
                if write == NULL:
                    raise ValueError(f"{bytes(parent[:size])!r} is no meta")
                memcpy(write, PyBytes_AS_STRING(ending), ending_size)
                total = write + ending_size - rows.data
                rows.ends[at] = total
        finally:
            PyMem_Free(buffer)
        _shrink(rows, total)
        _with_one_width(rows)
        return _metas(rows, b"", _UNKNOWN)

    # What is in them.

    def times(self):
        cdef array.array found = array.clone(_INT64S, self.rows.count, False)
        cdef int64_t[::1] times = found
        cdef _Rows rows = self.rows
        cdef Py_ssize_t at
        cdef bytes meta
        for at in range(rows.count):
            if rows.size(at) >= 8:
                times[at] = <int64_t>(_read_big(rows.row(at)) ^ _SIGN_BIT)
                continue
            meta = self.meta(at)
            if PyBytes_GET_SIZE(meta) < 8:
                raise ValueError(f"{meta!r} is no meta")
            times[at] = <int64_t>(_read_big(<const uint8_t *>PyBytes_AS_STRING(meta)) ^ _SIGN_BIT)
        return found

    def some_later(self):
        cdef _Rows rows = self.rows
        cdef Py_ssize_t at, size
        for at in range(rows.count):
            size = rows.size(at)
            if size > _LATER_MARK_AT:
                if rows.row(at)[_LATER_MARK_AT] == _LATER_MARK:
                    return True
            elif size + PyBytes_GET_SIZE(self.tail) > _LATER_MARK_AT:
                if <uint8_t>PyBytes_AS_STRING(self.tail)[_LATER_MARK_AT - size] == _LATER_MARK:
                    return True
        return False

    def numbers(self):
        cdef _Rows rows = self.rows
        cdef Py_ssize_t at
        cdef uint64_t first
        if 0 <= rows.width < 8 <= rows.width + PyBytes_GET_SIZE(self.tail):
            return Metas(list(self)).numbers()
        if not rows.count or rows.width < 8:
            return None
        first = _read_big(rows.data)
        for at in range(1, rows.count):
            if _read_big(rows.row(at)) != first + <uint64_t>at or first + <uint64_t>at < first:
                return None
            if memcmp(rows.row(at) + 8, rows.data + 8, rows.width - 8) != 0:
                return None
        return <int64_t>(first ^ _SIGN_BIT), self.meta(0)[8:]

    # As bytes.

    def encoded(self, Py_ssize_t start=0, stop=None):
        cdef _Rows rows = self.rows
        cdef Py_ssize_t at, size, end = rows.count if stop is None else stop, more = PyBytes_GET_SIZE(self.tail)
        cdef Py_ssize_t total = 0
        cdef const uint8_t *tail = <const uint8_t *>PyBytes_AS_STRING(self.tail)
        cdef bytes made
        cdef uint8_t *write
        if not 0 <= start <= end <= rows.count:
            raise IndexError(f"there are {rows.count} metas, and none from {start} up to {end}")
        for at in range(start, end):
            size = rows.size(at) + more
            total += size + (2 if size <= 0xFF else 3 if size <= 0xFFFF else 5)
        made = PyBytes_FromStringAndSize(NULL, total)
        write = <uint8_t *>PyBytes_AS_STRING(made)
        for at in range(start, end):
            write = _write_header(write, rows.size(at) + more)
            size = rows.size(at)
            _copy(write, rows.row(at), size)
            _copy(write + size, tail, more)
            write += size + more
        return made

    @staticmethod
    def decoded(Py_ssize_t count, data):
        cdef const uint8_t[::1] view = data
        cdef const uint8_t *read = NULL
        cdef Py_ssize_t at, kind, place = 0, size, total = 0, length = view.shape[0]
        cdef _Rows rows
        if length:
            read = &view[0]
        if not 0 <= count <= length // 2:
            raise ValueError(f"{length} bytes are not those of {count} metas")
        rows = _rows(count, -1, length)
        for at in range(count):
            size = -1
            if place < length and 0xC4 <= read[place] <= 0xC6:
                kind = 1 << (read[place] - 0xC4)
                if place + 1 + kind <= length:
                    size = 0
                    for place in range(place + 1, place + 1 + kind):
                        size = size << 8 | read[place]
                    place += 1
            if size < 0 or size > length - place:
                raise ValueError(f"{length} bytes are not those of {count} metas: meta {at} is none")
            memcpy(rows.data + total, read + place, size)
            place += size
            total += size
            rows.ends[at] = total
        if place != length:
            raise ValueError(f"{length} bytes are not those of {count} metas: {length - place} are left")
        _with_one_width(rows)
        return _metas(rows, b"", _UNKNOWN)

    def split(self):
        cdef _Rows rows = self.rows
        cdef Py_ssize_t at, end, size, tied = 0, rest = 0
        cdef array.array tie_ends = array.clone(_INT64S, rows.count + 1, True)
        cdef array.array path_ends = array.clone(_INT64S, rows.count + 1, True)
        cdef bytes ties, paths
        cdef char *tie
        cdef char *path
        if PyBytes_GET_SIZE(self.tail):
            return Metas.decoded(rows.count, self.encoded()).split()
        for at in range(rows.count):
            end = _global_end(rows.row(at), 0, rows.size(at))
            if end < 0:
                raise ValueError("a meta ends within its global time")
            tied += end - _LATER_MARK_AT
            rest += rows.size(at) - end
            tie_ends.data.as_longlongs[at + 1], path_ends.data.as_longlongs[at + 1] = tied, rest
        ties, paths = PyBytes_FromStringAndSize(NULL, tied), PyBytes_FromStringAndSize(NULL, rest)
        tie, path = PyBytes_AS_STRING(ties), PyBytes_AS_STRING(paths)
        for at in range(rows.count):
            size = tie_ends.data.as_longlongs[at + 1] - tie_ends.data.as_longlongs[at]
            memcpy(tie, rows.row(at) + _LATER_MARK_AT, size)
            tie += size
            end = rows.size(at) - _LATER_MARK_AT - size
            memcpy(path, rows.row(at) + _LATER_MARK_AT + size, end)
            path += end
        return tie_ends, ties, path_ends, paths

    def packed(self):
        cdef _Rows rows = self.rows
        cdef Py_ssize_t at, shared = 0, size, total, more = PyBytes_GET_SIZE(self.tail), longest = 0
        cdef bint small, fixed
        cdef bytes made
        cdef uint8_t *write
        if rows.count:
            shared = rows.size(0)
            at = max(rows.count - 1, 1) if self.known > 0 and rows.width >= 0 else 1  # between two are those between
            for at in range(at, rows.count):
                size = min(shared, rows.size(at))
                longest = max(longest, rows.size(at))
                shared = 0
                while shared < size and rows.row(at)[shared] == rows.data[shared]:
                    shared += 1
            longest = max(longest, rows.size(0))
        if longest > UINT32_MAX or more > UINT32_MAX:
            raise OverflowError(f"a meta has {longest + more} bytes")
        if rows.width >= 0:  # each has a byte of its own, or a size: so there are no more of them than bytes
            shared = min(shared, max(rows.width - 1, 0))
        fixed = rows.width > 0
        small = longest - shared <= 0xFF
        total = 8 * 4 + shared + more + (0 if fixed else rows.count * (1 if small else 4))
        total += rows.start(rows.count) - shared * rows.count
        made = PyBytes_FromStringAndSize(NULL, total)
        write = <uint8_t *>PyBytes_AS_STRING(made)
        put_be64(write, <uint64_t>rows.count)
        put_be64(write + 8, <uint64_t>shared)
        put_be64(write + 16, <uint64_t>more)
        put_be64(write + 24, <uint64_t>(rows.width - shared + 1 if fixed else 0 if small else 1))
        write += 32
        memcpy(write, rows.data, shared)
        write += shared
        memcpy(write, PyBytes_AS_STRING(self.tail), more)
        write += more
        if not fixed:
            for at in range(rows.count):
                size = rows.size(at) - shared
                if not small:
                    write[0], write[1], write[2] = <uint8_t>(size >> 24), <uint8_t>(size >> 16), <uint8_t>(size >> 8)
                    write += 3
                write[0] = <uint8_t>size
                write += 1
        for at in range(rows.count):
            size = rows.size(at) - shared
            _copy(write, rows.row(at) + shared, size)
            write += size
        return made

    @staticmethod
    def unpacked(data):
        cdef const uint8_t[::1] view = data
        cdef Py_ssize_t length = view.shape[0], at, place, size, total = 0, sizes
        cdef uint64_t count, shared, more, kind, left
        cdef const uint8_t *read
        cdef const uint8_t *each
        cdef _Rows rows
        cdef bytes tail
        if length < 32:
            raise ValueError(f"{length} bytes are no metas: they have 32 bytes at least")
        read = &view[0]
        count, shared, more, kind = _read_big(read), _read_big(read + 8), _read_big(read + 16), _read_big(read + 24)
        left = <uint64_t>(length - 32)
        if shared > left or more > left - shared:
            raise ValueError(f"{length} bytes are no metas: {shared} and {more} bytes of each are not there")
        left -= shared + more
        if kind < 2:
            sizes = 1 if kind == 0 else 4
            if count > left // <uint64_t>sizes:
                raise ValueError(f"{length} bytes are no metas: the sizes of {count} are not there")
            each = read + 32 + shared + more
            for at in range(<Py_ssize_t>count):
                total += _size_at(each, sizes, at)
            left -= count * <uint64_t>sizes
            if <uint64_t>total != left:
                raise ValueError(f"{length} bytes are no metas: {left} bytes are those of sizes that make {total}")
        else:
            sizes, each = 0, read
            if left % (kind - 1) or left // (kind - 1) != count:
                raise ValueError(f"{length} bytes are no metas: {left} bytes are not {count} of {kind - 1}")
        if shared and count > (<uint64_t>INT64_MAX // 2) // shared:
            raise MemoryError(f"{count} metas of {shared} bytes each")
        rows = _rows(<Py_ssize_t>count, -1 if kind < 2 else <Py_ssize_t>(kind - 1 + shared),
                     <Py_ssize_t>(count * shared + left))
        place, total = 32 + shared + more + sizes * count, 0
        for at in range(rows.count):
            size = _size_at(each, sizes, at) if kind < 2 else <Py_ssize_t>(kind - 1)
            memcpy(rows.data + total, read + 32, shared)
            memcpy(rows.data + total + shared, read + place, size)
            place += size
            total += shared + size
            if rows.ends != NULL:
                rows.ends[at] = total
        tail = PyBytes_FromStringAndSize(<const char *>read + 32 + shared, more)
        _with_one_width(rows)
        return _metas(rows, tail, _UNKNOWN)


cdef inline Py_ssize_t _size_at(const uint8_t *each, Py_ssize_t sizes, Py_ssize_t at) noexcept nogil:
    if sizes == 1:
        return each[at]
    each += 4 * at
    return <Py_ssize_t>each[0] << 24 | <Py_ssize_t>each[1] << 16 | <Py_ssize_t>each[2] << 8 | each[3]


cdef Metas _metas(_Rows rows, bytes tail, int known):
    cdef Metas made = Metas.__new__(Metas)
    made.rows, made.tail, made.known = rows, tail, known
    return made


cdef inline uint8_t *_write_header(uint8_t *write, Py_ssize_t size) noexcept nogil:
    """What MessagePack has before so many bytes."""
    if size <= 0xFF:
        write[0], write[1] = 0xC4, <uint8_t>size
        return write + 2
    if size <= 0xFFFF:
        write[0], write[1], write[2] = 0xC5, <uint8_t>(size >> 8), <uint8_t>size
        return write + 3
    write[0], write[1], write[2] = 0xC6, <uint8_t>(size >> 24), <uint8_t>(size >> 16)
    write[3], write[4] = <uint8_t>(size >> 8), <uint8_t>size
    return write + 5


cdef int _compared(const uint8_t *row, Py_ssize_t size, const uint8_t *tail, Py_ssize_t more, const uint8_t *other,
                   Py_ssize_t other_size, const uint8_t *other_tail, Py_ssize_t other_more) noexcept nogil:
    """Below 0, 0 or above 0, as a row and its tail are to another row and its tail."""
    cdef Py_ssize_t least
    cdef int found
    while True:
        if size == 0:
            row, size, more = tail, more, 0
        if other_size == 0:
            other, other_size, other_more = other_tail, other_more, 0
        if size == 0 or other_size == 0:
            return (size > 0) - (other_size > 0)
        least = min(size, other_size)
        found = memcmp(row, other, least)
        if found:
            return found
        row += least
        size -= least
        other += least
        other_size -= least


cdef uint8_t *_write_later(uint8_t *write, const uint8_t *parent, Py_ssize_t size, Py_ssize_t child_size, uint64_t time,
                           int phase, uint64_t rounds, int inward) noexcept:
    """Write `drift_graph.meta.later_meta` of a parent, or the ordinary child's meta, both without the ending.

    Args:
        parent: its meta, behind which the ending is up to `child_size`.

    Returns:
        Where it ends; NULL if the parent is no meta.
    """
    cdef uint8_t *begin = write
    cdef Py_ssize_t start = 0, end, root_start, root_end, hops_end, moment
    cdef uint64_t number = 0, hops = 1
    cdef bint same_level = False
    if parent[_LATER_MARK_AT] == _LATER_MARK:
        start = _round_at(parent, size)
        if start < 0:
            return NULL
        end = _varint_end(parent, start, size)
        number = _varint_at(parent, start, end)
        root_start = end + 1
        root_end = _global_end(parent, root_start, size)
        hops_end = _varint_end(parent, root_end, size)
        if hops_end < 0:
            return NULL
        hops = _varint_at(parent, root_end, hops_end) + 1
        same_level = _read_big(parent) == time
    else:
        root_start, root_end = 0, _global_end(parent, 0, size)
        if root_end < 0:
            return NULL
    if same_level:
        memcpy(write, parent, start)
        write += start
    else:
        number = 0
        put_be64(write, time)
        write[8] = _LATER_MARK
        write += 9
    if inward < 0:
        (write - 1)[0] = <uint8_t>phase
    else:
        write = _write_varint(write, number + rounds)
        write[0] = <uint8_t>phase
        write += 1
        if inward:
            write[0], write[1] = 0, _PHASE_ITEMS
            write += 2
    moment = write - begin
    if time <= _read_big(parent) and _compared(begin, moment, NULL, 0, parent, min(moment, size), NULL, 0) <= 0:
        memcpy(begin, parent, size)
        return begin + size
    memcpy(write, parent + root_start, root_end - root_start)
    write = _write_varint(write + (root_end - root_start), hops)
    put_hash128(write, parent, child_size)
    return write + _IDENTITY_BYTES


def late_of(const int64_t[::1] times, int64_t greatest, int64_t least, lateness):
    """The compiled twin of `drift_graph.lateness.late_of`."""
    cdef Py_ssize_t at
    cdef list found = []
    cdef bint is_known = lateness <= UINT64_MAX
    cdef uint64_t limit = lateness if is_known else 0
    cdef int64_t bound
    for at in range(times.shape[0]):
        bound = least
        if is_known and limit <= <uint64_t>greatest + _SIGN_BIT:  # else the bound is below all times of 64 bits
            bound = max(least, <int64_t>(<uint64_t>greatest - limit))
        if times[at] < bound:
            found.append((at, times[at], bound))
        if times[at] > greatest:
            greatest = times[at]
    return found, greatest


cdef struct _Stamp:
    int64_t time
    uint64_t tie
    int64_t items  # how many had the time and tie; 0 if they were taken out again, below 0 if another run counts them
    int64_t first  # the number of the first of them


cdef inline bint _is_below(const _Stamp *stamp, int64_t time, uint64_t tie) noexcept nogil:
    return stamp.time < time or (stamp.time == time and stamp.tie < tie)


cdef class _Run:
    """Different stamps in order."""

    cdef _Stamp *stamps
    cdef Py_ssize_t start, stop

    def __dealloc__(self):
        PyMem_Free(self.stamps)

    def __len__(self):
        return self.stop - self.start

    cdef Py_ssize_t place(self, int64_t time, uint64_t tie, Py_ssize_t start) noexcept nogil:
        """The index of the first stamp that is not below this one, if those before `start` are."""
        cdef Py_ssize_t end = start, step = 1, middle
        while end < self.stop and _is_below(&self.stamps[end], time, tie):
            start = end + 1
            end += step
            step *= 2
        end = min(end, self.stop)
        while start < end:
            middle = (start + end) // 2
            if _is_below(&self.stamps[middle], time, tie):
                start = middle + 1
            else:
                end = middle
        return start


cdef _Run _run(Py_ssize_t room):
    cdef _Run made = _Run.__new__(_Run)
    made.stamps = <_Stamp *>PyMem_Malloc(max(room, 1) * sizeof(_Stamp))
    if made.stamps == NULL:
        raise MemoryError
    return made


cdef _Run _merged(_Run one, _Run other):
    """The stamps of both that items have."""
    cdef _Run both = _run(len(one) + len(other))
    cdef Py_ssize_t left = one.start, right = other.start
    while left < one.stop or right < other.stop:
        if right == other.stop or (
            left < one.stop and _is_below(&one.stamps[left], other.stamps[right].time, other.stamps[right].tie)
        ):
            both.stamps[both.stop] = one.stamps[left]
            left += 1
        else:
            both.stamps[both.stop] = other.stamps[right]
            right += 1
        both.stop += both.stamps[both.stop].items > 0
    return both


cdef class Stamps:
    """The compiled twin of `drift_graph.stamp_counts.ListedStamps`, which says what each method means.

    Stamps are in sorted runs, each at least twice as long as the next one, when one was added; a batch looks for its
    own in the parts of runs that it overlaps.
    """

    cdef list runs
    cdef int64_t least
    cdef int64_t added

    def __cinit__(self):
        self.least, self.runs = INT64_MIN, []

    cdef int push(self, _Run new) except -1:
        """Add a run; what no item will have is left out."""
        cdef list runs = [new]
        cdef _Run old
        cdef Py_ssize_t at
        for old in self.runs:
            old.start = old.place(self.least, 0, old.start)
            if old.start < old.stop:
                runs.append(old if old.start <= old.stop - old.start else _merged(old, _run(0)))
        runs.sort(key=len, reverse=True)
        for at in range(len(runs) - 1, 0, -1):
            if len(runs[at - 1]) < 2 * len(runs[at]):
                runs[at - 1] = _merged(runs[at - 1], runs.pop(at))
        self.runs = runs
        return 0

    cdef _Stamp *find(self, int64_t time, uint64_t tie) noexcept:
        """Where a time and tie are; NULL if they are nowhere."""
        cdef _Run run
        cdef _Stamp *stamp
        cdef Py_ssize_t at
        for run in self.runs:
            at = run.place(time, tie, run.start)
            stamp = &run.stamps[at]
            if at < run.stop and stamp.time == time and stamp.tie == tie and stamp.items > 0:
                return stamp
        return NULL

    def add(self, const int64_t[::1] times, const uint64_t[::1] ties):
        cdef Py_ssize_t at, place, count = times.shape[0]
        cdef array.array ordinals = array.clone(_INT64S, count, False)
        cdef array.array order = array.clone(_INT64S, count, False)
        cdef int64_t *places = <int64_t *>order.data.as_longlongs
        cdef bint in_order = True, some = False
        cdef _Run new = _run(count)
        cdef _Run old
        cdef _Stamp *stamp = NULL
        if ties.shape[0] != count:
            raise ValueError(f"there are {count} times, and {ties.shape[0]} ties")
        for at in range(count):
            places[at] = at
            if at and (times[at - 1] > times[at] or (times[at - 1] == times[at] and ties[at - 1] > ties[at])):
                in_order = False
        if not in_order and not _order_by_digits(times, ties, places):
            _order_by_keys(times, ties, places)
        for at in range(count):
            place = places[at]
            if at and stamp.time == times[place] and stamp.tie == ties[place]:
                ordinals.data.as_longlongs[place] = stamp.items
                stamp.items += 1
                some = True
                continue
            ordinals.data.as_longlongs[place] = 0
            stamp = &new.stamps[new.stop]
            stamp.time, stamp.tie, stamp.items, stamp.first = times[place], ties[place], 1, self.added + place
            new.stop += 1
        for old in self.runs:
            some = self.count_again(new, old, places, ordinals) or some
        self.added += count
        if count:
            self.push(new)
        return ordinals if some else None, None if in_order else order

    cdef bint count_again(self, _Run new, _Run old, const int64_t *places, array.array ordinals) noexcept:
        """Count the stamps of a new run in an old one that has them; whether it has some."""
        cdef Py_ssize_t at, item, key = 0, place = old.start
        cdef _Stamp *stamp
        cdef _Stamp *known
        cdef bint some = False
        for at in range(new.stop):
            if place == old.stop:
                break
            stamp = &new.stamps[at]
            if stamp.items > 0:
                place = old.place(stamp.time, stamp.tie, place)
                known = &old.stamps[place]
                if place < old.stop and known.time == stamp.time and known.tie == stamp.tie and known.items > 0:
                    for item in range(key, key + stamp.items):
                        ordinals.data.as_longlongs[places[item]] += known.items
                    known.items += stamp.items
                    stamp.items, some = -stamp.items, True
            key += abs(stamp.items)
        return some

    def take_back(self, const int64_t[::1] times, const uint64_t[::1] ties):
        cdef Py_ssize_t at
        cdef _Stamp *stamp
        for at in range(times.shape[0]):
            stamp = self.find(times[at], ties[at])
            if stamp != NULL:
                stamp.items -= 1
        self.added -= times.shape[0]

    def of(self, int64_t time, uint64_t tie):
        cdef _Stamp *stamp = self.find(time, tie)
        if stamp == NULL:
            return 0, self.added
        return stamp.items, stamp.first

    def set(self, int64_t time, uint64_t tie, int64_t items, int64_t first):
        cdef _Stamp *stamp = self.find(time, tie)
        cdef _Run new
        if stamp != NULL:
            stamp.items, stamp.first = items, first
            return
        new = _run(1)
        new.stamps[0].time, new.stamps[0].tie, new.stamps[0].items, new.stamps[0].first = time, tie, items, first
        new.stop = 1
        self.push(new)

    def settle(self, int64_t least):
        self.least = max(self.least, least)

    def listed(self):
        cdef Py_ssize_t at
        cdef _Run run
        cdef _Stamp *stamp
        cdef list found = []
        for run in self.runs:
            for at in range(run.start, run.stop):
                stamp = &run.stamps[at]
                if stamp.items > 0 and stamp.time >= self.least:
                    found.append((stamp.time, stamp.tie, stamp.items, stamp.first))
        found.sort()
        return found
