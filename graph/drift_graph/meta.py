"""Meta: the position of an item in the total order, as bytes.

Invariant: comparing two metas with `<` on bytes compares their items, and what an item causes comes right after it
and before the next item.

Why: every part is either of fixed length or an order-preserving varint, so no part is a prefix of another value of
the same part; and an operator only ever appends.

    meta        = global_time | path
    global_time = time (8 bytes, big-endian, sign bit flipped) | source rank | tie | ordinal
    path        = for each operator passed, oldest first: operator rank, then for a map the child index

Ranks, ties, ordinals and indices are varints. The tie separates items of one time (0 in arrival time), the ordinal
counts the items that still share it, so a global time is unique per input item and can be cut off any meta.

An item that a map puts at a later time has a global time of another form, above every input item of its time:

    global_time = time | 0xFF | moment | root | hops | identity (16 bytes)
    moment      = round | phase (1 byte), or round | phase of a loop | moment within the loop

An iteration is a phase of its own, in which rounds of its own turn, and an iteration within it is a phase of one of its
rounds. `root` is the global time of the input item at the start of the chain, `hops` is its number among the later
items of the chain, and `identity` is a hash of the meta that the item would have as an ordinary child of its parent. So
it is unique, depends on nothing but the parent, and is of bounded length. Its path begins with the map that made it.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1

#: Below every global time, and above every global time: a source's heartbeats before its start and after its end.
BEGINNING = b""
END_OF_TIME = b"\xff" * 10

#: The time of items after all input of all sources.
END = TIME_MAX

#: Phases of a moment, the order of later items with one time and round. Odd ones are for loops, which have rounds of
#: their own; even ones for steps with timers, one for each step in a row that an item may pass.
PHASE_STATE, PHASE_ITEMS, PHASE_TIMERS, PHASE_TIMERS_MAX, PHASE_ROUND_END = 0, 1, 2, 0xFE, 0xFF

#: The first byte of a later item after its time, where others have a source rank; no varint begins with it.
LATER_MARK, LATER_MARK_AT = 0xFF, 8
_IDENTITY_BYTES = 16

_ONE_BYTE_MAX = 0xF7
_SHOWN_MAX = 30
_bytes = [bytes((value,)) for value in range(0x100)]
_lengths = bytes(1 + max(first - _ONE_BYTE_MAX, 0) for first in range(0x100))  # length of a varint, by its first byte
_is_loop = [phase % 2 == 1 and PHASE_ITEMS < phase < PHASE_ROUND_END for phase in range(0x100)]


def varint(value: int) -> bytes:
    """Order-preserving bytes of an integer, 0 <= value < 2**64: one byte up to 247, else a length byte and the value.

    The length byte is 0xF8 for one byte that follows, up to 0xFF for eight.
    """
    if value <= _ONE_BYTE_MAX:
        return _bytes[value]
    length = (value.bit_length() + 7) >> 3
    return _bytes[_ONE_BYTE_MAX + length] + value.to_bytes(length, "big")


def read_varint(data: bytes, start: int) -> tuple[int, int]:
    """The value of the varint at `start`, and the index after it."""
    first = data[start]
    if first <= _ONE_BYTE_MAX:
        return first, start + 1
    end = start + 1 + first - _ONE_BYTE_MAX
    return int.from_bytes(data[start + 1 : end], "big"), end


def skip_varint(data: bytes, start: int) -> int:
    """The index after the varint at `start`; it may be behind the end."""
    return start + _lengths[data[start]]


def pack_time(time: int) -> bytes:
    """The 8 bytes of a time, TIME_MIN <= time <= TIME_MAX; their order is that of the integers."""
    return (time + 2**63).to_bytes(8, "big")


def time_of(meta: bytes) -> int:
    """The time in a meta or global time, in the unit its source uses."""
    return int.from_bytes(meta[:8], "big") - 2**63


def global_time(time: int, source_rank: int, tie: int, ordinal: int) -> bytes:
    """The global time of an input item; `tie` and `ordinal` are 0 <= n < 2**64."""
    return pack_time(time) + varint(source_rank) + varint(tie) + varint(ordinal)


#: Appended to a moment: below every later item of that moment.
FIRST_OF_MOMENT = global_time(TIME_MIN, 0, 0, 0) + varint(0) + bytes(_IDENTITY_BYTES)


def global_time_of(meta: bytes) -> bytes:
    if meta[LATER_MARK_AT] == LATER_MARK:
        return meta[: skip_varint(meta, _root_end(meta)) + _IDENTITY_BYTES]
    return meta[: _input_end(meta, 0)]


def root_of(meta: bytes) -> bytes:
    """The global time of the input item that caused an item; for a later item this is not its own."""
    if meta[LATER_MARK_AT] == LATER_MARK:
        return meta[_root_start(meta) : _root_end(meta)]
    return meta[: _input_end(meta, 0)]


def is_later(meta: bytes) -> bool:
    """Whether a meta belongs to a later item, or to an item caused by one."""
    return meta[LATER_MARK_AT] == LATER_MARK


def phase_of_timers(steps: int) -> int:
    """The phase of a step's timers that has `steps` steps with timers in front of it; above PHASE_TIMERS_MAX there is
    none.
    """
    return PHASE_TIMERS + 2 * steps


def phase_of_loop(steps: int) -> int:
    """The phase of a loop that has `steps` steps with timers in front of it."""
    return phase_of_timers(steps) + 1


def moment_of(meta: bytes) -> bytes:
    """Time, rounds and phases of a later item: the common prefix of the global times of all later items of one
    moment.
    """
    return meta[: _root_start(meta)]


def reached(minimal_time: bytes) -> bytes:
    """A bound above every item of the moment that minimal time is in, and below every later moment."""
    if _is_moment(minimal_time):
        return moment_of(minimal_time) + END_OF_TIME
    return minimal_time


def round_of(meta: bytes) -> int:
    """The round of an item in its loop; 0 outside of loops, unless a step set another."""
    return read_varint(meta, _round_start(meta))[0] if meta[LATER_MARK_AT] == LATER_MARK else 0


def in_rounds(meta: bytes) -> bool:
    """Whether an item or a minimal time is in a loop, or in a later round than the first."""
    return _is_moment(meta) and (meta[9] != 0 or _is_loop[meta[10]])


def _is_moment(minimal_time: bytes) -> bool:
    """Whether it is the global time of a later item, not a heartbeat."""
    return len(minimal_time) > len(END_OF_TIME) and minimal_time[LATER_MARK_AT] == LATER_MARK


def hops_of(meta: bytes) -> int:
    """How many later items are in the chain from the input item to this one, itself included."""
    return read_varint(meta, _root_end(meta))[0] if meta[LATER_MARK_AT] == LATER_MARK else 0


def _input_end(meta: bytes, start: int) -> int:
    """The index after the global time of an input item that begins at `start`."""
    lengths = _lengths
    at = start + 8
    at += lengths[meta[at]]
    at += lengths[meta[at]]
    return at + lengths[meta[at]]


def _round_start(meta: bytes) -> int:
    """The index of the innermost round of a later item."""
    start = 9
    while _is_loop[meta[(phase := start + 1 if meta[start] <= _ONE_BYTE_MAX else skip_varint(meta, start))]]:
        start = phase + 1
    return start


def _root_start(meta: bytes) -> int:
    return skip_varint(meta, _round_start(meta)) + 1


def _root_end(meta: bytes) -> int:
    return _input_end(meta, _root_start(meta))


def later_meta(parent: bytes, ending: bytes, time: int, phase: int, rounds: int = 0, inward: int = 0) -> bytes | None:
    """The meta of a child that a map puts at a later moment; None if the moment is not later, so that the child is
    ordinary.

    Args:
        parent: meta of the map's input item.
        ending: what the map appends for an ordinary child: its rank and the child's index.
        time: time of the child; at the parent's own time it stays in the parent's round.
        phase: of the moment, 0 to 255.
        rounds: rounds later than the parent, at the parent's time.
        inward: 1 for the first round of the loop with phase `phase`, -1 to leave the parent's loop.
    """
    head = pack_time(time)
    level, parents_round = head + b"\xff", 0
    if parent[LATER_MARK_AT] == LATER_MARK:
        start = _round_start(parent)
        number, end = read_varint(parent, start)
        root_start = end + 1
        root_end = _input_end(parent, root_start)
        hops = read_varint(parent, root_end)[0] + 1
        if head == parent[:8]:
            level, parents_round = parent[:start], number
    else:
        root_start, root_end, hops = 0, _input_end(parent, 0), 1
    if inward < 0:
        moment = level[:-1] + _bytes[phase]
    else:
        moment = level + varint(parents_round + rounds) + _bytes[phase]
        if inward:
            moment += varint(0) + _bytes[PHASE_ITEMS]
    if moment <= parent[: len(moment)]:
        return None
    chain = parent[root_start:root_end] + varint(hops)
    return moment + chain + xxhash.xxh3_128_digest(parent + ending) + ending


def without_ordinal(meta: bytes) -> bytes:
    """The global time that a meta starts with, without its ordinal."""
    return meta[: skip_varint(meta, skip_varint(meta, 8))]


def tie_of(meta: bytes) -> int:
    return read_varint(meta, skip_varint(meta, 8))[0]


def with_ordinal(meta: bytes, ordinal: int) -> bytes:
    """The meta with another ordinal in its global time."""
    prefix = without_ordinal(meta)
    return prefix + varint(ordinal) + meta[skip_varint(meta, len(prefix)) :]


class MetaParts:
    """A meta split into its parts, for people: time, source rank, tie, ordinal, and the numbers of the path.

    For a later item, source rank, tie and ordinal are those of the input item that caused it, whose time is
    `root_time`.
    """

    __slots__ = ("time", "source_rank", "tie", "ordinal", "path", "root_time", "round", "hops")

    def __init__(self, meta: bytes) -> None:
        self.time = time_of(meta)
        root = root_of(meta)
        self.root_time = time_of(root)
        self.round, self.hops = round_of(meta), hops_of(meta)
        self.source_rank, at = read_varint(root, 8)
        self.tie, at = read_varint(root, at)
        self.ordinal, at = read_varint(root, at)
        at = len(global_time_of(meta))
        path: list[int] = []
        while at < len(meta):
            number, at = read_varint(meta, at)
            path.append(number)
        self.path = tuple(path)

    def __str__(self) -> str:
        tie = f" tie {self.tie:x}" if self.tie else ""
        ordinal = f" #{self.ordinal}" if self.ordinal else ""
        path = ".".join(map(str, self.path[:_SHOWN_MAX])) or "-"
        if len(self.path) > _SHOWN_MAX:
            path += f"... ({len(self.path):,} numbers)"
        time = "END" if self.time == END and self.hops else self.time
        since = f" round {self.round}" if self.round else ""
        since += f", later, set at time {self.root_time}," if self.hops else ""
        return f"time {time}{since} source {self.source_rank}{tie}{ordinal} path {path}"


def child_suffixes(rank: int, count: int) -> Sequence[bytes]:
    """The bytes that a map of this rank appends to the metas of its first `count` children."""
    head = varint(rank)
    return [head + varint(index) for index in range(count)]
