# Calls of a user's function for each of many values; and which values can change, see `drift_graph.unchanged`.

cdef enum:
    _TUPLES_MAX = 100  # inside each other; what is deeper is asked of the twin


cdef inline bint _is_scalar(PyObject *value, PyObject *kind) noexcept:
    """Whether a value is of the kinds that most values have that nobody can change."""
    return (
        kind == <PyObject *>str
        or kind == <PyObject *>int
        or kind == <PyObject *>float
        or value == <PyObject *>None
        or kind == <PyObject *>bool
    )


cdef int _is_unchangeable(PyObject *value, frozenset kinds, int deep) except -2:
    """1 if nobody can change a value, 0 if somebody can, -1 where tuples are in tuples too often."""
    cdef PyObject *kind = _kind(value)
    cdef Py_ssize_t at
    cdef int found
    if _is_scalar(value, kind):
        return 1
    if kind != <PyObject *>tuple:
        return 1 if <object>kind in kinds else 0
    if deep == _TUPLES_MAX:
        return -1
    for at in range(_tuple_size(value)):
        found = _is_unchangeable(_of_tuple(value, at), kinds, deep + 1)
        if found != 1:
            return found
    return 1


def are_unchangeable(list values not None, frozenset kinds not None):
    """Whether all values are of these kinds, or tuples of such values; None where they are deeper than is looked.

    Args:
        kinds: types whose objects nobody can change.
    """
    cdef Py_ssize_t at = 0
    cdef int found
    while at < _list_size(<PyObject *>values):
        _fetch_ahead(values, at)
        found = _is_unchangeable(_of_list(<PyObject *>values, at), kinds, 0)
        if found != 1:
            return False if found == 0 else None
        at += 1
    return True


cdef int _freshness(PyObject *value, frozenset kinds, int deep) except -1:
    """2 for a value that nobody can change, 1 for one that only what it is in has a reference to, else 0."""
    cdef PyObject *kind = _kind(value)
    cdef PyObject *key
    cdef PyObject *inside
    cdef Py_ssize_t at = 0
    cdef int found, least = 2
    if _is_scalar(value, kind):
        return 2
    if deep > _TUPLES_MAX:
        return 0
    if kind == <PyObject *>tuple:
        for at in range(_tuple_size(value)):
            found = _freshness(_of_tuple(value, at), kinds, deep + 1)
            if found == 0:
                return 0
            least = min(least, found)
        return least if least == 2 or _references(value) == 1 else 0
    if kind == <PyObject *>dict and _references(value) == 1:
        while _next_of_dict(value, &at, &key, &inside):
            if _freshness(inside, kinds, deep + 1) == 0:
                return 0
        return 1
    if kind == <PyObject *>list and _references(value) == 1:
        for at in range(_list_size(value)):
            if _freshness(_of_list(value, at), kinds, deep + 1) == 0:
                return 0
        return 1
    return 2 if <object>kind in kinds else 0


def are_fresh(list values not None, frozenset kinds not None):
    """Whether nobody but this list has a reference to any value in it, or to what is in them and may change, as far as
    they are dicts, lists and tuples; what it says False of is asked of the twin.
    """
    cdef Py_ssize_t at
    for at in range(_list_size(<PyObject *>values)):
        if _freshness(_of_list(<PyObject *>values, at), kinds, 0) == 0:
            return False
    return True


cdef class Contents:
    """What is in values, as it is now: every dict, list and tuple in them, with its length, and every other object.

    Why: what nobody can change is as it was if it is the same object; to compare it so takes a fifth of encoding it
    twice. Another object in its place is no change yet if it is of the same value: who finds one asks for `before`.

    Args:
        kinds: types whose objects nobody can change.

    Attributes:
        is_known: whether the values are dicts, lists, tuples and objects of these kinds alone; if not, nothing is said.
    """

    cdef list values, noted
    cdef frozenset kinds
    cdef Py_ssize_t at
    cdef readonly bint is_known

    def __init__(self, list values not None, frozenset kinds not None):
        self.values, self.noted, self.kinds, self.at = values, [], kinds, -1
        self.is_known = self.walk(<PyObject *>values, 0) == 1

    cdef int one(self, PyObject *value) except -1:
        """1 if an object is noted now, or was at this place before; else 0."""
        if self.at < 0:
            self.noted.append(<object>value)
            return 1
        if self.at == _list_size(<PyObject *>self.noted) or _of_list(<PyObject *>self.noted, self.at) != value:
            return 0
        self.at += 1
        return 1

    cdef int length(self, Py_ssize_t count) except -1:
        """1 if the length of what was noted last is noted now, or was this one before; else 0."""
        if self.at < 0:
            self.noted.append(count)
            return 1
        self.at += 1
        return 1 if <Py_ssize_t>self.noted[self.at - 1] == count else 0

    cdef int walk(self, PyObject *value, int deep) except -1:
        cdef PyObject *kind = _kind(value)
        cdef PyObject *key
        cdef PyObject *inside
        cdef Py_ssize_t at = 0
        if self.one(value) == 0:
            return 0
        if _is_scalar(value, kind):
            return 1
        if deep > _TUPLES_MAX:
            return 0
        if kind == <PyObject *>dict:
            if self.length(len(<dict>value)) == 0:
                return 0
            while _next_of_dict(value, &at, &key, &inside):
                if self.walk(key, deep + 1) == 0 or self.walk(inside, deep + 1) == 0:
                    return 0
            return 1
        if kind == <PyObject *>list or kind == <PyObject *>tuple:
            if self.length(_sequence_size(value)) == 0:
                return 0
            for at in range(_sequence_size(value)):
                if self.walk(_of_sequence(value, at), deep + 1) == 0:
                    return 0
            return 1
        return 1 if <object>kind in self.kinds else 0

    def are_same(self):
        """Whether all in the values is the same object as before."""
        self.at = 0
        return self.walk(<PyObject *>self.values, 0) == 1 and self.at == len(self.noted)

    def before(self):
        """The values as they were. Raises ValueError: they are not known."""
        if not self.is_known:
            raise ValueError("of these values not all is noted")
        self.at = 0
        return self.built()

    cdef object built(self):
        cdef object found = self.noted[self.at]
        cdef Py_ssize_t left
        self.at += 1
        if type(found) is not dict and type(found) is not list and type(found) is not tuple:
            return found
        left = self.noted[self.at]
        self.at += 1
        if type(found) is dict:
            made = {}
            for _ in range(left):
                key = self.built()
                made[key] = self.built()
            return made
        parts = [self.built() for _ in range(left)]
        return parts if type(found) is list else tuple(parts)


def dicts_of(list names not None, list columns not None, Py_ssize_t count):
    """A dict of the names for each of so many rows of columns."""
    cdef list made = []
    cdef dict row
    cdef Py_ssize_t at, column
    for at in range(count):
        row = {}
        for column in range(len(names)):
            row[names[column]] = (<list>columns[column])[at]
        made.append(row)
    return made


def called(function not None, list values not None, bint unsigned):
    """Call a function with each value, up to the call that raises.

    Returns:
        The results, in an array if all are integers of 64 bits, else in a list; and what was raised, or None.
    """
    cdef Py_ssize_t at = 0, count = len(values)
    cdef array.array numbers = array.clone(_UINT64S if unsigned else _INT64S, count, False)
    cdef list others = None
    cdef object result
    cdef int overflow = 0
    cdef int64_t number
    cdef uint64_t word
    cdef bint fits
    while at < count and at < len(values):
        _fetch_ahead(values, at)
        try:
            result = function(values[at])
        except BaseException as error:
            return (others if others is not None else numbers[:at]), error
        if others is None:
            fits = type(result) is int
            if fits:
                number = PyLong_AsLongLongAndOverflow(result, &overflow)
                fits = overflow == 0 and (number >= 0 or not unsigned)
                if unsigned and overflow > 0 and result <= UINT64_MAX:
                    word = result
                    number, fits = <int64_t>word, True
            if fits:
                numbers.data.as_longlongs[at] = number
            else:
                others = numbers[:at].tolist()
        if others is not None:
            others.append(result)
        at += 1
    return (others if others is not None else numbers), None


def taken(list values not None, order not None):
    """The values at these places, which are numbers of 64 bits, in this order."""
    cdef const int64_t[::1] places = order
    cdef Py_ssize_t at, count = len(values)
    cdef list made = [None] * places.shape[0]
    for at in range(places.shape[0]):
        if not 0 <= places[at] < count:
            raise IndexError(f"there are {count} values, and none at {places[at]}")
        if at + _AHEAD < places.shape[0] and 0 <= places[at + _AHEAD] < count:
            _fetch(_of_list(<PyObject *>values, places[at + _AHEAD]))
        made[at] = values[places[at]]
    return made


def in_turn(list parts not None, bytes owners not None):
    """The values of several lists in turn: for each the number of its list, whose next one it is."""
    cdef array.array nexts = array.clone(_INT64S, len(parts) + 1, True)
    cdef const uint8_t *owner = <const uint8_t *>PyBytes_AS_STRING(owners)
    cdef Py_ssize_t at, place, count = len(parts)
    cdef list part, made = [None] * PyBytes_GET_SIZE(owners)
    for at in range(PyBytes_GET_SIZE(owners)):
        if owner[at] >= count:
            raise IndexError(f"there are {count} lists, and none has the number {owner[at]}")
        part = <list?>parts[owner[at]]
        place = nexts.data.as_longlongs[owner[at]]
        if place >= len(part):
            raise IndexError(f"list {owner[at]} has {len(part)} values, and no other one")
        nexts.data.as_longlongs[owner[at]] = place + 1
        made[at] = part[place]
    return made


def called_up_to(function not None, list values not None, frozenset kinds not None):
    """The results of a function, up to the first that somebody can change, and with it.

    Args:
        kinds: types whose objects nobody can change.
    """
    cdef list made = []
    cdef object result
    for value in values:
        _fetch_ahead(values, len(made))
        result = function(value)
        made.append(result)
        if _is_unchangeable(<PyObject *>result, kinds, 0) != 1:
            break
    return made


def kept(function not None, list values not None):
    """A byte for each value, 1 where what a function returns for it is true."""
    cdef Py_ssize_t at, count = len(values)
    cdef bytearray made = bytearray(count)
    cdef uint8_t[::1] are_true = made
    for at in range(count):
        are_true[at] = 1 if function(values[at]) else 0
    return bytes(made)


cdef inline bint _is_of(object value, frozenset kinds):
    """Whether a value is of one of these kinds, of which some are looked for first."""
    cdef PyObject *kind = <PyObject *>Py_TYPE(value)
    if kind == <PyObject *>tuple or kind == <PyObject *>int or kind == <PyObject *>float or kind == <PyObject *>str:
        return True
    return <object>kind in kinds


def scan(step not None, pair_of, dict states not None, list keys not None, list payloads not None, initial, give,
         frozenset kinds, noted):
    """Call the step of a scan for each item: see `drift.machines.logics.ScanLogic`.

    Each different key is looked up once in `states`, and stored once, also where a call raises.

    Args:
        pair_of: the state and the output that a step returned, where that is no pair.
        kinds: types whose objects nobody can change, tuples among them.
        noted: called with the first pair of which a part is of none of them; gives the step from there on, and whether
            it is called with the next such pair too. None if it is not to be.
    """
    cdef dict numbers = {}
    cdef list current = []
    cdef Py_ssize_t at
    cdef object key, number, made, state, output
    try:
        for at in range(len(keys)):
            _fetch_ahead(keys, at)
            _fetch_ahead(payloads, at)
            key = keys[at]
            number = numbers.get(key)
            made = step(states.get(key, initial) if number is None else current[number], payloads[at])
            if type(made) is not tuple or len(<tuple>made) != 2:
                made = pair_of(made)
            state, output = <tuple>made
            if number is None:
                numbers[key] = len(current)
                current.append(state)
            else:
                current[number] = state
            if noted is not None and not (_is_of(state, kinds) and _is_of(output, kinds)):
                step, more = noted(made)
                if not more:
                    noted = None
            give(output)
    finally:
        states.update(zip(numbers, current))


cdef class NotedCalls:
    """The step of a scan: a function of a user whose results are noted, where somebody else could change them later.

    Why: of a pair that nobody else has, the output goes on, and the function never gets it again; so it is looked at
    only for references that others have. The state is handed to the function again, and is noted as it is now.

    Args:
        function: gives the next state and an output.
        kinds: types whose objects nobody can change.
        encode: gives the bytes of what is to be noted, which go to `prints`, as it does to `results`.
        note: does so with what it cannot encode.

    Attributes:
        called: whether there was a call since `reset`; `some`: whether one returned what may change.
        keeps: whether a state that may change was ever returned.
    """

    cdef object function, encode, otherwise
    cdef frozenset kinds
    cdef list results, prints
    cdef readonly bint called, some, keeps

    def __init__(self, function, frozenset kinds not None, encode, list results not None, list prints not None, note):
        self.function, self.kinds, self.otherwise = function, kinds, note
        self.encode, self.results, self.prints = encode, results, prints

    cdef int note(self, result) except -1:
        cdef bytes data
        try:
            data = self.encode(result)
        except (OverflowError, UnicodeEncodeError, RecursionError, ValueError, TypeError):
            self.otherwise(result)
            return 0
        self.prints.append(data)
        self.results.append(result)
        return 0

    def __call__(self, state, payload):
        cdef object result = self.function(state, payload)
        cdef PyObject *made = <PyObject *>result
        cdef int found
        self.called = True
        if type(result) is not tuple or _tuple_size(made) != 2:
            self.some = True
            self.note(result)
            return result
        found = _freshness(_of_tuple(made, 1), self.kinds, 0)
        if found == 1 and _references(made) > 1:  # who has the pair has what is in it
            found = 0
        if found != 2:
            self.some = True
        if _is_unchangeable(_of_tuple(made, 0), self.kinds, 0) != 1:
            self.some = self.keeps = True
            self.note(result if found == 0 else <object>_of_tuple(made, 0))
        elif found == 0:
            self.note(result)
        return result

    def reset(self):
        self.called = self.some = False
