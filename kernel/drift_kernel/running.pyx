# Aggregates of each row with those of its key before it, of numbers in arrays.
#
# Invariant: `made[i]` is what the function makes, one after the other, of the value that the key of row i had before and
# of its values up to row i; `last` has what it makes of all.

ctypedef fused Number:
    int64_t
    double


def accumulated(const int32_t[::1] codes not None, const Number[::1] values not None, Number[::1] last not None,
                Number[::1] made not None, str kind not None):
    """
    Args:
        codes: the number of each row's key.
        last: the value of each key before; it becomes that after the rows.
        kind: "sum", "min" or "max"; the caller knows that no sum overflows, and that no value is NaN or of two zeros.
    """
    cdef Py_ssize_t at, code, count = codes.shape[0], keys = last.shape[0]
    cdef int function = {"sum": _SUM, "min": _MIN, "max": _MAX}[kind]
    cdef Number known, value
    if values.shape[0] != count or made.shape[0] != count:
        raise ValueError(f"there are {count} rows, and as many values are needed")
    for at in range(count):
        code = codes[at]
        if not 0 <= code < keys:
            raise IndexError(f"of {keys} keys there is no number {code}")
        known, value = last[code], values[at]
        if function == _SUM:
            value += known
        elif (known < value) if function == _MIN else (known > value):
            value = known
        last[code] = made[at] = value
