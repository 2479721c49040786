"""Sketches: the number of distinct values, and quantiles, about right and in bounded memory.

Invariant: what a sketch gives is a function of the values that were added, whatever their order and however often
sketches of some of them were merged.

Why: the number of distinct values is a HyperLogLog of 64-bit hashes, whose registers are maxima, and as long as there
are few of them their set; quantiles are counts by bucket, and which bucket a number is in is computed in integers.
Libraries of sketches were tried: their quantiles draw random bits or depend on when the sketch was stored, and their
distinct counts on the order of the values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

#: The hashes of the values while they are few, 64 bits each; then the registers, a byte each.
Hashes = frozenset[int] | bytes
#: The number of values by bucket, and the buckets of the last ones, in order: not yet counted.
Buckets = tuple[dict[int, int], tuple[int, ...]]

_HASH_BITS = 64
_UNCOUNTED_MAX = 64
_EXPONENTS = 1100  # more than floats have below 1


def with_hashes(sketch: Hashes, hashes: Iterable[int], precision: int) -> Hashes:
    """A sketch with further values; it has 2**precision registers once that takes less than the hashes."""
    if not isinstance(sketch, bytes):
        sketch = sketch.union(hashes)
        if len(sketch) <= 1 << precision >> 3:
            return sketch
        hashes, sketch = sketch, bytes(1 << precision)
    rest_bits = _HASH_BITS - precision
    registers: bytearray | None = None
    for each in hashes:
        at, rank = each >> rest_bits, rest_bits - (each & (1 << rest_bits) - 1).bit_length() + 1
        if (sketch if registers is None else registers)[at] < rank:
            if registers is None:
                registers = bytearray(sketch)
            registers[at] = rank
    return sketch if registers is None else bytes(registers)


def merged_hashes(left: Hashes, right: Hashes, precision: int) -> Hashes:
    """The sketch of the values of both."""
    if not isinstance(right, bytes):
        return with_hashes(left, right, precision)
    if not isinstance(left, bytes):
        return with_hashes(right, left, precision)
    return bytes(map(max, left, right))


def distinct_in(sketch: Hashes, precision: int) -> int:
    """About how many distinct values there are: exact while they are few, then off by 1.04 / 2**(precision / 2), as
    standard deviation. The estimate is that of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches".
    """
    if not isinstance(sketch, bytes):
        return len(sketch)
    registers, greatest = len(sketch), _HASH_BITS - precision + 1
    count = Counter(sketch)
    total = registers * _tau(1 - count[greatest] / registers)
    for rank in range(greatest - 1, 0, -1):
        total = (total + count[rank]) / 2
    total += registers * _sigma(count[0] / registers)
    return round(registers * registers / (2 * math.log(2) * total))


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    total, factor, before = x, 1.0, -1.0
    while total != before:
        x, before = x * x, total
        total, factor = total + x * factor, factor * 2
    return total


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    total, factor, before = 1 - x, 1.0, -1.0
    while total != before:
        x, before, factor = math.sqrt(x), total, factor / 2
        total -= (1 - x) ** 2 * factor
    return total / 3


def buckets_for(error: float) -> int:
    """Into how many buckets the numbers from one power of two to the next are put: a power of two."""
    return 1 << max(math.ceil(math.log2(0.5 / error)), 0)


def bucket_of(value: Any, buckets: int) -> int:
    """The bucket of a number; greater numbers are in the same or in a greater one. 0 has one of its own.

    Raises:
        ValueError: it is infinite, or not a number.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value!r} has no place among quantiles; filter such values, or map them to a number")
    share, exponent = math.frexp(value)
    if not share:
        return 0
    bucket = (exponent + _EXPONENTS) * buckets + int(abs(share) * 2 * buckets) - buckets + 1
    return bucket if share > 0 else -bucket


def middle_of(bucket: int, buckets: int) -> float:
    if not bucket:
        return 0.0
    exponent, at = divmod(abs(bucket) - 1, buckets)
    return math.copysign(math.ldexp((at + buckets + 0.5) / (2 * buckets), exponent - _EXPONENTS), bucket)


def with_bucket(sketch: Buckets, bucket: int) -> Buckets:
    """A sketch with one more value."""
    counts, last = sketch
    last = (*last, bucket)
    return (counts, last) if len(last) < _UNCOUNTED_MAX else (_counted([counts], last), ())


def merged_buckets(left: Buckets, right: Buckets) -> Buckets:
    """The sketch of the values of both."""
    return _counted([left[0], right[0]], left[1] + right[1]), ()


def quantile_in(sketch: Buckets, share: float, buckets: int) -> float:
    """About the value that this share of the others is below; never further from it than half its bucket."""
    counts = _counted([sketch[0]], sketch[1])
    below = int(share * (sum(counts.values()) - 1))
    for bucket in sorted(counts):
        below -= counts[bucket]
        if below < 0:
            break
    return middle_of(bucket, buckets)


def _counted(counts: Sequence[dict[int, int]], last: Iterable[int]) -> dict[int, int]:
    total = Counter(last)
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))
