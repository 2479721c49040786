"""Snapshots of checkpoints on a shelf: by key, from files, as from memory."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from drift.engines.zeromq.roles import Carrier
from drift.engines.zeromq.shelf import SnapshotFiles
from drift.engines.zeromq.wire import Codec
from drift.machines.checkpoints import DELETED, Entries
from drift.machines.nodes.messages import CheckpointReply
from drift.machines.nodes.node import ACKER, Send
from drift.machines.nodes.snapshots import InMemory, NoRoom, SnapshotName, SnapshotNames, merged, restored_from
from drift.machines.sent import LaterSent
from drift.machines.worker import Snapshot

KEYS: list[Any] = [*range(300), *(f"key {n}" for n in range(300)), (1, "a"), (1, None), None, b"\x01bytes"]


def snapshots(seed: int, count: int, keys: int) -> list[Snapshot]:
    """Snapshots that follow one another; a key comes again, and some are gone."""
    chosen = Random(seed)
    made: list[Snapshot] = []
    for nth in range(count):
        values = {
            key: DELETED if chosen.random() < 0.2 else (nth, chosen.random()) for key in chosen.sample(KEYS, keys)
        }
        timed = {key: (nth, ["timer"] if chosen.random() < 0.3 else []) for key in chosen.sample(KEYS, keys // 9)}
        later = [LaterSent(b"\x01", "out", bytes([10 * nth + due]), None, 1) for due in (15, 25)]
        made.append(
            Snapshot(
                bytes([10 * nth + 10]), {"sums": Entries.of(values.items()), "late": Entries.of(timed.items())}, later
            )
        )
    return made


@pytest.mark.parametrize(("count", "keys"), [(1, 0), (1, 9), (5, 40), (12, 500)])
def test_what_is_found_by_key_is_the_newest_of_all_however_files_were_merged(
    tmp_path: Path, count: int, keys: int
) -> None:
    files = SnapshotFiles(str(tmp_path), "writer", ["late"])
    checkpoint_snapshots = snapshots(count, count, keys)
    expected = merged(checkpoint_snapshots)
    names = [files.put(snapshot)[0] for snapshot in checkpoint_snapshots]
    check(files, [files.merge([name])[0] for name in names], expected)
    for step in range(count):
        check(files, names, expected)
        if step % 3 == 1:
            names[:2] = [files.merge(names[:2])[0]]
        elif step % 3 == 2:
            names[-1:] = [files.merge(names[-1:])[0]]
    check(files, [files.merge(names)[0]], expected)


def check(files: SnapshotFiles, names: list[bytes], expected: Snapshot) -> None:
    checkpoint = expected.checkpoint
    at_once, lookup = restored_from(files.get(names), checkpoint)
    for step, entries in expected.states.items():
        present = {key: value for key, value in entries if value is not DELETED}
        assert dict(lookup(step)(KEYS)) == present
        if step == "late":
            timed = {key: value for key, value in present.items() if value[1]}
            assert {key: value for key, value in at_once.states.get(step, ()) if value[1]} == timed
        else:
            assert step not in at_once.states
    assert sorted(at_once.later) == sorted(expected.later)


def test_what_is_gone_hides_what_lies_below_all_snapshots() -> None:
    shelf = InMemory(())
    name, *_ = shelf.put(Snapshot(b"\x01", {"sums": Entries.of([(1, "new"), (2, DELETED)])}, []))
    _, lookup = restored_from(shelf.get([name]), b"\x01", lambda step: lambda keys: [(key, "old") for key in keys])
    assert dict(lookup("sums")([1, 2, 3])) == {1: "new", 3: "old"}


def test_there_may_be_no_room(tmp_path: Path) -> None:
    files = SnapshotFiles(str(tmp_path / "gone"), "writer", ())
    with pytest.raises(NoRoom, match=r"writer\.1\.snapshot cannot be written"):
        files.put(Snapshot(b"\x01", {}, []))


@pytest.mark.parametrize("sizes", [[1000] * 1000, [100_000] * 300, [90_000, 3, 700] * 300])
def test_there_are_few_snapshots_however_many_have_come(sizes: list[int]) -> None:
    kept = SnapshotNames()
    copied = 0
    for nth, size in enumerate(sizes):
        kept.add([SnapshotName(nth.to_bytes(2, "big"), b"", size)])
        while due := next(kept.due(), None):
            copied += sum(snapshot.size for snapshot in due)
            kept.replace(
                due, SnapshotName(due[-1].checkpoint, b"", sum(snapshot.size for snapshot in due), merged=True)
            )
    assert len(kept.all()) < 32
    assert copied < 6 * sum(sizes)


def test_a_worker_on_another_machine_keeps_the_snapshots_of_its_last_reply(tmp_path: Path) -> None:
    codec, sent = Codec(0, 1), list[Any]()
    carrier = Carrier(codec)
    carrier.shelf = SnapshotFiles(str(tmp_path), "worker", ["late"])
    carrier.boxes[ACKER] = SimpleNamespace(send=sent.append)  # type: ignore[assignment]
    names = [SnapshotName(each.checkpoint, *carrier.shelf.put(each)) for each in snapshots(1, 3, 9)]
    for number in range(3):
        some = names[max(number - 1, 0) : number + 1]  # the one before may not have been committed
        reply = CheckpointReply(number, 0, names[number].checkpoint, some)
        carrier.carry([Send(ACKER, reply)], lambda *unsent: pytest.fail(str(unsent)))
        assert len(sent) == len(some) + 1  # and the reply comes last
        sent.clear()
    left = {each.name for each in names if (tmp_path / os.fsdecode(each.name)).exists()}
    assert left == {each.name for each in names[1:]}
