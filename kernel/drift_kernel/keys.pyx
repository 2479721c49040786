# Keys, which are identified by type and value: never by `==`, of which 1, 1.0 and True are one.


cdef inline bint is_itself(object value) noexcept:
    """Whether two values like this are equal exactly when they are the same key."""
    cdef PyObject *kind = <PyObject *>Py_TYPE(value)
    return kind == <PyObject *>str or kind == <PyObject *>int or value is None


def are_identities(keys):
    """Whether every key is a text, an integer, None, or a tuple of these."""
    for key in keys:
        if is_itself(key):
            continue
        if Py_TYPE(key) != <PyTypeObject *>tuple:
            return False
        for part in <tuple>key:
            if not is_itself(part):
                return False
    return True


cdef struct _View:
    uint64_t first
    uint64_t second


def codes_of_views(views, Py_ssize_t start, Py_ssize_t count):
    """Dense numbers of texts that are in their views of Arrow whole.

    Args:
        views: of 16 bytes: the size, then up to 12 bytes of the text and zeros.
        start, count: which of them.

    Returns:
        The number of each, of 32 bits, in the order in which they come first, and the first row of each; None if a text
        is longer.
    """
    cdef Memory memory = Memory(views)
    cdef Py_ssize_t at, slots = 1024, found = 0, code
    cdef array.array codes, firsts = array.clone(_INT64S, slots, False)
    cdef array.array table = array.clone(_INT32S, slots, True)
    cdef int32_t *slot
    cdef const _View *every
    cdef const _View *view
    if start < 0 or count < 0 or memory.view.len // <Py_ssize_t>sizeof(_View) - start < count:
        raise ValueError(f"{memory.view.len} bytes are not those of {count} views from {start} on")
    codes = array.clone(_INT32S, count, False)
    every = <const _View *>memory.view.buf + start
    at = 0
    while at < count:
        view = &every[at]
        if <uint32_t>view.first > VIEW_MAX:
            return None
        slot = _slot_of(view, every, table, firsts)
        if slot[0] == 0:
            if 2 * found >= slots:
                slots *= 4
                table = array.clone(_INT32S, slots, True)
                array.resize(firsts, slots)
                for code in range(found):
                    _slot_of(&every[firsts.data.as_longlongs[code]], every, table, firsts)[0] = <int32_t>code + 1
                continue
            firsts.data.as_longlongs[found] = at
            found += 1
            slot[0] = <int32_t>found
        codes.data.as_ints[at] = slot[0] - 1
        at += 1
    array.resize(firsts, found)
    return codes, firsts


cdef inline int32_t *_slot_of(const _View *view, const _View *every, array.array table, array.array firsts) noexcept:
    """Where the table has the number of a text, more by one; or where there is 0, and it is to be."""
    cdef uint64_t mask = <uint64_t>len(table) - 1
    cdef uint64_t place = (view.first ^ view.second * P64_1) * P64_2
    cdef const _View *known
    cdef int32_t *slot
    place = (place ^ place >> 32) * P64_1
    place ^= place >> 32
    while True:
        slot = <int32_t *>&table.data.as_ints[place & mask]
        if slot[0] == 0:
            return slot
        known = &every[firsts.data.as_longlongs[slot[0] - 1]]
        if known.first == view.first and known.second == view.second:
            return slot
        place += 1
