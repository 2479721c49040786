"""The payloads of the digest's open block are in a file where they are large, and nobody sees a difference."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift import spilled
from drift.engines.zeromq import engine
from drift.spilled import Spilled
from drift_barrier.digest import BLOCK_ITEMS, Digest, Encoded
from drift_graph.canonical import canonical


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.sampled_from([1, 7, 64, 10_000]))
def test_spilled_bytes_are_those_of_a_list_at_any_moment(parts: list[bytes | None], memory_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "MEMORY_BYTES", memory_bytes)
        patch.setattr(spilled, "_READ_BYTES", 5)
        found, expected = Spilled(), b""
        for part in parts:
            if part is None:
                half = iter(found)  # that nobody reads to its end
                next(half, None)
                assert b"".join(found) == expected
            else:
                found.append(part)
                expected += part
        assert b"".join(found) == expected


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
            assert in_files.opened() == plain.opened()
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
import drift
from drift.engines.memory import peak_memory_bytes

def large(n):
    return "x" * 2_000_000

graph = drift.Graph("g")
graph.source("in").map(large).sink("out")
run = drift.run(graph, {"in": range(120)})
for _ in run:
    pass
assert run.digest
print(peak_memory_bytes() >> 20)
"""


def test_large_payloads_do_not_stay_in_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 160  # 240 MB came out


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
    assert not any(each._in_memory for each in made)
