# The loops of settled stages: accumulators by number, sessions, and windows whose ends follow from the times of items.
#
# Invariant: sessions and windows, their timers and accumulators are those of the process one item after the other
# (`drift.operators.ProlongsWindows`, `OpensWindows`), to the last bit of a float; what it would do otherwise is not
# begun.
#
# Why: items come in order, and none comes below them. So an open window is a row of some arrays, the place of which is
# its cell; a session's timer moves when an item or a bound is above it, by one hash. A batch first finds the cell of
# each item, then each aggregate adds its values, which are numbers as long as all of them fit, and from then on
# objects. Until a batch is kept it can be taken back, for a function may raise.

cdef enum:
    _COUNT = 0
    _SUM = 1
    _MEAN = 2
    _MIN = 3
    _MAX = 4
    _OTHER = 5
    _NOTHING = 0  # what accumulators are made of
    _INTEGERS = 1
    _FLOATS = 2
    _OBJECTS = 3

cdef dict _FOLDS = {"count": _COUNT, "sum": _SUM, "mean": _MEAN, "min": _MIN, "max": _MAX}
cdef array.array _DOUBLES = _python_array("d")
cdef array.array _NO_INTEGERS = _python_array("q")

from libc.math cimport isnan

cdef extern from *:
    bint __builtin_add_overflow(int64_t, int64_t, int64_t *) nogil


cdef union _Number:
    int64_t integer
    double float


cdef inline bint _combined(int kind, int made_of, _Number *into, _Number value) noexcept nogil:
    """Add a number to another one of the same type; False if their sum has more than 64 bits."""
    if made_of == _FLOATS:
        if kind == _MIN:
            if value.float < into.float or isnan(into.float):
                into.float = value.float
        elif kind == _MAX:
            if value.float > into.float or isnan(into.float):
                into.float = value.float
        else:
            into.float += value.float
        return True
    if kind == _MIN:
        into.integer = min(into.integer, value.integer)
    elif kind == _MAX:
        into.integer = max(into.integer, value.integer)
    else:
        return not __builtin_add_overflow(into.integer, value.integer, &into.integer)
    return True


cdef Py_ssize_t _run_up(
    int kind, int made_of, Py_ssize_t count, const int64_t *cells, const int64_t *values, const uint8_t *known,
    int64_t *counts, _Number *numbers, int64_t *made_counts, int64_t *made, uint8_t *has_one,
) noexcept nogil:
    """Add values to accumulators of numbers, one after the other, and write what these are then; returns how many: a
    sum of the next one has more than 64 bits.
    """
    cdef Py_ssize_t at
    cdef int64_t cell
    cdef _Number value, total
    for at in range(count):
        cell = cells[at]
        if known == NULL or known[at]:
            if kind != _COUNT:
                value.integer, total = values[at], numbers[cell]
                if not counts[cell]:
                    total = value
                elif not _combined(kind, made_of, &total, value):
                    return at
                numbers[cell] = total
            counts[cell] += 1
        has_one[at] = counts[cell] != 0
        made_counts[at] = counts[cell]
        if kind != _COUNT:
            made[at] = numbers[cell].integer  # or the bits of the float
    return count


cdef const int64_t[::1] _numbers_in(values):
    """Numbers of 64 bits in a buffer; floats as their bits."""
    return memoryview(values).cast("B").cast("q") if len(values) else _NO_INTEGERS


cdef class Accumulators:
    """The accumulators of one aggregate, by cell.

    Numbers are added here as long as all of them are integers of 64 bits, or all are floats, and None is left out; any
    other values, and accumulators with them, are objects, which the aggregate's own functions begin and add to. Beside
    each number is of how many values it is at least one, or 0: the accumulator is None.

    Args:
        kind: how numbers are added, one of `drift.columns.aggregates.Kind`; None of an aggregate of objects only.
        begin, add: of the aggregate, for values; `merge` of one whose accumulators are merged.
    """

    cdef int kind, made_of
    cdef object begin, add, merge
    cdef int64_t *counts
    cdef _Number *numbers
    cdef list objects
    cdef Py_ssize_t room

    def __init__(self, kind, begin=None, add=None, merge=None):
        self.kind = _OTHER if kind is None else _FOLDS[kind]
        self.begin, self.add, self.merge, self.objects = begin, add, merge, []
        self.made_of = _NOTHING

    def __dealloc__(self):
        PyMem_Free(self.counts)
        PyMem_Free(self.numbers)

    cdef int grow(self, Py_ssize_t room) except -1:
        cdef int64_t *counts = <int64_t *>PyMem_Realloc(self.counts, room * sizeof(int64_t))
        if counts == NULL:
            raise MemoryError
        self.counts = counts
        cdef _Number *numbers = <_Number *>PyMem_Realloc(self.numbers, room * sizeof(_Number))
        if numbers == NULL:
            raise MemoryError
        self.numbers = numbers
        memset(&self.counts[self.room], 0, (room - self.room) * sizeof(int64_t))
        memset(&self.numbers[self.room], 0, (room - self.room) * sizeof(_Number))
        self.objects.extend([None] * (room - len(self.objects)))
        self.room = room
        return 0

    cdef int widen(self) except -1:
        """Make objects of all numbers."""
        cdef Py_ssize_t at
        if self.made_of != _NOTHING and self.made_of != _OBJECTS:
            for at in range(self.room):
                self.objects[at] = self.get(at)
        self.made_of = _OBJECTS
        return 0

    cdef tuple numbers_of(self, tuple batch):
        """What `fold` takes, with a list of values as an array, if they are numbers that are added here, or None."""
        values, known, several = batch
        cdef array.array made
        cdef Py_ssize_t at = 0, count
        cdef int overflow = 0
        cdef bint are_floats
        cdef object value
        cdef bytearray is_known
        if type(values) is not list or self.kind == _COUNT or self.kind == _OTHER or self.made_of == _OBJECTS:
            return batch
        count = len(values)
        while at < count and (<list>values)[at] is None:
            at += 1
        if at == count:
            return (), b"", None  # what is no number yet stays so
        are_floats = type((<list>values)[at]) is float
        made, is_known = array.clone(_DOUBLES if are_floats else _INT64S, count, True), bytearray(b"\1") * count
        for at in range(count):
            value = (<list>values)[at]
            if value is None:
                is_known[at] = 0
            elif type(value) is not (float if are_floats else int):
                return batch
            elif are_floats:
                made.data.as_doubles[at] = <double>value
            else:
                made.data.as_longlongs[at] = PyLong_AsLongLongAndOverflow(value, &overflow)
                if overflow:
                    return batch
        return made, is_known, several

    cdef int fold(self, const int64_t[::1] cells, const uint8_t[::1] begins, tuple batch) except -1:
        """Add a value to each of these cells, or begin it anew.

        Args:
            batch: values, numbers of 64 bits in a buffer, or a list, of counts None, and an empty tuple where all are
                None and accumulators are no objects; a byte for each, 0 where it is None, or None where all are known; and of how
                many values each is the sum, or the least one and so on, None of one.

        Raises:
            OverflowError: they are of several, and not numbers that are added here.
        """
        values, known, several = batch
        cdef Py_ssize_t at, count = cells.shape[0]
        cdef const int64_t[::1] given_numbers, counts = _NO_INTEGERS if several is None else several
        cdef const uint8_t[::1] is_known = b"" if known is None else known
        cdef _Number value, made
        cdef int given = _OBJECTS
        cdef bint is_several = several is not None, are_known = known is None
        cdef int64_t cell
        cdef int kind = self.kind
        cdef int64_t *counted = self.counts
        cdef _Number *numbers = self.numbers
        if kind == _COUNT:
            for at in range(count):
                cell = cells[at]
                counted[cell] = (0 if begins[at] else counted[cell]) + (counts[at] if is_several else 1)
            return 0
        if type(values) is tuple:
            for at in range(count):
                if begins[at]:
                    counted[cells[at]], self.objects[cells[at]] = 0, None  # there may be one of before all were numbers
            return 0
        if len(values) != count or not are_known and is_known.shape[0] != count:
            raise ValueError(f"there are {count} items, and {len(values)} values")
        if type(values) is not list:
            given = _FLOATS if memoryview(values).format == "d" else _INTEGERS
        if self.made_of == _NOTHING:
            self.made_of = given
        elif self.made_of != given:
            self.widen()
        if self.made_of == _OBJECTS:
            if is_several:
                raise OverflowError
            return self.fold_objects(cells, begins, values if type(values) is list else values.tolist(), is_known, 0)
        given_numbers = _numbers_in(values)
        for at in range(count):
            cell = cells[at]
            if begins[at]:
                counted[cell] = 0
            if not are_known and not is_known[at]:
                continue
            value.integer, made = given_numbers[at], numbers[cell]
            if not counted[cell]:
                made = value
            elif not _combined(kind, given, &made, value):
                if is_several:
                    raise OverflowError
                self.widen()
                return self.fold_objects(cells, begins, values.tolist(), is_known, at)
            numbers[cell] = made
            counted[cell] += counts[at] if is_several else 1
        return 0

    cdef int fold_objects(
        self, const int64_t[::1] cells, const uint8_t[::1] begins, list values, const uint8_t[::1] is_known,
        Py_ssize_t start,
    ) except -1:
        cdef Py_ssize_t at
        cdef list objects = self.objects
        for at in range(start, len(values)):
            value = values[at] if not is_known.shape[0] or is_known[at] else None
            objects[cells[at]] = self.begin(value) if begins[at] else self.add(objects[cells[at]], value)
        return 0

    def running(self, codes, values, known, list before not None):
        """Add each value to the accumulator of its key, one after the other.

        Args:
            codes: the number of each value's key.
            values, known: see `fold`.
            before: the accumulator of each key; None of one that has none.

        Returns:
            The accumulator after each value, as `arrays` has them, or in a list; and the accumulators after all.
        """
        cdef const int64_t[::1] cells = codes, numbers = _NO_INTEGERS
        cdef const uint8_t[::1] is_known = b"" if known is None else known
        cdef Py_ssize_t at, cell, count = cells.shape[0], keys = len(before)
        cdef array.array counts = array.clone(_INT64S, count, False), each
        cdef bytearray have_one = bytearray(count)
        cdef uint8_t[::1] has_one = have_one
        cdef int kind = self.kind, given = _OBJECTS
        if kind != _COUNT and (len(values) != count or known is not None and is_known.shape[0] != count):
            raise ValueError(f"there are {count} items, and as many values are needed")
        if kind != _COUNT and type(values) is not list:
            given = _FLOATS if memoryview(values).format == "d" else _INTEGERS
            numbers = _numbers_in(values)
        self.grow(max(keys, 1))
        for cell in range(keys):
            if before[cell] is not None:
                self.put(cell, before[cell])
        if self.made_of == _NOTHING:
            self.made_of = given
        elif self.made_of != given:
            self.widen()
        each = array.clone(_DOUBLES if given == _FLOATS else _INT64S, count, False)
        for at in range(count):
            if not 0 <= cells[at] < keys:
                raise IndexError(f"of {keys} keys there is no number {cells[at]}")
        at = 0
        if count and (kind == _COUNT or self.made_of != _OBJECTS):
            at = _run_up(
                kind, given, count, &cells[0], NULL if kind == _COUNT else &numbers[0],
                NULL if known is None else &is_known[0], self.counts, self.numbers,
                <int64_t *>counts.data.as_longlongs, <int64_t *>each.data.as_longlongs, &has_one[0],
            )
        if at < count:
            self.widen()
            return self.running_objects(cells, values, is_known, keys, at, counts, each)
        return self.in_arrays(counts, each, have_one), [self.get(cell) for cell in range(keys)]

    cdef object running_objects(
        self, const int64_t[::1] cells, values, const uint8_t[::1] is_known, Py_ssize_t keys, Py_ssize_t start,
        array.array counts, array.array each,
    ):
        """What `running` returns, where accumulators have become objects before the value at `start`."""
        cdef Py_ssize_t at, cell
        cdef int were = _FLOATS if each.typecode == "d" else _INTEGERS
        cdef _Number number
        cdef list made = [], given = values if type(values) is list else values.tolist()
        for at in range(start):
            number.integer = each.data.as_longlongs[at]
            made.append(self.of_numbers(were, counts.data.as_longlongs[at], number))
        for at in range(start, cells.shape[0]):
            cell, accumulator = cells[at], self.objects[cells[at]]
            value = given[at] if not is_known.shape[0] or is_known[at] else None
            self.objects[cell] = self.begin(value) if accumulator is None else self.add(accumulator, value)
            made.append(self.objects[cell])
        return made, self.objects[:keys]

    cdef int merge_cells(self, Py_ssize_t into, Py_ssize_t cell, Py_ssize_t count, const int64_t *further) except -1:
        """Merge the accumulators of so many cells, from one on, each with that of the cell `further` says behind it."""
        cdef Py_ssize_t at, each
        cdef int64_t total
        cdef _Number number
        cdef object made
        if self.kind == _COUNT or self.made_of != _OBJECTS:
            total, number, each = self.counts[cell], self.numbers[cell], cell
            for at in range(count - 1):
                each = further[each]
                if not self.counts[each]:
                    continue
                if not total:
                    number = self.numbers[each]
                elif self.kind != _COUNT and not _combined(self.kind, self.made_of, &number, self.numbers[each]):
                    self.widen()
                    break
                total += self.counts[each]
            else:
                self.counts[into], self.numbers[into] = total, number
                return 0
        made = self.objects[cell]
        for at in range(count - 1):
            cell = further[cell]
            made = self.merge(made, self.objects[cell])
        self.objects[into] = made
        return 0

    cdef object get(self, Py_ssize_t cell):
        """An accumulator as the aggregate has it."""
        if self.kind != _COUNT and self.made_of == _OBJECTS:
            return self.objects[cell]
        return self.of_numbers(self.made_of, self.counts[cell], self.numbers[cell])

    cdef object of_numbers(self, int made_of, int64_t count, _Number number):
        cdef object value
        if self.kind == _COUNT:
            return count
        if not count:
            return None
        value = number.float if made_of == _FLOATS else number.integer
        return (count, value) if self.kind == _MEAN else value

    cdef Accumulators copied(self, const int64_t[::1] cells):
        """The accumulators of these cells, in this order."""
        cdef Py_ssize_t at, count = cells.shape[0]
        cdef Accumulators made = Accumulators(None, self.begin, self.add, self.merge)
        made.kind, made.made_of = self.kind, self.made_of
        if not count:
            return made
        made.grow(count)
        for at in range(count):
            made.counts[at], made.numbers[at] = self.counts[cells[at]], self.numbers[cells[at]]
        if self.kind != _COUNT and self.made_of == _OBJECTS:
            made.objects = [self.objects[cells[at]] for at in range(count)]
        return made

    cdef int restore(self, const int64_t[::1] cells, Accumulators copied) except -1:
        """Have these cells as they were; what has become objects since stays so."""
        cdef Py_ssize_t at
        for at in range(cells.shape[0]):
            if self.kind != _COUNT and self.made_of == _OBJECTS:
                self.objects[cells[at]] = copied.get(at)
            self.counts[cells[at]], self.numbers[cells[at]] = copied.counts[at], copied.numbers[at]
        return 0

    cdef int put(self, Py_ssize_t cell, accumulator) except -1:
        cdef object value = accumulator
        cdef int64_t counted = 1
        cdef int given = _OBJECTS
        if self.kind == _COUNT:
            self.counts[cell] = accumulator
            return 0
        if accumulator is None and self.kind != _OTHER:
            self.counts[cell], self.objects[cell] = 0, None
            return 0
        if self.kind == _MEAN:
            counted, value = accumulator
        if self.kind != _OTHER:
            if type(value) is float:
                given = _FLOATS
            elif type(value) is int and INT64_MIN <= value <= INT64_MAX:
                given = _INTEGERS
        if self.made_of == _NOTHING:
            self.made_of = given
        elif self.made_of != given:
            self.widen()
        if self.made_of == _OBJECTS:
            self.objects[cell] = accumulator
            return 0
        self.counts[cell] = counted
        if given == _FLOATS:
            self.numbers[cell].float = value
        else:
            self.numbers[cell].integer = value
        return 0

    cdef int move(self, Py_ssize_t start, Py_ssize_t stop) except -1:
        """Move the accumulators from `start` up to `stop` to the first cells."""
        if not self.room:
            return 0
        memmove(self.counts, &self.counts[start], (stop - start) * sizeof(int64_t))
        memmove(self.numbers, &self.numbers[start], (stop - start) * sizeof(_Number))
        if self.made_of == _OBJECTS:
            self.objects[: stop - start] = self.objects[start:stop]
            self.objects[stop - start :] = [None] * (len(self.objects) - (stop - start))
        return 0

    cdef object arrays(self, const int64_t[::1] cells):
        """The accumulators of these cells in one array, those of a mean in two, and a byte for each, 0 where it is None;
        or None for these bytes, where none is; None alone where they are objects.
        """
        cdef Py_ssize_t at, count = cells.shape[0]
        cdef array.array counts = array.clone(_INT64S, count, False)
        cdef array.array made = array.clone(_DOUBLES if self.made_of == _FLOATS else _INT64S, count, False)
        cdef bytearray have_one = bytearray(count)
        cdef uint8_t[::1] has_one = have_one
        if self.kind != _COUNT and self.made_of == _OBJECTS:
            return None
        for at in range(count):
            counts.data.as_longlongs[at] = self.counts[cells[at]]
            made.data.as_longlongs[at] = self.numbers[cells[at]].integer  # or the bits of the float
            has_one[at] = self.counts[cells[at]] != 0
        return self.in_arrays(counts, made, have_one)

    cdef tuple in_arrays(self, counts, made, bytearray have_one):
        arrays = [counts] if self.kind == _COUNT else [counts, made] if self.kind == _MEAN else [made]
        return arrays, have_one if 0 in have_one else None


cdef list _arrays_of(tuple columns, cells):
    """`Accumulators.arrays` of each; None where one has objects."""
    cdef Accumulators column
    cdef list made = []
    for column in columns:
        made.append(column.arrays(cells))
        if made[len(made) - 1] is None:
            return None
    return made


cdef object _accumulator(tuple columns, bint several, Py_ssize_t cell):
    """The accumulator of a cell, of one aggregate or of several."""
    cdef Accumulators column
    if several:
        return tuple([column.get(cell) for column in columns])
    column = columns[0]
    return column.get(cell)


cdef int _put_accumulator(tuple columns, bint several, Py_ssize_t cell, accumulator) except -1:
    cdef Accumulators column
    if not several:
        column = columns[0]
        return column.put(cell, accumulator)
    for column, each in zip(columns, accumulator):
        column.put(cell, each)
    return 0


cdef int _fold_each(tuple columns, cells, begins, list values) except -1:
    cdef Accumulators column
    for column, each in zip(columns, values):
        column.fold(cells, begins, each)
    return 0


cdef class _Before:
    """The numbers of a batch's keys, and what the accumulators of those with a cell were before it.

    Attributes:
        keys, cells: of the batch, and the cell of each, -1 of one that had none.
        known: the cells of the others.
        columns: `Accumulators.copied` of each aggregate.
    """

    cdef list keys, columns
    cdef array.array cells, known

    def __init__(self, dict cells not None, list keys not None, tuple columns not None):
        cdef Py_ssize_t at, count = 0
        cdef Accumulators column
        self.keys = keys
        self.cells = array.clone(_INT64S, len(keys), False)
        self.known = array.clone(_INT64S, len(keys), False)
        for at in range(len(keys)):
            cell = cells.get(keys[at])
            self.cells.data.as_longlongs[at] = -1 if cell is None else cell
            if cell is not None:
                self.known.data.as_longlongs[count] = cell
                count += 1
        array.resize(self.known, count)
        self.columns = []
        for column in columns:
            self.columns.append(column.copied(self.known))

    cdef int restore(self, tuple columns) except -1:
        cdef Accumulators column
        for column, copied in zip(columns, self.columns):
            column.restore(self.known, copied)
        return 0


cdef list _numbers_of_each(tuple columns, list values, bint is_empty):
    """The values of each aggregate, as numbers where they are.

    Args:
        is_empty: whether there are no accumulators.
    """
    cdef Accumulators column
    cdef list made = []
    for column, each in zip(columns, values):
        if is_empty:
            column.made_of = _NOTHING
        made.append(column.numbers_of(each))
    return made


def codes_of(keys):
    """The number of each key among the different ones, and these in the order in which they come first."""
    cdef dict numbers = {}
    cdef list each = keys if type(keys) is list else list(keys)
    cdef array.array codes = array.clone(_INT64S, len(each), False)
    cdef Py_ssize_t at
    cdef object number
    for at in range(len(each)):
        _fetch_ahead(each, at)
        number = numbers.get(each[at])
        if number is None:
            number = len(numbers)
            numbers[each[at]] = number
        codes.data.as_longlongs[at] = number
    return codes, list(numbers)


cdef struct _Numbered:
    int64_t items  # of the key so far
    int64_t first  # of its slices, and the last one
    int64_t last
    int64_t slices


cdef inline int _push(array.array cells, int64_t cell) except -1:
    cdef Py_ssize_t count = len(cells)
    array.resize_smart(cells, count + 1)
    cells.data.as_longlongs[count] = cell
    return 0


cdef class NumberedWindows:
    """The windows of keys with `size` items, one of which begins with each `every`-th, at most `size`, of them.

    A window is one slice, or several: each `every` is cut where windows begin and where they end. A slice is a cell of
    the accumulators, and says which one comes behind it.

    Args:
        empty: in place of the accumulator of the last slice, where there is none.
        columns: the accumulators of each aggregate; `several`: whether the accumulator of a slice is a tuple.
    """

    cdef int64_t size, every, free
    cdef object empty
    cdef tuple columns
    cdef bint several
    cdef dict cells  # by key
    cdef list keys  # by cell
    cdef _Numbered *numbers  # by cell
    cdef int64_t *behind  # by slice; of those that are free the next free one
    cdef Py_ssize_t room, slices_room
    cdef tuple batch  # what `keep` and `take_back` need of the last one

    def __init__(self, int64_t size, int64_t every, empty, columns, *, several):
        if not 1 <= every <= size:
            raise ValueError(f"no window has {size} items of which one begins each {every}")
        self.size, self.every, self.empty, self.columns, self.several = size, every, empty, tuple(columns), several
        self.cells, self.keys, self.free = {}, [], -1

    def __dealloc__(self):
        PyMem_Free(self.numbers)
        PyMem_Free(self.behind)

    def __len__(self):
        return len(self.keys)

    cdef int have_room(self, Py_ssize_t room) except -1:
        cdef _Numbered *numbers = <_Numbered *>PyMem_Realloc(self.numbers, room * sizeof(_Numbered))
        if numbers == NULL:
            raise MemoryError
        self.numbers, self.room = numbers, room
        return 0

    cdef int64_t new_cell(self, key) except -1:
        if len(self.keys) == self.room:
            self.have_room(max(64, 2 * self.room))
        self.numbers[len(self.keys)] = _Numbered(0, 0, 0, 0)
        self.keys.append(key)
        return len(self.keys) - 1

    cdef int64_t new_slice(self) except -1:
        cdef Py_ssize_t at, room = max(64, 2 * self.slices_room)
        cdef int64_t *behind
        cdef int64_t made
        cdef Accumulators column
        if self.free < 0:
            for column in self.columns:
                column.grow(room)
            behind = <int64_t *>PyMem_Realloc(self.behind, room * sizeof(int64_t))
            if behind == NULL:
                raise MemoryError
            self.behind = behind
            for at in range(room - 1, self.slices_room - 1, -1):
                self.release(at)
            self.slices_room = room
        made = self.free
        self.free = self.behind[made]
        return made

    cdef void release(self, int64_t slice) noexcept:
        self.behind[slice] = self.free
        self.free = slice

    cdef int append(self, int64_t cell, int64_t slice) except -1:
        cdef _Numbered *number = &self.numbers[cell]
        if number.slices:
            self.behind[number.last] = slice
        else:
            number.first = slice
        number.last = slice
        number.slices += 1
        return 0

    def add(self, codes, list keys not None, list values not None, bint in_arrays):
        """Add items in order. Then `keep` or `take_back` is called.

        Args:
            codes: of each item the number of its key among `keys`, identities, each of them once.
            values: for each aggregate, see `Accumulators.fold`.
            in_arrays: whether accumulators are wanted in arrays, see `Accumulators.arrays`.

        Returns:
            A byte for each item, 1 if a window ends with it; of these windows how many items the key had in all, and
            the accumulators, in arrays and else in a list.
        """
        cdef const int64_t[::1] of_key = codes
        cdef Py_ssize_t at, known, each, count = of_key.shape[0], windows = 0, gone = 0
        cdef int64_t cut = self.size % self.every if self.size > self.every else 0
        cdef int64_t skipped = 2 if cut else 1, last_into = (self.size - 1) % self.every, into, slice
        cdef _Before before = _Before(self.cells, keys, ())
        cdef bytearray selected = bytearray(count), begins = bytearray(count)
        cdef uint8_t[::1] is_last = selected, is_first = begins
        cdef array.array array_of_slices = array.clone(_INT64S, count, False), ends = array.copy(array_of_slices)
        cdef array.array made = array.copy(ends), lengths = array.copy(ends), left = array.clone(_INT64S, 0, False)
        cdef int64_t[::1] slices = array_of_slices, end_of = ends, made_of = made, length_of = lengths
        cdef array.array cells = array.copy(before.cells)
        cdef int64_t[::1] cell_of = cells
        cdef bytes saved = PyBytes_FromStringAndSize(NULL, len(before.known) * sizeof(_Numbered))
        cdef _Numbered *numbers = <_Numbered *>PyBytes_AS_STRING(saved)
        cdef _Numbered *number
        cdef Accumulators column
        cdef list opened = [], over = []
        known = 0
        for at in range(len(before.known)):
            numbers[at] = self.numbers[<int64_t>before.known.data.as_longlongs[at]]
            known += numbers[at].slices > 0
        array.resize(left, known)
        known = 0
        for at in range(len(before.known)):
            if numbers[at].slices:
                left.data.as_longlongs[known] = numbers[at].last
                known += 1
        self.batch = before, len(self.keys), saved, left, [column.copied(left) for column in self.columns], opened, over
        values = _numbers_of_each(self.columns, values, not self.keys)
        try:
            for at in range(len(keys)):
                if cell_of[at] < 0:
                    cell_of[at] = self.new_cell(keys[at])
            for at in range(count):
                number = &self.numbers[cell_of[of_key[at]]]
                into = number.items % self.every
                number.items += 1
                if into == 0 or into == cut or not number.slices:
                    slice = self.new_slice()
                    opened.append(slice)
                    self.append(cell_of[of_key[at]], slice)
                    is_first[at] = 1
                slices[at] = number.last
                if into == last_into and number.items >= self.size:
                    is_last[at] = 1
                    end_of[windows], made_of[windows], length_of[windows] = number.items, number.first, number.slices
                    windows += 1
                    for each in range(min(skipped, number.slices)):
                        over.append(number.first)
                        number.first = self.behind[number.first]
                        number.slices -= 1
            _fold_each(self.columns, array_of_slices, begins, values)
            if self.every < self.size:
                self.merge(made_of[:windows], length_of, over, opened)
            ends, made = ends[:windows], made[:windows]
            arrays = _arrays_of(self.columns, made) if in_arrays else None
            if arrays is not None:
                return bytes(selected), ends, arrays, True
            return bytes(selected), ends, [_accumulator(self.columns, self.several, slice) for slice in made], False
        except BaseException:
            self.take_back()
            raise

    cdef int merge(self, int64_t[::1] made, int64_t[::1] lengths, list over, list opened) except -1:
        """Merge the slices of windows into slices that are over with the batch."""
        cdef Py_ssize_t at
        cdef int64_t into
        cdef Accumulators column
        for at in range(made.shape[0]):
            into = self.new_slice()
            opened.append(into)
            over.append(into)
            for column in self.columns:
                column.merge_cells(into, made[at], lengths[at], self.behind)
            made[at] = into
        return 0

    def take_back(self):
        """Undo the last `add`."""
        cdef _Before before
        cdef array.array left
        cdef bytes saved
        cdef Accumulators column
        cdef Py_ssize_t at
        before, count, saved, left, accumulators, opened, _ = self.batch
        for at in range(len(before.known)):
            self.numbers[<int64_t>before.known.data.as_longlongs[at]] = (<_Numbered *>PyBytes_AS_STRING(saved))[at]
        del self.keys[count:]
        for column, each in zip(self.columns, accumulators):
            column.restore(left, each)
        for slice in opened:
            self.release(slice)
        self.batch = None

    def keep(self):
        """Keep what the last `add` has made; the slices before the open windows go."""
        cdef Py_ssize_t at
        _, count, _, _, _, _, over = self.batch
        for at in range(count, len(self.keys)):
            self.cells[self.keys[at]] = at
        for slice in over:
            self.release(slice)
        self.batch = None

    def absorb(self, key, tuple state not None):
        """Take the state of a key: how many items it had, the accumulators of the full slices from the first window on
        that is not full, and that of the last slice, or `empty`.
        """
        cdef int64_t cell = self.new_cell(key), slice
        items, full, last = state
        self.numbers[cell].items = items
        for accumulator in full if last is self.empty else (*full, last):
            slice = self.new_slice()
            self.append(cell, slice)
            _put_accumulator(self.columns, self.several, slice, accumulator)
        self.cells[key] = cell

    def before(self):
        """What the keys of the last `add`, which is not kept yet, had before it, in a table of its own; nothing is
        added there.
        """
        cdef NumberedWindows made = NumberedWindows(self.size, self.every, self.empty, (), several=self.several)
        cdef _Before before
        cdef Accumulators column, copied
        cdef bytes saved
        cdef array.array left, slices, lasts
        cdef const _Numbered *number
        cdef int64_t slice
        cdef Py_ssize_t at, each, count, total = 0, known = 0
        before, _, saved, left, accumulators, _, _ = self.batch
        number, count = <_Numbered *>PyBytes_AS_STRING(saved), len(before.known)
        for at in range(count):
            total += number[at].slices
        slices, lasts = array.clone(_INT64S, total, False), array.clone(_INT64S, len(left), False)
        made.have_room(max(count, 1))
        total = 0
        for at in range(count):
            made.keys.append(self.keys[<int64_t>before.known.data.as_longlongs[at]])
            made.numbers[at] = number[at]
            slice, made.numbers[at].first = number[at].first, total
            for each in range(number[at].slices):
                slices.data.as_longlongs[total] = slice
                slice = self.behind[slice]
                total += 1
            if number[at].slices:
                lasts.data.as_longlongs[known] = total - 1
                known += 1
        made.columns = tuple([column.copied(slices) for column in self.columns])
        for column, copied in zip(made.columns, accumulators):
            column.restore(lasts, copied)
        made.behind = <int64_t *>PyMem_Realloc(NULL, max(len(slices), 1) * sizeof(int64_t))
        if made.behind == NULL:
            raise MemoryError
        for at in range(len(slices)):
            made.behind[at] = at + 1
        return made

    def clear(self):
        """Forget all keys."""
        cdef Py_ssize_t at
        self.cells.clear()
        self.keys.clear()
        self.free = -1
        for at in range(self.slices_room - 1, -1, -1):
            self.release(at)

    def entries(self, keys=None):
        """The states of those of these keys that are here, by key, as they are for `absorb`; without keys of all."""
        cdef dict found = {}
        cdef int64_t slice
        cdef _Numbered number
        each = enumerate(self.keys) if keys is None else [(self.cells[key], key) for key in keys if key in self.cells]
        for cell, key in each:
            number = self.numbers[<int64_t>cell]
            accumulators, slice = [], number.first
            for _ in range(number.slices):
                accumulators.append(_accumulator(self.columns, self.several, slice))
                slice = self.behind[slice]
            last = accumulators.pop() if accumulators else self.empty
            found[key] = number.items, tuple(accumulators), last
        return found


cdef struct _Waiting:
    int64_t due  # at or before the time of the session's timer
    int64_t cell
    int64_t serial


cdef struct _Session:
    int64_t first  # times of the first item and of the last one
    int64_t last
    int64_t due  # time of the timer
    int64_t hops  # of a free one the next free one
    int64_t serial  # of the sessions of a cell; 0 of a free one, which differs from that of all that wait
    int64_t size  # of the timer's meta


cdef class Sessions:
    """The open sessions of keys.

    Args:
        gap: see `drift.operators.ProlongsWindows`.
        timers: suffix of the grouping, ending of the map of timers, and phase, of which metas of timers are made.
        hops_max: a timer that was set so often is not set again.
        columns: the accumulators of each aggregate; `several`: whether the accumulator of a session is a tuple.
    """

    cdef int64_t gap, hops_max, serial, free
    cdef bytes suffix, ending
    cdef int phase
    cdef tuple columns
    cdef bint several
    cdef dict cells  # by key
    cdef list keys, notes  # by cell; a note that is the key is None
    cdef _Session *sessions
    cdef uint8_t *timers  # the metas of timers, `width` bytes for each cell
    cdef Py_ssize_t room, width
    cdef _Waiting *heap
    cdef Py_ssize_t waiting, heap_room
    cdef uint8_t *scratch
    cdef Py_ssize_t scratch_room
    cdef tuple batch  # what `keep` and `take_back` need of the last one

    def __init__(self, gap, tuple timers not None, hops_max, columns, *, several):
        self.suffix, self.ending, self.phase = timers
        self.gap, self.hops_max, self.columns, self.several = gap, hops_max, tuple(columns), several
        self.cells, self.keys, self.notes, self.free = {}, [], [], -1

    def __dealloc__(self):
        PyMem_Free(self.sessions)
        PyMem_Free(self.timers)
        PyMem_Free(self.heap)
        PyMem_Free(self.scratch)

    def __len__(self):
        return len(self.cells)

    # Cells.

    cdef int64_t new_cell(self) except -1:
        cdef Py_ssize_t room, at
        cdef int64_t cell
        cdef _Session *sessions
        cdef Accumulators column
        if self.free < 0:
            room = max(64, 2 * self.room)
            sessions = <_Session *>PyMem_Realloc(self.sessions, room * sizeof(_Session))
            if sessions == NULL:
                raise MemoryError
            self.sessions = sessions
            self.lay_out(room, self.width)
            for column in self.columns:
                column.grow(room)
            for each in (self.keys, self.notes):
                each.extend([None] * (room - len(each)))
            for at in range(room - 1, self.room - 1, -1):
                self.sessions[at].serial, self.sessions[at].hops, self.free = 0, self.free, at
            self.room = room
        cell = self.free
        self.free = self.sessions[cell].hops
        if self.free >= 0:
            self.prefetch(self.free)
        return cell

    cdef inline void prefetch(self, int64_t cell) noexcept:
        """A session is looked at soon; of many, each would be waited for."""
        _fetch(&self.sessions[cell])
        _fetch(self.timers + cell * self.width)

    cdef int lay_out(self, Py_ssize_t room, Py_ssize_t width) except -1:
        """Have room for timers of so many cells and bytes."""
        cdef Py_ssize_t at
        cdef uint8_t *timers = <uint8_t *>PyMem_Realloc(self.timers, room * width + 1)
        if timers == NULL:
            raise MemoryError
        if width > self.width:
            for at in range(self.room - 1, -1, -1):
                memmove(timers + at * width, timers + at * self.width, self.width)
        self.timers, self.width = timers, width
        return 0

    cdef int release(self, int64_t cell) except -1:
        self.keys[cell] = self.notes[cell] = None
        self.sessions[cell].serial, self.sessions[cell].hops, self.free = 0, self.free, cell
        return 0

    cdef int begin(self, int64_t cell, key, note, int64_t first, int64_t last, int64_t due, int64_t hops) except -1:
        """Begin a session, whose timer is there, and is not waited for yet."""
        self.keys[cell] = key
        if type(key) is bytes:
            self.notes[cell] = note
        self.serial += 1
        self.sessions[cell] = _Session(first, last, due, hops, self.serial, self.sessions[cell].size)
        return 0

    # Timers.

    cdef int put_timer(self, int64_t cell, const uint8_t *meta, Py_ssize_t size) except -1:
        if size > self.width:
            self.lay_out(self.room, (size + 15) & ~<Py_ssize_t>15)
        _copy(self.timers + cell * self.width, meta, size)
        self.sessions[cell].size = size
        return 0

    cdef int set_timer(
        self, int64_t cell, const uint8_t *row, Py_ssize_t size, bytes tail, int64_t due
    ) except -1:
        """The timer of a cell is what this meta sets; see `drift_graph.meta.later_meta`."""
        cdef Py_ssize_t more = PyBytes_GET_SIZE(tail), own = PyBytes_GET_SIZE(self.suffix)
        cdef Py_ssize_t ending = PyBytes_GET_SIZE(self.ending), total = size + more + own
        cdef Py_ssize_t room = 2 * (total + ending) + 64
        cdef uint8_t *parent
        cdef uint8_t *made
        cdef uint8_t *write
        if room > self.scratch_room:
            parent = <uint8_t *>PyMem_Realloc(self.scratch, room)
            if parent == NULL:
                raise MemoryError
            self.scratch, self.scratch_room = parent, room
        parent, made = self.scratch, self.scratch + total + ending
        _copy(parent, row, size)
        _copy(parent + size, <const uint8_t *>PyBytes_AS_STRING(tail), more)
        _copy(parent + size + more, <const uint8_t *>PyBytes_AS_STRING(self.suffix), own)
        _copy(parent + total, <const uint8_t *>PyBytes_AS_STRING(self.ending), ending)
        if total <= _LATER_MARK_AT:
            raise ValueError(f"{bytes(parent[:total])!r} is no meta")
        write = _write_later(made, parent, total, total + ending, <uint64_t>due ^ _SIGN_BIT, self.phase, 0, 0)
        if write == NULL:
            raise ValueError(f"{bytes(parent[:total])!r} is no meta")
        _copy(write, <const uint8_t *>PyBytes_AS_STRING(self.ending), ending)
        return self.put_timer(cell, made, write + ending - made)

    cdef bytes timer(self, int64_t cell):
        return PyBytes_FromStringAndSize(<char *>self.timers + cell * self.width, self.sessions[cell].size)

    cdef bint move(self, int64_t cell, int64_t due) except -1:
        """Set the timer of a session again, for a later time; False if that was done too often."""
        if self.sessions[cell].hops >= self.hops_max:
            return False
        self.set_timer(cell, self.timers + cell * self.width, self.sessions[cell].size, b"", due)
        self.sessions[cell].due = due
        self.sessions[cell].hops += 1
        return True

    cdef int have_room(self, Py_ssize_t more) except -1:
        """Have room for so many more that wait."""
        cdef Py_ssize_t room = max(self.waiting + more, 2 * self.heap_room)
        cdef _Waiting *heap
        if self.waiting + more > self.heap_room:
            heap = <_Waiting *>PyMem_Realloc(self.heap, room * sizeof(_Waiting))
            if heap == NULL:
                raise MemoryError
            self.heap, self.heap_room = heap, room
        return 0

    cdef void wait(self, int64_t cell) noexcept:
        """Wait for the timer of a session, for which there is room."""
        cdef Py_ssize_t at = self.waiting
        cdef _Waiting each = _Waiting(self.sessions[cell].due, cell, self.sessions[cell].serial)
        self.waiting += 1
        while at > 0 and self.heap[(at - 1) // 2].due > each.due:
            self.heap[at] = self.heap[(at - 1) // 2]
            at = (at - 1) // 2
        self.heap[at] = each

    cdef int64_t first_waiting(self) noexcept:
        """The cell of the first session by the time of its timer; -1 if there is none."""
        cdef _Waiting first
        while self.waiting:
            first = self.heap[0]
            if self.sessions[first.cell].serial != first.serial:  # else each reuse of a cell would leave one that waits
                self.pop()
            elif self.sessions[first.cell].due != first.due:
                first.due = self.sessions[first.cell].due
                self.sink(first)
            else:
                return first.cell
        return -1

    cdef void pop(self) noexcept:
        self.waiting -= 1
        self.sink(self.heap[self.waiting])

    cdef void sink(self, _Waiting each) noexcept:
        """Put what waits in the place of the first."""
        cdef Py_ssize_t at = 0, child = 1
        while child < self.waiting:
            if child + 1 < self.waiting and self.heap[child + 1].due < self.heap[child].due:
                child += 1
            if self.heap[child].due >= each.due:
                break
            self.heap[at] = self.heap[child]
            at, child = child, 2 * child + 1
        self.heap[at] = each

    def least(self):
        """The time of the first timer; None if there is none."""
        cdef int64_t cell = self.first_waiting()
        return None if cell < 0 else self.sessions[cell].due

    # Items.

    def add(self, Metas metas not None, codes, list keys not None, list values not None, payloads, note_of):
        """Add items in order: the cells of the sessions that have ended; None, and nothing has changed, where a timer
        was set too often. Then `keep` or `take_back` is called.

        Args:
            codes: of each item the number of its key among `keys`, identities, each of them once.
            values: for each aggregate, see `Accumulators.fold`.
            payloads: of which `note_of` makes the note of a key that is no identity of itself.
        """
        cdef const int64_t[::1] of_key = codes, times = metas.times()
        cdef Py_ssize_t at, count = len(metas)
        cdef _Before before
        cdef array.array each_cell = array.clone(_INT64S, count, False), over = array.clone(_INT64S, 0, False)
        cdef array.array opened = array.clone(_INT64S, 0, False)
        cdef bytearray begins = bytearray(count)
        cdef int64_t[::1] cells = each_cell, current
        cdef uint8_t[::1] is_first = begins
        cdef int64_t cell, until, due
        cdef _Session *session
        values = _numbers_of_each(self.columns, values, not self.cells)
        before = _Before(self.cells, keys, self.columns)
        self.batch = before, array.copy(before.cells), over, opened, self.without_accumulators(before.known)
        current = self.batch[1]
        try:
            for at in range(count):
                if at + _AHEAD < count and current[of_key[at + _AHEAD]] >= 0:
                    self.prefetch(current[of_key[at + _AHEAD]])
                cell = current[of_key[at]]
                if cell >= 0:
                    session = &self.sessions[cell]
                    until = session.last + (self.gap - 1)
                    due = min(until, times[at])
                    if session.due < due and not self.move(cell, until):
                        self.take_back()
                        return None
                    if times[at] <= until:
                        session.last = times[at]
                        cells[at] = cell
                        continue
                    _push(over, cell)
                cell = self.new_cell()
                _push(opened, cell)
                key = keys[of_key[at]]
                due = times[at] + (self.gap - 1)
                self.set_timer(cell, metas.rows.row(at), metas.rows.size(at), metas.tail, due)
                note = note_of(payloads[at]) if type(key) is bytes else None
                self.begin(cell, key, note, times[at], times[at], due, 1)
                current[of_key[at]] = cells[at] = cell
                is_first[at] = 1
            _fold_each(self.columns, each_cell, begins, values)
            self.have_room(len(keys))
        except BaseException:
            self.take_back()
            raise
        return over

    cdef Sessions without_accumulators(self, const int64_t[::1] cells):
        """The sessions of these cells in a table of their own, in whose first cells they are."""
        cdef Py_ssize_t at, count = cells.shape[0]
        cdef Sessions made = Sessions(self.gap, (self.suffix, self.ending, self.phase), self.hops_max, (),
                                      several=self.several)
        if not count:
            return made
        made.sessions = <_Session *>PyMem_Realloc(NULL, count * sizeof(_Session))
        if made.sessions == NULL:
            raise MemoryError
        made.lay_out(count, self.width)
        made.room = count
        for at in range(count):
            made.sessions[at] = self.sessions[cells[at]]
            memcpy(made.timers + at * self.width, self.timers + cells[at] * self.width, self.width)
        return made

    def before(self):
        """What the keys of the last `add`, which is not kept yet, had before it: sessions in a table of their own, in
        whose first cells they are, and none of which ends there.
        """
        cdef _Before before = self.batch[0]
        return self.with_keys(self.batch[4], before.known, before.columns)

    def before_fired(self, const int64_t[::1] over, const int64_t[::1] moved, list timers not None):
        """The same of the last `fire`, before `end`; a session that had moved and ended is last as it was.

        Args:
            over, moved, timers: what it returned.
        """
        cdef array.array cells = array.clone(_INT64S, over.shape[0] + moved.shape[0], False)
        cdef Py_ssize_t at, ended = over.shape[0]
        cdef Accumulators column
        cdef Sessions made
        for at in range(len(cells)):
            cells.data.as_longlongs[at] = over[at] if at < ended else moved[at - ended]
        made = self.without_accumulators(cells)
        for at in range(ended, len(cells)):
            timer = timers[at - ended]
            made.put_timer(at, <const uint8_t *>PyBytes_AS_STRING(timer), PyBytes_GET_SIZE(timer))
        return self.with_keys(made, cells, [column.copied(cells) for column in self.columns])

    cdef Sessions with_keys(self, Sessions made, const int64_t[::1] cells, list columns):
        cdef Py_ssize_t at
        made.columns, made.keys = tuple(columns), self.keys_of(cells)
        made.notes = [self.notes[cells[at]] for at in range(cells.shape[0])]
        return made

    def take_back(self):
        """Undo the last `add`."""
        cdef int64_t cell
        cdef Py_ssize_t at
        cdef Sessions copied
        cdef _Before before
        before, _, _, opened, copied = self.batch
        for cell in opened:
            self.release(cell)
        for at in range(len(before.known)):
            cell = before.known.data.as_longlongs[at]
            self.sessions[cell] = copied.sessions[at]
            memcpy(self.timers + cell * self.width, copied.timers + at * copied.width, copied.width)
        before.restore(self.columns)
        self.batch = None

    def keep(self):
        """Keep what the last `add` has made; the sessions that have ended go, and timers of new ones are waited for."""
        cdef _Before before
        cdef array.array found, over
        cdef Py_ssize_t at
        before, found, over, _, _ = self.batch
        for at in range(len(before.keys)):
            if found.data.as_longlongs[at] != before.cells.data.as_longlongs[at]:
                self.cells[before.keys[at]] = found.data.as_longlongs[at]
                self.wait(found.data.as_longlongs[at])
        for at in range(len(over)):
            self.release(over.data.as_longlongs[at])
        self.batch = None

    def fire(self, bytes bound not None):
        """Fire the timers below a bound: the cells of sessions that have ended, and those of sessions whose timer has
        set itself again, with its meta before. Then `end` or `go_on` is called.
        """
        cdef array.array over = array.clone(_INT64S, 0, False), above = array.clone(_INT64S, 0, False)
        cdef array.array moved = array.clone(_INT64S, 0, False)
        cdef list timers = []
        cdef int64_t last_time = INT64_MIN, cell, until
        if PyBytes_GET_SIZE(bound) >= 8:  # else it is below all timers
            last_time = <int64_t>(_read_big(<const uint8_t *>PyBytes_AS_STRING(bound)) ^ _SIGN_BIT)
        while True:
            cell = self.first_waiting()
            if cell < 0 or self.sessions[cell].due > last_time:
                break
            if self.sessions[cell].due == last_time and self.timer(cell) >= bound:
                self.pop()
                _push(above, cell)
                continue
            until = self.sessions[cell].last + (self.gap - 1)
            if until <= self.sessions[cell].due:
                self.pop()
                _push(over, cell)
                continue
            timer = self.timer(cell)
            if self.move(cell, until):  # it waits for its new time, see `first_waiting`
                timers.append(timer)
                _push(moved, cell)
            else:
                self.pop()
                _push(above, cell)
        self.go_on(above)
        return over, moved, timers

    def go_on(self, const int64_t[::1] cells):
        """These sessions wait for their timers again."""
        cdef Py_ssize_t at
        for at in range(cells.shape[0]):
            self.wait(cells[at])

    def end(self, const int64_t[::1] cells):
        """Forget these sessions."""
        cdef Py_ssize_t at
        for at in range(cells.shape[0]):
            del self.cells[self.keys[cells[at]]]
            self.release(cells[at])

    # What sessions are.

    def timers_of(self, const int64_t[::1] cells):
        """The metas of the timers of sessions."""
        cdef Py_ssize_t at, size, total = 0
        cdef _Rows rows
        for at in range(cells.shape[0]):
            total += self.sessions[cells[at]].size
        rows = _rows(cells.shape[0], -1, total)
        total = 0
        for at in range(cells.shape[0]):
            size = self.sessions[cells[at]].size
            _copy(rows.data + total, self.timers + cells[at] * self.width, size)
            total += size
            rows.ends[at] = total
        _with_one_width(rows)
        return _metas(rows, b"", _UNKNOWN)

    def in_order(self, const int64_t[::1] cells):
        """The cells of sessions in the order of their timers, and the metas of these."""
        cdef Py_ssize_t at
        cdef array.array made = array.clone(_INT64S, cells.shape[0], False)
        order, timers = self.timers_of(cells).sorted()
        cdef const int64_t[::1] places = order
        for at in range(cells.shape[0]):
            made.data.as_longlongs[at] = cells[places[at]]
        return made, timers

    def keys_of(self, const int64_t[::1] cells):
        cdef Py_ssize_t at
        return [self.keys[cells[at]] for at in range(cells.shape[0])]

    def all_keys(self):
        """The keys of all cells of a table made by `before` or `before_fired`."""
        return self.keys

    def cells_of(self, keys=None):
        """The cells of those of these keys that have a session; without keys of all."""
        found = [cell for cell in map(self.cells.get, self.cells if keys is None else keys) if cell is not None]
        return _python_array("q", found)

    def arrays(self, const int64_t[::1] cells):
        """First and last times of sessions, and `Accumulators.arrays` of each aggregate; None where one has objects."""
        cdef Py_ssize_t at, count = cells.shape[0]
        cdef array.array firsts = array.clone(_INT64S, count, False), lasts = array.clone(_INT64S, count, False)
        cdef list made = _arrays_of(self.columns, cells)
        if made is None:
            return None
        for at in range(count):
            firsts.data.as_longlongs[at] = self.sessions[cells[at]].first
            lasts.data.as_longlongs[at] = self.sessions[cells[at]].last
        return firsts, lasts, made

    def states(self, const int64_t[::1] cells):
        """The parts of the states of sessions as the process has them, and the notes of their timers."""
        cdef Py_ssize_t at
        cdef int64_t cell
        cdef list firsts = [], lasts = [], accumulators = [], notes = []
        for at in range(cells.shape[0]):
            cell = cells[at]
            firsts.append(self.sessions[cell].first)
            lasts.append(self.sessions[cell].last)
            accumulators.append(_accumulator(self.columns, self.several, cell))
            key = self.keys[cell]
            notes.append(self.notes[cell] if type(key) is bytes else key)
        return firsts, lasts, accumulators, notes

    def absorb(self, key, state, bytes timer not None, time, hops, note):
        """Take a session, of which the process has this state."""
        cdef Accumulators column
        cdef int64_t cell
        first, last, accumulator = state
        if not self.cells:
            for column in self.columns:
                column.made_of = _NOTHING
        cell = self.new_cell()
        _put_accumulator(self.columns, self.several, cell, accumulator)
        self.put_timer(cell, <const uint8_t *>PyBytes_AS_STRING(timer), PyBytes_GET_SIZE(timer))
        self.begin(cell, key, note, first, last, time, hops)
        self.have_room(1)
        self.wait(cell)
        self.cells[key] = cell


cdef class Windows:
    """The open windows of keys, which all end at one time; their cells are the first ones, in the order of their first
    items.

    Args:
        columns: the accumulators of each aggregate; `several`: whether the accumulator of a window is a tuple.
    """

    cdef tuple columns
    cdef bint several
    cdef dict cells  # by key
    cdef list keys, notes  # by cell
    cdef Py_ssize_t room
    cdef tuple batch  # what `keep` and `take_back` need of the last one

    def __init__(self, columns, *, several):
        self.columns, self.several = tuple(columns), several
        self.cells, self.keys, self.notes = {}, [], []

    def __len__(self):
        return len(self.keys)

    cdef Py_ssize_t new_cell(self, key, note) except -1:
        cdef Accumulators column
        cdef Py_ssize_t cell = len(self.keys)
        if cell == self.room:
            for column in self.columns:
                column.grow(max(64, 2 * self.room))
            self.room = max(64, 2 * self.room)
        self.keys.append(key)
        self.notes.append(note)
        return cell

    def add(self, codes, list keys not None, list values not None, list stops not None, payloads, note_of):
        """Add items in order. Then `keep` or `take_back` is called.

        Args:
            codes: of each item the number of its key among `keys`, identities, each of them once.
            values: for each aggregate, see `Accumulators.fold`.
            stops: where the items of each end stop, one end after the other; the first is that of the open windows.
            payloads: of which `note_of` makes the note of a key that is no identity of itself.

        Returns:
            The first item of each window that is new, and of each end its first cell, and the one after all.
        """
        cdef const int64_t[::1] of_key = codes
        cdef Py_ssize_t at = 0, stop, opened_at = len(self.keys), first = 0, count = of_key.shape[0]
        cdef _Before before
        cdef array.array each_cell = array.clone(_INT64S, count, False), firsts = array.clone(_INT64S, count, False)
        cdef bytearray begins = bytearray(count)
        cdef int64_t[::1] current, cells = each_cell, of_first = firsts
        cdef uint8_t[::1] is_first = begins
        cdef int64_t cell, opened = 0
        cdef list starts = [0]
        values = _numbers_of_each(self.columns, values, not self.keys)
        if not stops or stops[len(stops) - 1] != count:
            raise ValueError(f"of {count} items the last end stops at {stops}")
        before = _Before(self.cells, keys, self.columns)
        self.batch = before, array.copy(before.cells), starts, opened_at, each_cell
        current = self.batch[1]
        try:
            for stop in stops:
                while at < stop:
                    cell = current[of_key[at]]
                    if cell < first:
                        key = keys[of_key[at]]
                        cell = self.new_cell(key, note_of(payloads[at]) if type(key) is bytes else key)
                        current[of_key[at]] = cell
                        is_first[at] = 1
                        of_first[opened] = at
                        opened += 1
                    cells[at] = cell
                    at += 1
                first = len(self.keys)
                starts.append(first)
            _fold_each(self.columns, each_cell, begins, values)
        except BaseException:
            self.take_back()
            raise
        return firsts[:opened], starts

    def cells_of_items(self):
        """The cell of each item of the last `add`."""
        return self.batch[4]

    def take_back(self):
        """Undo the last `add`."""
        cdef _Before before
        before, _, _, opened_at, _ = self.batch
        del self.keys[opened_at:], self.notes[opened_at:]
        before.restore(self.columns)
        self.batch = None

    def keep(self):
        """Keep what the last `add` has made; the windows of all ends but the last go."""
        cdef Accumulators column
        cdef _Before before
        cdef array.array found
        cdef Py_ssize_t at, first
        cdef int64_t cell
        before, found, starts, _, _ = self.batch
        self.batch = None
        first = starts[len(starts) - 2]
        if first:
            for column in self.columns:
                column.move(first, len(self.keys))
            del self.keys[:first], self.notes[:first]
            self.cells.clear()
        for at in range(len(before.keys)):
            cell = found.data.as_longlongs[at]
            if cell >= first and (first or cell != before.cells.data.as_longlongs[at]):
                self.cells[before.keys[at]] = cell - first

    def before(self):
        """What the keys of the last `add`, which is not kept yet, had before it: a table as `copied` has it, and the
        cells here.
        """
        cdef _Before before = self.batch[0]
        cdef Windows made = Windows(before.columns, several=self.several)
        made.keys, made.notes = self.keys_of(before.known), [self.notes[cell] for cell in before.known]
        return made, before.known

    def copied(self, const int64_t[::1] cells):
        """The windows of these cells in a table of their own, in whose first cells they are; nothing is added there."""
        cdef Py_ssize_t at
        cdef Accumulators column
        cdef Windows made = Windows([column.copied(cells) for column in self.columns], several=self.several)
        made.keys = [self.keys[cells[at]] for at in range(cells.shape[0])]
        made.notes = [self.notes[cells[at]] for at in range(cells.shape[0])]
        return made

    def clear(self):
        """Forget all windows."""
        cdef Accumulators column
        for column in self.columns:
            column.move(0, 0)
        self.cells.clear()
        del self.keys[:], self.notes[:]

    def absorb(self, key, accumulator, note):
        """Take a window."""
        cdef Accumulators column
        if not self.keys:
            for column in self.columns:
                column.made_of = _NOTHING
        cdef Py_ssize_t cell = self.new_cell(key, note)
        _put_accumulator(self.columns, self.several, cell, accumulator)
        self.cells[key] = cell

    # What windows are.

    def cells_of(self, keys):
        """The cells of those of these keys that have a window."""
        return [cell for cell in map(self.cells.get, keys) if cell is not None]

    def keys_of(self, const int64_t[::1] cells):
        cdef Py_ssize_t at
        return [self.keys[cells[at]] for at in range(cells.shape[0])]

    def of(self, const int64_t[::1] cells):
        """The keys of windows, their notes and their accumulators."""
        cdef Py_ssize_t at
        keys, notes, accumulators = [], [], []
        for at in range(cells.shape[0]):
            keys.append(self.keys[cells[at]])
            notes.append(self.notes[cells[at]])
            accumulators.append(_accumulator(self.columns, self.several, cells[at]))
        return keys, notes, accumulators

    def arrays(self, const int64_t[::1] cells):
        """The keys of windows, and `Accumulators.arrays` of each aggregate; None where one has objects."""
        cdef Py_ssize_t at
        cdef list made = _arrays_of(self.columns, cells)
        return None if made is None else ([self.keys[cells[at]] for at in range(cells.shape[0])], made)
