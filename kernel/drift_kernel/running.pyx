# Aggregates of stretches of numbers in arrays.
#
# Invariant: `made[i]` is what the function makes, one after the other, of the values of stretch i.

ctypedef fused Number:
    int64_t
    double


def rolled(const Number[::1] values not None, const uint8_t[::1] known, const int64_t[::1] firsts not None,
           const int64_t[::1] stops not None, Number[::1] made not None, int64_t[::1] counts not None, str kind not None):
    """Go on adding the values of a stretch, one after the other, to what was made of those before.

    Args:
        known: 0 for a value that is left out; None if none is.
        firsts, stops: the bounds of each stretch.
        made: what is made so far; it becomes that with the stretch.
        counts: of how many values that is.
        kind: "sum", "min" or "max"; NaN is the least and the greatest only where there is nothing else.

    Raises:
        OverflowError: a sum of integers leaves 64 bits.
    """
    cdef Py_ssize_t at, place, first, stop, size = values.shape[0], count = made.shape[0]
    cdef int function = {"sum": _SUM, "min": _MIN, "max": _MAX}[kind]
    cdef int64_t seen
    cdef Number value, total
    cdef bint is_masked = known is not None
    if firsts.shape[0] != count or stops.shape[0] != count or counts.shape[0] != count:
        raise ValueError(f"there are {count} stretches, and as many bounds and counts are needed")
    if is_masked and known.shape[0] != size:
        raise ValueError(f"there are {size} values, and {known.shape[0]} were asked about")
    for at in range(count):
        first, stop, total, seen = firsts[at], stops[at], made[at], counts[at]
        if first < 0 or stop > size:
            raise IndexError(f"there are {size} values, and none from {first} up to {stop}")
        for place in range(first, stop):
            if is_masked and not known[place]:
                continue
            value = values[place]
            if not seen:
                total = value
            elif function == _SUM:
                if Number is int64_t:
                    if (value > 0 and total > INT64_MAX - value) or (value < 0 and total < INT64_MIN - value):
                        raise OverflowError("a sum has more than 64 bits")
                total += value
            elif ((value < total) if function == _MIN else (value > total)) or (total != total and value == value):
                total = value
            seen += 1
        made[at], counts[at] = total, seen
