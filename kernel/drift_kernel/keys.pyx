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
