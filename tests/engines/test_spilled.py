"""The payloads of the digest's open block are in a file where they are large, and nobody sees a difference."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift import spilled
from drift.engines.zeromq import engine
from drift.spilled import Spilled
from drift_barrier.digest import BLOCK_ITEMS, Digest, Encoded, ListedParts, OpenBlock
from drift_graph.canonical import canonical


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.sampled_from([1, 7, 64, 10_000]), st.integers(0, 300))
def test_spilled_bytes_are_those_of_a_list_at_any_moment(
    parts: list[bytes | None], memory_bytes: int, start: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "MEMORY_BYTES", memory_bytes)
        patch.setattr(spilled, "_READ_BYTES", 5)
        found, in_memory, expected = Spilled(), ListedParts(), b""
        for part in parts:
            if part is None:
                half = iter(found)  # that nobody reads to its end
                next(half, None)
                assert b"".join(found) == expected
                assert b"".join(found.since(start)) == b"".join(in_memory.since(start)) == expected[start:]
            else:
                found.append(part)
                in_memory.append(part)
                expected += part
        assert b"".join(found) == expected


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data())
def test_what_came_between_two_moments_is_given_in_bounded_parts(sizes: list[int], data: st.DataObject) -> None:
    block = OpenBlock()
    moments = [block.opened()]
    for number, size in enumerate(sizes):
        block.add(Encoded(1, b"m%d" % number, bytes([number]) * size, False))
        moments.append(block.opened())
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(sizes))] * 2)))
    parts = [*moments[last].since(moments[first].extent, 7)]
    assert b"".join(part.payloads for part in parts) == b"".join(block.payloads[first:last])
    assert b"".join(part.metas for part in parts) == b"".join(block.metas[first:last])
    assert sum(part.items for part in parts) == last - first
    assert [len(part.payloads) for part in parts[:-1]] == [7] * (len(parts) - 1)


def test_a_thread_may_read_while_another_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled, "MEMORY_BYTES", 50)
    parts, expected = Spilled(), b"".join(b"%06d" % number for number in range(4000))
    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(lambda: [parts.append(b"%06d" % number) for number in range(4000)])
        while not appended.done():
            found = b"".join(parts.since(600))
            assert found == expected[600 : 600 + len(found)]
    assert b"".join(parts) == expected


def test_a_digest_with_files_is_the_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled, "MEMORY_BYTES", 100)
    plain, in_files = Digest(), Digest(new_parts=Spilled)
    for at in range(300):
        part = Encoded(30, at.to_bytes(8, "big"), bytes([at % 256]) * 70, False)
        room = 4096 - 30 * at % 4096
        for each in (part,) if room >= 30 else (part._replace(items=room), part._replace(items=30 - room)):
            plain.add_encoded(each)
            in_files.add_encoded(each)
        if at % 50 == 0:
            assert in_files.open_block() == plain.open_block()
            assert [*in_files.opened()] == [*plain.opened()]
    assert len(plain.blocks) == 2
    assert in_files.hexdigest() == plain.hexdigest()


def test_a_file_has_no_name_and_where_there_is_no_room_the_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(spilled, "MEMORY_BYTES", 10)
    parts = Spilled()
    parts.append(b"0123456789")
    assert [*parts] == [b"0123456789"]
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    graph = drift.Graph("g")
    graph.source("in").sink("out")
    with pytest.raises(drift.StorageError, match=r"nowhere.*TMPDIR"):
        drift.run(graph, {"in": ["long text", "and more"]}).finish()


MEASURED = """
import sys
import drift
from drift.engines.memory import peak_memory_bytes

def large(n):
    return "x" * 2_000_000

graph = drift.Graph("g")
graph.source("in").map(large).sink("out")
state = drift.Checkpoints("state", every_s=0, every_items=20) if sys.argv[1] == "state" else None
run = drift.run(graph, {"in": range(120)}, state=state, batch_items=4)
for item in run:
    if state is not None and run.resumed_from is None and item.position == 100:
        break
else:
    assert run.digest
run.close()
print(peak_memory_bytes() >> 20)
"""


@pytest.mark.long
@pytest.mark.parametrize("state", ["state", "none"])
def test_large_payloads_do_not_stay_in_memory(tmp_path: Path, state: str) -> None:
    command = [sys.executable, "-c", MEASURED, state]
    for _ in range(2):  # with state the second one resumes
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 180  # 240 MB came out
    if state == "state":
        assert max(path.stat().st_size for path in (tmp_path / "state").glob("*/*")) < 2 << 20


def padded(number: int) -> str:
    return "x" * 1000 + str(number)


def test_over_zeromq_neither_the_barrier_nor_what_recovery_needs_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Spilled] = []

    class Seen(Spilled):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(spilled, "MEMORY_BYTES", 1)
    monkeypatch.setattr(engine, "Spilled", Seen)
    graph = drift.Graph("g")
    graph.source("in").map(padded).sink("out")
    items = range(BLOCK_ITEMS + 400)
    report = drift.run(graph, {"in": items}, engine="zeromq", workers=1).finish()
    assert report.digest == drift.run(graph, {"in": items}).finish().digest
    last_bytes = sum(len(canonical(padded(number))) for number in items[BLOCK_ITEMS:])
    assert [sum(map(len, each)) for each in made].count(last_bytes) == 2
    assert not any(each._stored[1] for each in made)
