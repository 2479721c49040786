"""What the tables of a backend hold: their keys, and the meaning of their values.

Invariant: what is read of a checkpoint is as it was written, or refused.

Why: a manifest ends with its own hash and holds those of its snapshots; a row of the base begins with one of its key
and its state; and the base is never as of an older checkpoint than a manifest says.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import xxhash

from drift.state.backend import Expected, Reader
from drift.state.checkpoint import Checkpoint, StateDamaged, decoded
from drift.state.snapshots import LaterForm, StoredSnapshot
from drift.state.snapshots import decoded as snapshot_of

#: The only row of the table of that name.
MERGED = b"cut"
_DIGITS = 10
_HASH_BYTES = 8
_as_later = msgspec.msgpack.Decoder(list[LaterForm]).decode


def name_of(number: int, name: str) -> str:
    """The stored name of a snapshot of a checkpoint."""
    return f"{number:0{_DIGITS}}-{name}"


def key_of(number: int) -> bytes:
    """The key of a checkpoint's manifest."""
    return b"%0*d.cut" % (_DIGITS, number)


def number_of(name: bytes | str) -> int:
    """The number of the checkpoint that a stored name begins with."""
    text = name if isinstance(name, str) else name.decode()
    return int(text[:_DIGITS].partition(".")[0])


def numbers_in(reader: Reader) -> list[int]:
    """The numbers of the stored manifests, in order."""
    return sorted(map(number_of, reader.sizes("cuts")))


def manifest(reader: Reader, key: bytes, where: str) -> Checkpoint | None:
    (data,) = reader.read("cuts", [key])
    return None if data is None else decoded(data, f"{key.decode()} in {where}")


def merged_in(reader: Reader) -> int:
    """The checkpoint that the base is as of; 0 before the first."""
    (found,) = reader.read("merged", [MERGED])
    return int(found or 0)


def snapshots_of(reader: Reader, checkpoint: Checkpoint, merged: int, where: str) -> Iterator[StoredSnapshot]:
    """The snapshots between the base and a checkpoint, the oldest first."""
    check_base(merged, checkpoint.base, where)
    for name, expected in sorted(checkpoint.snapshots.items()):
        if number_of(name) <= merged:
            continue
        (data,) = reader.read("snapshots", [name.encode()])
        if data is None:
            raise StateDamaged(
                f"snapshot {name} of {where}, which checkpoint {checkpoint.number} needs, was removed; "
                f"resume from an earlier checkpoint with from_checkpoint=, or start a new run"
            )
        if xxhash.xxh3_128_digest(data) != expected:
            raise StateDamaged(
                f"snapshot {name} of {where}, which checkpoint {checkpoint.number} needs, was changed since it was "
                f"written: its hash differs; resume from an earlier checkpoint with from_checkpoint=, or start a new "
                f"run"
            )
        yield snapshot_of(data, f"snapshot {name} of {where}")


def as_merged(number: int) -> Expected:
    """The row of `merged` in a base as of a checkpoint, 1 or more."""
    return Expected("merged", MERGED, b"%d" % number)


def check_base(merged: int, expected: int, where: str) -> None:
    """Raises StateDamaged: the base is as of an older checkpoint than it was."""
    if merged < expected:
        raise StateDamaged(
            f"the states below the oldest checkpoint in {where} are as of checkpoint {merged}, and they had been "
            f"merged up to checkpoint {expected}: they were removed, or older data was put in their place, so the run "
            f"cannot resume; bring them back, or start a new run with another state="
        )


def later_in(reader: Reader) -> list[LaterForm]:
    """The later items of the base."""
    parts = reader.read("pending", sorted(reader.sizes("pending")))
    return [each for part in parts if part is not None for each in _as_later(part)]


def part_of(number: int) -> bytes:
    """The key of a part of later items, or of hashes."""
    return b"%0*d" % (_DIGITS, number)


def row_of(key: bytes, state: bytes) -> bytes:
    """The row of a key in the base: its state, or hashes, behind a hash of both."""
    return xxhash.xxh3_64_digest(key + state) + state


def state_of(key: bytes, row: bytes, step: str, where: str) -> bytes:
    """The state in a row. Raises StateDamaged: it was changed since it was written."""
    state = row[_HASH_BYTES:]
    if row_of(key, state) != row:
        raise StateDamaged(
            f"the base of {where} was changed since it was written: the state of a key of step {step!r} has another "
            f"hash; the run cannot resume from it; bring back a copy, or start a new run with another state="
        )
    return state
