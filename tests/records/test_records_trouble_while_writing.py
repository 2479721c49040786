"""A record while something goes wrong: what was sealed stays, and the error says what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from framed import frame, written
from test_records import words
from waiting import HANG_S

import drift
from drift.records import recorder
from drift.records.format import Manifest, SourceInfo, read_manifest
from drift.records.messages import Arrival, Begin, Finish, Output
from drift.records.reader import Record
from drift_graph.canonical import encode_many
from drift_graph.meta import END_OF_TIME, pack_time
from drift_graph.metas import Metas


def run_script(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", script, str(path)], timeout=HANG_S, capture_output=True, text=True)


# A disk that is full, as near as one comes without root: no file may be longer than so much.
FULL = """
    import hashlib, resource, sys
    import drift
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
    graph = drift.Graph("words")
    graph.source("lines").flat_map(str.split).count(key=str.lower).sink("counts")
    def lines():
        for number in range(100_000_000):
            yield "to be" if number < 40_000 else hashlib.sha512(b"%d" % number).hexdigest()
    try:
        drift.run(graph, {"lines": lines()}, record=drift.Recording(sys.argv[1], part_items_max=30_000)).finish()
    except drift.SinkError as error:
        print(error)
"""


def test_a_file_that_cannot_be_written_ends_the_run_and_what_was_sealed_replays(tmp_path: Path) -> None:
    path = tmp_path / "record"
    done = run_script(FULL, path)
    assert "cannot be written: File too large" in done.stdout, done.stderr
    assert "of output are sealed and can be replayed" in done.stdout
    record = Record(path)
    assert record.manifest.items_out >= 30_000
    assert not drift.audit(path, reproduce=False).troubles
    assert not list(path.glob("*/.*")), "parts that were begun are left behind"
    recorded = [item.payload for item in record.items()]
    assert [item.payload for item in drift.replay(path, words(), until=len(recorded))] == recorded


@pytest.mark.parametrize("most", [5, 1000])
def test_a_pipe_that_takes_a_part_of_a_message_is_given_the_rest(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_some(pipe: int, parts: list[memoryview]) -> int:
        return os.write(pipe, b"".join(parts)[:most])

    monkeypatch.setattr(recorder.os, "writev", write_some)
    run = drift.run(words(), {"lines": ["to be or", "not to be"] * 100}, record=tmp_path / "record")
    assert list(run) == list(Record(tmp_path / "record").items())


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(drift.SinkError, match=r"cannot be made: Not a directory"):
        drift.run(words(), {"lines": ["to be"]}, record=tmp_path / "file" / "record").finish()


def test_a_writer_that_was_killed_is_named_and_what_it_sealed_stays(tmp_path: Path) -> None:
    path = tmp_path / "record"

    def lines() -> Iterator[str]:
        for number in range(10_000_000):
            if number == 60_000:
                assert run._recorder is not None and run._recorder._process is not None
                os.kill(run._recorder._process.pid, signal.SIGKILL)
            yield f"to be {number % 10}"

    run = drift.run(words(), {"lines": lines()}, record=drift.Recording(path, part_items_max=20_000))
    with pytest.raises(drift.ProcessError, match=r"the process that writes the record .* died \(exit code -9\); "):
        run.finish()
    if (path / "manifest.json").exists():  # it may have been killed before it could seal anything
        assert read_manifest(path).outcome.state == "running"
        assert not drift.audit(path, reproduce=False).troubles


@pytest.mark.parametrize("told", [5, 6, 9])
def test_what_comes_after_half_a_message_is_not_reported(
    told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come while a message is written; the run is then closed, which would tell more."""
    messages = 0

    def write(number: int, parts: list[memoryview]) -> int:
        nonlocal messages
        messages += 1
        if messages == told:
            os.write(number, b"".join(parts)[: 8 + len(parts[1]) // 2])
            raise KeyboardInterrupt
        return whole(number, parts)

    whole = os.writev
    monkeypatch.setattr("drift.children.os.writev", write)
    items = []
    with pytest.raises(KeyboardInterrupt):
        items.extend(drift.run(words(), {"lines": ["to be"] * 100}, record=tmp_path / "record", batch_items=10))
    record = Record(tmp_path / "record")
    assert record.manifest.outcome.state == "broken off"
    assert list(record.items()) == items
    assert not drift.audit(tmp_path / "record", reproduce=False).troubles


# The writer by itself: whatever a pipe carries before it breaks is a record.


def manifest() -> bytes:
    return msgspec.json.encode(
        Manifest(
            graph="numbers", sources=[SourceInfo("n", False, {})], sinks=["out"], engine="local", workers=1, settings={}
        )
    )


def frames(folder: Path) -> list[bytes]:
    """A run of 10 batches of 100 numbers that are passed on; each is released after it has come."""
    made = [frame(Begin(str(folder), manifest(), 250, 1 << 20, 1000.0))]
    for batch in range(10):
        first, numbers = batch * 100, list(range(batch * 100, batch * 100 + 100))
        data = encode_many(numbers)
        made.append(frame(Arrival(batch, 0, batch, 100, first, b"\0\0\0", data, pack_time(first + 100), [])))
        metas = Metas.numbered(first, 100, b"\0\0\0\0")
        made.append(frame(Output(first, 100, None, metas.encoded(), data, 0)))
    made.append(frame(Arrival(10, 0, 10, 0, None, b"", b"", END_OF_TIME, [])))
    made.append(frame(Finish("finished", "", "", False, "2026-01-01", "")))
    return made


@pytest.mark.parametrize("cut", [*range(10), 15, 20, 21])
@pytest.mark.parametrize("torn", [0, 5, 20])
def test_wherever_the_pipe_breaks_what_came_is_a_record_whose_output_its_input_allows(
    cut: int, torn: int, tmp_path: Path
) -> None:
    made = frames(tmp_path)
    whole = b"".join(made[: cut + 1]) + made[cut + 1][:torn]
    written(whole)
    record = Record(tmp_path)
    assert record.manifest.outcome.state == "broken off"
    items = list(record.items())
    numbers = [number for batch in record.arrivals() for number in record.restored(batch.data)]
    assert [item.payload for item in items] == numbers[: len(items)]
    assert len(numbers) == min((cut + 1) // 2 * 100, 1000) and len(items) == cut // 2 * 100
    assert not drift.audit(tmp_path, reproduce=False).troubles
    graph = drift.Graph("numbers")
    graph.source("n").sink("out")
    audit = drift.audit(tmp_path, graph)
    assert not audit.troubles
    assert [check.found for check in audit.checks if check.result == "not checked"] == ["the record has no fingerprint"]


def test_a_pipe_that_carries_all_is_a_finished_record(tmp_path: Path) -> None:
    written(b"".join(frames(tmp_path)))
    record = Record(tmp_path)
    assert (record.manifest.outcome.state, record.manifest.items_out) == ("finished", 1000)
    assert len(record.manifest.of("output")) > 1


def test_a_run_with_another_digest_than_its_record_is_a_bug_that_is_reported(tmp_path: Path) -> None:
    made = frames(tmp_path)
    made[-1] = frame(Finish("finished", "", "", False, "2026-01-01", "0" * 32))
    with pytest.raises(drift.DriftBug, match="and the run's 00000000000000000000000000000000; please report it"):
        written(b"".join(made))


def test_the_writer_reads_before_it_loads_what_takes_long() -> None:
    reads, _, _ = recorder.PROGRAM.partition("from drift.records.process")
    program = reads + "\nprint(drift.__version__, *{'numpy', 'pyarrow', 'msgspec', 'drift.running'} & set(sys.modules))"
    package = str(Path(drift.__file__).parent)
    said = subprocess.run(
        [sys.executable, "-P", "-c", program, "1", package, "7"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (said.stdout, said.stderr) == ("7\n", "")


@pytest.mark.parametrize("of", ["graph", "source", "step", "sink", "path"])
def test_a_name_that_is_no_utf8_is_refused_before_anything_begins(of: str, tmp_path: Path) -> None:
    named = {each: f"a-{each}" for each in ("graph", "source", "step", "sink", "path")} | {of: "a\udc80b"}
    graph = drift.Graph(named["graph"])
    graph.source(named["source"]).map(lambda n: n, name=named["step"]).sink(named["sink"])
    with pytest.raises(drift.SettingsError, match="lone surrogate") as caught:
        drift.run(graph, {named["source"]: range(5)}, record=tmp_path / named["path"])
    assert r"a\udc80b" in str(caught.value) and str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_quotes_a_lone_surrogate_ends_a_record_like_any_other(tmp_path: Path) -> None:
    def bad(n: int) -> int:
        raise ValueError("\udc80")

    graph = drift.Graph("quotes")
    graph.source("numbers").map(bad).sink("out")
    with pytest.raises(drift.StepError):
        drift.run(graph, {"numbers": range(5)}, record=tmp_path / "record").finish()
    assert r"raised ValueError: \udc80" in read_manifest(tmp_path / "record").outcome.error
