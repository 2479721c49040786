# The loops of settled stages: accumulators by number, and sessions.
#
# Invariant: sessions, their timers and accumulators are those of the process one item after the other
# (`drift.operators.ProlongsWindows`), to the last bit of a float; what it would do otherwise is not begun.
#
# Why: items come in order, and none comes below them. So an open session is a row of some arrays, the place of which is
# its cell; a timer moves when an item or a bound is above it, by one hash. A batch first finds the cell of each item,
# then each aggregate adds its values, which are numbers as long as all of them fit, and from then on objects. Until a
# batch is kept it can be taken back, for a function may raise.

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
    _EXACT_MAX = 53  # the bits of integers that are floats too

cdef dict _FOLDS = {"count": _COUNT, "sum": _SUM, "mean": _MEAN, "min": _MIN, "max": _MAX}
cdef array.array _DOUBLES = _python_array("d")

from libc.math cimport isnan

cdef extern from *:
    bint __builtin_add_overflow(int64_t, int64_t, int64_t *) nogil


cdef union _Number:
    int64_t integer
    double float


cdef class Accumulators:
    """The accumulators of one aggregate, by cell.

    Args:
        kind: one of `drift.columns.aggregates.Kind`; None of another aggregate, whose accumulators are objects.
        begin, add: of the values of another aggregate.
    """

    cdef int kind, made_of
    cdef object begin, add
    cdef int64_t *counts
    cdef _Number *numbers
    cdef list objects
    cdef Py_ssize_t room

    def __init__(self, kind, begin=None, add=None):
        self.kind = _OTHER if kind is None else _FOLDS[kind]
        self.begin, self.add, self.objects = begin, add, []
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
        self.objects.extend([None] * (room - len(self.objects)))
        self.room = room
        return 0

    cdef int widen(self) except -1:
        """Make objects of all numbers."""
        cdef Py_ssize_t at
        if self.made_of == _INTEGERS:
            for at in range(self.room):
                self.objects[at] = self.numbers[at].integer
        elif self.made_of == _FLOATS:
            for at in range(self.room):
                self.objects[at] = self.numbers[at].float
        self.made_of = _OBJECTS
        return 0

    cdef bint may_raise(self, values):
        return self.kind != _COUNT and (type(values) is list or self.made_of == _OBJECTS)

    cdef int fold(self, const int64_t[::1] cells, const uint8_t[::1] begins, values) except -1:
        """Add a value to each of these cells, or begin it anew.

        Args:
            values: numbers of 64 bits in a buffer, or a list; of counts None.
        """
        cdef Py_ssize_t at, count = cells.shape[0]
        cdef const int64_t[::1] integers
        cdef const double[::1] floats
        cdef int given = _OBJECTS
        cdef int64_t cell
        if self.kind == _COUNT or self.kind == _MEAN:
            for at in range(count):
                self.counts[cells[at]] = 1 if begins[at] else self.counts[cells[at]] + 1
            if self.kind == _COUNT:
                return 0
        if type(values) is not list:
            given = _FLOATS if memoryview(values).format == "d" else _INTEGERS
        if self.made_of == _NOTHING:
            self.made_of = given
        elif self.made_of != given:
            self.widen()
        if self.made_of == _OBJECTS:
            return self.fold_objects(cells, begins, values if type(values) is list else values.tolist(), 0)
        if given == _INTEGERS:
            integers = values
            for at in range(count):
                cell = cells[at]
                if begins[at]:
                    self.numbers[cell].integer = integers[at]
                elif self.kind == _MIN:
                    if integers[at] < self.numbers[cell].integer:
                        self.numbers[cell].integer = integers[at]
                elif self.kind == _MAX:
                    if integers[at] > self.numbers[cell].integer:
                        self.numbers[cell].integer = integers[at]
                elif __builtin_add_overflow(self.numbers[cell].integer, integers[at], &cell):
                    self.widen()
                    return self.fold_objects(cells, begins, values.tolist(), at)
                else:
                    self.numbers[cells[at]].integer = cell
            return 0
        floats = values
        for at in range(count):
            cell = cells[at]
            if begins[at]:
                self.numbers[cell].float = floats[at]
            elif self.kind == _MIN:
                if floats[at] < self.numbers[cell].float or isnan(self.numbers[cell].float):
                    self.numbers[cell].float = floats[at]
            elif self.kind == _MAX:
                if floats[at] > self.numbers[cell].float or isnan(self.numbers[cell].float):
                    self.numbers[cell].float = floats[at]
            else:
                self.numbers[cell].float += floats[at]
        return 0

    cdef int fold_objects(
        self, const int64_t[::1] cells, const uint8_t[::1] begins, list values, Py_ssize_t start
    ) except -1:
        cdef Py_ssize_t at
        cdef object value, known
        cdef list objects = self.objects
        for at in range(start, len(values)):
            value = values[at]
            known = None if begins[at] else objects[cells[at]]
            if self.kind == _OTHER:
                objects[cells[at]] = self.begin(value) if begins[at] else self.add(known, value)
            elif value is None:
                objects[cells[at]] = known
                self.counts[cells[at]] -= self.kind == _MEAN
            elif known is None:
                objects[cells[at]] = int(value) if self.kind == _SUM and (value is True or value is False) else value
            elif self.kind == _MIN:
                if value < known or known != known:
                    objects[cells[at]] = value
            elif self.kind == _MAX:
                if value > known or known != known:
                    objects[cells[at]] = value
            else:
                objects[cells[at]] = known + value
        return 0

    cdef object value(self, Py_ssize_t cell):
        if self.kind == _COUNT:
            return self.counts[cell]
        if self.made_of == _OBJECTS:
            return self.objects[cell]
        return self.numbers[cell].float if self.made_of == _FLOATS else self.numbers[cell].integer

    cdef object get(self, Py_ssize_t cell):
        """An accumulator as the aggregate has it."""
        value = self.value(cell)
        return (self.counts[cell], value) if self.kind == _MEAN and value is not None else value

    cdef int put(self, Py_ssize_t cell, accumulator) except -1:
        cdef object value = accumulator
        cdef int given = _OBJECTS
        if self.kind == _COUNT:
            self.counts[cell] = accumulator
            return 0
        if self.kind == _MEAN:
            self.counts[cell], value = (0, None) if accumulator is None else accumulator
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
            self.objects[cell] = value
        elif given == _FLOATS:
            self.numbers[cell].float = value
        else:
            self.numbers[cell].integer = value
        return 0

    cdef object results(self, list cells):
        """The results of these cells, in an array; None where they are to be made one by one."""
        cdef Py_ssize_t at
        cdef int64_t cell
        cdef bint are_floats = self.kind == _MEAN or (self.kind != _COUNT and self.made_of == _FLOATS)
        cdef array.array made = array.clone(_DOUBLES if are_floats else _INT64S, len(cells), False)
        cdef int64_t exact = <int64_t>1 << _EXACT_MAX
        if self.kind != _COUNT and self.made_of == _OBJECTS:
            return None
        for at in range(len(cells)):
            cell = cells[at]
            if self.kind == _COUNT:
                made.data.as_longlongs[at] = self.counts[cell]
            elif not are_floats:
                made.data.as_longlongs[at] = self.numbers[cell].integer
            elif self.made_of == _FLOATS:
                made.data.as_doubles[at] = self.numbers[cell].float
            elif -exact <= self.numbers[cell].integer <= exact:
                made.data.as_doubles[at] = self.numbers[cell].integer
            else:
                return None
            if self.kind == _MEAN:
                made.data.as_doubles[at] /= self.counts[cell]
        return made


def codes_of(list keys not None):
    """The number of each key among the different ones, and these in the order in which they come first."""
    cdef dict numbers = {}
    cdef array.array codes = array.clone(_INT64S, len(keys), False)
    cdef Py_ssize_t at
    cdef object number
    for at in range(len(keys)):
        number = numbers.get(keys[at])
        if number is None:
            number = len(numbers)
            numbers[keys[at]] = number
        codes.data.as_longlongs[at] = number
    return codes, list(numbers)


cdef struct _Waiting:
    int64_t due  # at or before the time of the session's timer
    int64_t cell
    int64_t serial


cdef struct _Session:
    int64_t first  # times of the first item and of the last one
    int64_t last
    int64_t due  # time of the timer
    int64_t hops
    int64_t serial  # of the sessions of a cell; 0 of a free one, which differs from that of all that wait


cdef class Sessions:
    """The open sessions of keys.

    Args:
        gap: see `drift.operators.ProlongsWindows`.
        timers: suffix of the grouping, ending of the map of timers, and phase, of which metas of timers are made.
        hops_max: a timer that was set so often is not set again.
        columns: the accumulators of each aggregate; `several`: whether the accumulator of a session is a tuple.
    """

    cdef int64_t gap, hops_max, serial
    cdef bytes suffix, ending
    cdef int phase
    cdef tuple columns
    cdef bint several
    cdef dict cells  # by key
    cdef list keys, notes, timers, free  # by cell; and the cells that are free
    cdef _Session *sessions
    cdef Py_ssize_t room
    cdef _Waiting *heap
    cdef Py_ssize_t waiting, heap_room
    cdef uint8_t *scratch
    cdef Py_ssize_t scratch_room
    cdef tuple batch  # what `keep` and `take_back` need of the last one

    def __init__(self, gap, tuple timers not None, hops_max, columns, *, several):
        self.suffix, self.ending, self.phase = timers
        self.gap, self.hops_max, self.columns, self.several = gap, hops_max, tuple(columns), several
        self.cells, self.keys, self.notes, self.timers, self.free = {}, [], [], [], []

    def __dealloc__(self):
        PyMem_Free(self.sessions)
        PyMem_Free(self.heap)
        PyMem_Free(self.scratch)

    def __len__(self):
        return len(self.cells)

    # Cells.

    cdef Py_ssize_t new_cell(self) except -1:
        cdef Py_ssize_t room, at
        cdef _Session *sessions
        cdef Accumulators column
        if not self.free:
            room = max(64, 2 * self.room)
            sessions = <_Session *>PyMem_Realloc(self.sessions, room * sizeof(_Session))
            if sessions == NULL:
                raise MemoryError
            self.sessions = sessions
            for column in self.columns:
                column.grow(room)
            for each in (self.keys, self.notes, self.timers):
                each.extend([None] * (room - self.room))
            for at in range(self.room, room):
                self.sessions[at].serial = 0
            self.free = list(range(room - 1, self.room - 1, -1))
            self.room = room
        return self.free.pop()

    cdef int release(self, Py_ssize_t cell) except -1:
        self.keys[cell] = self.notes[cell] = self.timers[cell] = None
        self.sessions[cell].serial = 0
        self.free.append(cell)
        return 0

    cdef int begin(self, Py_ssize_t cell, key, note, bytes timer, int64_t first, int64_t last, int64_t due,
                   int64_t hops) except -1:
        self.keys[cell], self.notes[cell], self.timers[cell] = key, note, timer
        self.serial += 1
        self.sessions[cell] = _Session(first, last, due, hops, self.serial)
        return self.wait(cell)

    # Timers.

    cdef bytes later(self, const uint8_t *row, Py_ssize_t size, bytes tail, int64_t due):
        """The meta of a timer, set by what has this meta; see `drift_graph.meta.later_meta`."""
        cdef Py_ssize_t more = PyBytes_GET_SIZE(tail), own = PyBytes_GET_SIZE(self.suffix)
        cdef Py_ssize_t ending = PyBytes_GET_SIZE(self.ending), total = size + more + own
        cdef Py_ssize_t room = 2 * (total + ending) + 64
        cdef uint8_t *parent
        cdef uint8_t *write
        if room > self.scratch_room:
            parent = <uint8_t *>PyMem_Realloc(self.scratch, room)
            if parent == NULL:
                raise MemoryError
            self.scratch, self.scratch_room = parent, room
        parent = self.scratch
        memcpy(parent, row, size)
        memcpy(parent + size, PyBytes_AS_STRING(tail), more)
        memcpy(parent + size + more, PyBytes_AS_STRING(self.suffix), own)
        memcpy(parent + total, PyBytes_AS_STRING(self.ending), ending)
        if total <= _LATER_MARK_AT:
            raise ValueError(f"{bytes(parent[:total])!r} is no meta")
        write = _write_later(
            parent + total + ending, parent, total, total + ending, <uint64_t>due ^ _SIGN_BIT, self.phase, 0, 0
        )
        if write == NULL:
            raise ValueError(f"{bytes(parent[:total])!r} is no meta")
        memcpy(write, PyBytes_AS_STRING(self.ending), ending)
        return PyBytes_FromStringAndSize(
            <char *>parent + total + ending, write + ending - (parent + total + ending)
        )

    cdef bint move(self, Py_ssize_t cell, int64_t due) except -1:
        """Set the timer of a session again, for a later time; False if that was done too often."""
        cdef bytes timer = self.timers[cell]
        if self.sessions[cell].hops >= self.hops_max:
            return False
        self.timers[cell] = self.later(
            <const uint8_t *>PyBytes_AS_STRING(timer), PyBytes_GET_SIZE(timer), b"", due
        )
        self.sessions[cell].due = due
        self.sessions[cell].hops += 1
        return True

    cdef int wait(self, Py_ssize_t cell) except -1:
        cdef Py_ssize_t at, room
        cdef _Waiting *heap
        cdef _Waiting each = _Waiting(self.sessions[cell].due, cell, self.sessions[cell].serial)
        if self.waiting == self.heap_room:
            room = max(64, 2 * self.heap_room)
            heap = <_Waiting *>PyMem_Realloc(self.heap, room * sizeof(_Waiting))
            if heap == NULL:
                raise MemoryError
            self.heap, self.heap_room = heap, room
        at = self.waiting
        self.waiting += 1
        while at > 0 and self.heap[(at - 1) // 2].due > each.due:
            self.heap[at] = self.heap[(at - 1) // 2]
            at = (at - 1) // 2
        self.heap[at] = each
        return 0

    cdef Py_ssize_t first_waiting(self) except -2:
        """The cell of the first session by the time of its timer; -1 if there is none."""
        cdef _Waiting first
        while self.waiting:
            first = self.heap[0]
            if self.sessions[first.cell].serial != first.serial:
                self.pop()
            elif self.sessions[first.cell].due != first.due:
                self.pop()
                self.wait(first.cell)
            else:
                return first.cell
        return -1

    cdef void pop(self) noexcept:
        cdef Py_ssize_t at = 0, child
        cdef _Waiting last
        self.waiting -= 1
        last = self.heap[self.waiting]
        while 2 * at + 1 < self.waiting:
            child = 2 * at + 1
            if child + 1 < self.waiting and self.heap[child + 1].due < self.heap[child].due:
                child += 1
            if self.heap[child].due >= last.due:
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = last

    def least(self):
        """The time of the first timer; None if there is none."""
        cdef Py_ssize_t cell = self.first_waiting()
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
        cdef array.array found = array.clone(_INT64S, len(keys), False), each_cell = array.clone(_INT64S, count, False)
        cdef bytearray begins = bytearray(count)
        cdef int64_t[::1] current = found, cells = each_cell
        cdef uint8_t[::1] is_first = begins
        cdef int64_t cell, until, due
        cdef Accumulators column
        cdef bint may_raise = False
        cdef list over = [], opened = [], saved = []
        cdef _Session *session
        if not self.cells:
            for column in self.columns:
                column.made_of = _NOTHING
        for column, each in zip(self.columns, values):
            may_raise = may_raise or column.may_raise(each)
        for at in range(len(keys)):
            known = self.cells.get(keys[at])
            current[at] = -1
            if known is not None:
                cell = current[at] = known
                session = &self.sessions[cell]
                before = [column.get(cell) for column in self.columns] if may_raise else None
                saved.append((cell, self.timers[cell], session.last, session.due, session.hops, before))
        self.batch = found, keys, over, opened, saved
        try:
            for at in range(count):
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
                    over.append(cell)
                cell = self.new_cell()
                opened.append(cell)
                key = keys[of_key[at]]
                due = times[at] + (self.gap - 1)
                timer = self.later(metas.rows.row(at), metas.rows.size(at), metas.tail, due)
                note = note_of(payloads[at]) if type(key) is bytes else key
                self.begin(cell, key, note, timer, times[at], times[at], due, 1)
                current[of_key[at]] = cells[at] = cell
                is_first[at] = 1
            for column, each in zip(self.columns, values):
                column.fold(cells, is_first, each)
        except BaseException:
            self.take_back()
            raise
        return over

    def take_back(self):
        """Undo the last `add`."""
        cdef Accumulators column
        cdef int64_t cell
        _, _, _, opened, saved = self.batch
        for cell in opened:
            self.release(cell)
        for cell, timer, last, due, hops, before in saved:
            self.timers[cell] = timer
            self.sessions[cell].last, self.sessions[cell].due, self.sessions[cell].hops = last, due, hops
            for column, each in zip(self.columns, before or ()):
                column.put(cell, each)
        self.batch = None

    def keep(self):
        """Keep what the last `add` has made; the sessions that have ended go."""
        found, keys, over, _, _ = self.batch
        self.cells.update(zip(keys, found))
        for cell in over:
            self.release(cell)
        self.batch = None

    def fire(self, bytes bound not None):
        """Fire the timers below a bound: the cells of sessions that have ended, and of those whose timer has set itself
        again the metas and keys before. Then `end` or `go_on` is called.
        """
        cdef list over = [], moved = [], keys = [], above = []
        cdef int64_t last_time = <int64_t>(_read_big(<const uint8_t *>PyBytes_AS_STRING(bound)) ^ _SIGN_BIT)
        cdef int64_t until
        cdef Py_ssize_t cell
        while True:
            cell = self.first_waiting()
            if cell < 0 or self.sessions[cell].due > last_time:
                break
            self.pop()
            if self.timers[cell] >= bound:
                above.append(cell)
                continue
            until = self.sessions[cell].last + (self.gap - 1)
            if until <= self.sessions[cell].due:
                over.append(cell)
                continue
            timer = self.timers[cell]
            if not self.move(cell, until):
                above.append(cell)
                continue
            moved.append(timer)
            keys.append(self.keys[cell])
            self.wait(cell)
        self.go_on(above)
        return over, moved, keys

    def go_on(self, list cells not None):
        """These sessions wait for their timers again."""
        for cell in cells:
            self.wait(cell)

    def end(self, list cells not None):
        """Forget these sessions."""
        for cell in cells:
            del self.cells[self.keys[cell]]
            self.release(cell)

    # What sessions are.

    def timers_of(self, list cells not None):
        return [self.timers[cell] for cell in cells]

    def keys_of(self, list cells not None):
        return [self.keys[cell] for cell in cells]

    def cells_of(self, keys=None):
        """The cells of those of these keys that have a session; without keys of all."""
        return [cell for cell in map(self.cells.get, self.cells if keys is None else keys) if cell is not None]

    def results(self, list cells not None):
        """First and last times of sessions, and the results of each aggregate, in arrays; None where they are to be
        made one by one.
        """
        cdef Accumulators column
        cdef array.array firsts = array.clone(_INT64S, len(cells), False)
        cdef array.array lasts = array.clone(_INT64S, len(cells), False)
        cdef Py_ssize_t at
        cdef int64_t cell
        cdef list made = []
        for column in self.columns:
            made.append(column.results(cells))
            if made[len(made) - 1] is None:
                return None
        for at in range(len(cells)):
            cell = cells[at]
            firsts.data.as_longlongs[at] = self.sessions[cell].first
            lasts.data.as_longlongs[at] = self.sessions[cell].last
        return firsts, lasts, made

    def states(self, list cells not None):
        """The states of sessions as the process has them, and the notes of their timers."""
        cdef Accumulators column
        cdef int64_t cell
        cdef list states = [], notes = []
        for cell in cells:
            if self.several:
                accumulator = tuple([column.get(cell) for column in self.columns])
            else:
                column = self.columns[0]
                accumulator = column.get(cell)
            states.append((self.sessions[cell].first, self.sessions[cell].last, accumulator))
            notes.append(self.notes[cell])
        return states, notes

    def absorb(self, key, state, bytes timer not None, time, hops, note):
        """Take a session, which is as `states` gives it."""
        cdef Accumulators column
        cdef Py_ssize_t cell
        first, last, accumulator = state
        if not self.cells:
            for column in self.columns:
                column.made_of = _NOTHING
        cell = self.new_cell()
        for column, each in zip(self.columns, accumulator if self.several else (accumulator,)):
            column.put(cell, each)
        self.begin(cell, key, note, timer, first, last, time, hops)
        self.cells[key] = cell
