"""A record gives back what was run: the input with its decisions, the output, the reasons; and it replays."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import signal
import subprocess
import sys
import textwrap
import threading
import types
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from waiting import HANG_S, wait_until

import drift
from drift.records.format import read_manifest
from drift.records.reader import Record
from drift_graph.item import Item
from drift_graph.meta import END_OF_TIME

EXAMPLES = Path(__file__).parents[2] / "examples"


def words() -> drift.Graph:
    graph = drift.Graph("words")
    graph.source("lines").flat_map(str.split).count(key=str.lower).sink("counts")
    return graph


LINES = [f"to be or not to be {number % 7}" for number in range(3000)]


class Colour(enum.Enum):
    RED = "r"


Point = namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Trip:
    origin: str
    legs: tuple[Point, ...]
    seen: int = dataclasses.field(default=0, compare=False)


class Order(msgspec.Struct):
    colour: Colour
    trip: Trip


class Picky(msgspec.Struct):
    name: str

    def __post_init__(self) -> None:
        if self.name == "changed":
            raise ValueError("not this one")


def picky() -> Picky:
    """One that its own class would not make again."""
    made = Picky("a")
    made.name = "changed"
    return made


PAYLOADS: list[Any] = [
    1, -(2**80), 1.5, float("inf"), True, None, "text", "\udcff", b"\x00", (), (1, (2, [3, {"b": 1, "a": (2,)}])),
    {"z": 1, "a": [1, 2]}, {(1, 2): {3}}, frozenset({1, 2}), Colour.RED, Point(1, 2), Trip("JFK", (Point(1, 2),), 7),
    Order(Colour.RED, Trip("LGA", ())), [Order(Colour.RED, Trip("LGA", ()))], bytearray(b"x"), 1 + 2j,
]  # fmt: skip


def same(payload: Any) -> Any:
    return payload


def echo() -> drift.Graph:
    graph = drift.Graph("echo")
    graph.source("things").map(same).sink("out")
    return graph


@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_a_record_holds_the_output_of_its_run_and_its_input(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "record"
    run = drift.run(words(), {"lines": LINES}, engine=engine, record=path)
    items = list(run)
    record = Record(path)
    manifest = record.manifest
    assert list(record.items()) == items
    assert (manifest.digest, manifest.items_in, manifest.items_out) == (run.digest, len(LINES), len(items))
    assert (manifest.outcome.state, manifest.engine, manifest.graph) == ("finished", engine, "words")
    batches = list(record.arrivals())
    assert [line for batch in batches for line in record.restored(batch.data)] == LINES
    assert batches[-1].heartbeat == END_OF_TIME
    assert record.item(4097) == items[4097]
    assert list(record.items(4000, 4100)) == items[4000:4100]


def test_an_input_item_is_found_by_its_global_time(tmp_path: Path) -> None:
    drift.run(by_time(), {"trips": TRIPS[:90], "more": TRIPS[:30]}, record=tmp_path / "record", batch_items=20).finish()
    record = Record(tmp_path / "record")
    times = [time for batch in record.arrivals() for time in batch.metas]
    found = [record.find_input(time) for time in times]
    assert [(each.row, each.global_time) for each in found if each is not None] == list(enumerate(times))
    assert record.find_input(times[0][:-1] + b"\x7e") is None


def test_block_hashes_in_a_record_are_those_of_the_digest(tmp_path: Path) -> None:
    run = drift.run(words(), {"lines": LINES}, record=tmp_path / "record")
    run.finish()
    *full, last = Record(tmp_path / "record").blocks()
    assert [block.hash for block in full] == run._engine.blocks()
    assert len(full) == 21000 // 4096
    assert (last.number, last.rows) == (len(full), 21000 % 4096)


def test_payloads_come_back_equal_with_their_types_and_the_order_of_their_dicts(tmp_path: Path) -> None:
    drift.run(echo(), {"things": PAYLOADS}, record=tmp_path / "record").finish()
    record = Record(tmp_path / "record")
    back = [payload for batch in record.arrivals() for payload in record.restored(batch.data)]
    assert [(type(each), each) for each in back] == [(type(each), each) for each in PAYLOADS]
    assert list(back[11]) == ["z", "a"]
    assert [item.payload for item in record.items()] == PAYLOADS
    assert back[-5].seen == 7
    assert set(record.manifest.classes) == {"Colour", "Point", "Trip", "Order"}
    assert record.manifest.classes["Trip"] == f"{__name__}:Trip"


@pytest.mark.parametrize("number", [0, 5000])
def test_a_payload_that_would_not_come_back_is_an_error_at_its_first_item(number: int, tmp_path: Path) -> None:
    things: list[Any] = [*range(number), picky(), 1]
    items = []
    with pytest.raises(drift.PayloadError, match=r"cannot store: .*ValueError: not this one"):
        items.extend(drift.run(echo(), {"things": things}, record=tmp_path / "record"))
    assert [item.payload for item in items] == list(range(number))
    record = Record(tmp_path / "record")
    assert record.manifest.outcome.kind == "PayloadError"
    assert [item.payload for item in record.items()] == list(range(number))


def test_a_batch_that_was_cut_heartbeats_nothing_past_what_was_left_out(tmp_path: Path) -> None:
    graph = drift.Graph("cut")
    whole, cut = (graph.source(name, time=drift.EventTime(time=first, lateness=0)) for name in ("whole", "cut"))
    whole.merge(cut).sink("out")
    given = {"whole": [(time, None) for time in range(1, 9)], "cut": [(2, None), (5, picky()), (9, None)]}
    items = []
    with pytest.raises(drift.PayloadError):
        items.extend(drift.run(graph, given, record=tmp_path / "record"))
    assert [item.time for item in items] == [1]  # the source's heartbeat was 2
    assert [item.time for item in Record(tmp_path / "record").items()] == [1]


def first(row: tuple[int, Any]) -> int:
    return row[0]


def test_a_class_inside_a_function_is_refused_with_the_fix(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Local:
        name: str

    graph = drift.Graph("local")
    graph.source("numbers").map(lambda n: Local("x") if n == 3 else n).sink("out")
    items = []
    with pytest.raises(drift.PayloadError, match=r"is defined inside a function.*define it at the top of a module"):
        items.extend(drift.run(graph, {"numbers": range(10)}, record=tmp_path / "record"))
    assert [item.payload for item in items] == [0, 1, 2]


def late(payload: tuple[int, str]) -> int:
    return payload[0]


def by_time() -> drift.Graph:
    graph = drift.Graph("by time")
    policy = drift.EventTime(time=late, lateness=5, late="divert")
    graph.source("trips", time=policy).count(key=lambda trip: trip[1]).sink("counts")
    graph2 = graph.source("more", time=policy)
    graph2.sink("more out")
    return graph


TRIPS = [(time - (40 if time % 97 == 0 else time % 7), "ab"[time % 2]) for time in range(2000)]


@pytest.mark.parametrize(("engine", "workers"), [("local", 1), ("reference", 1), ("zeromq", 2)])
def test_a_replay_repeats_the_decisions_and_gives_the_same_output(engine: str, workers: int, tmp_path: Path) -> None:
    path = tmp_path / "record"
    graph = by_time()
    run = drift.run(graph, {"trips": TRIPS, "more": TRIPS[::3]}, record=path, batch_items=300)
    items = list(run)
    assert run.late
    for batch_items in (70, 4096):
        again = drift.replay(path, graph, engine=engine, workers=workers, batch_items=batch_items)
        assert list(again) == items
        assert again.digest == run.digest
        assert again.late == run.late
        assert again.report.items_in == run.report.items_in


def test_a_replay_hashes_as_its_run_did(tmp_path: Path) -> None:
    run = drift.run(words(), {"lines": LINES[:10]}, record=tmp_path / "record", digest="sha256")
    assert run.finish().digest == drift.replay(tmp_path / "record", words()).finish().digest
    assert len(run.digest) == 64


def test_what_another_graph_gives_after_the_recorded_end_is_a_difference(tmp_path: Path) -> None:
    shorter, longer = drift.Graph("numbers"), drift.Graph("numbers")
    shorter.source("n").filter(lambda n: n < 9, name="all").sink("out")
    longer.source("n").filter(lambda n: n < 99, name="all").sink("out")
    drift.run(shorter, {"n": range(10)}, record=tmp_path / "record").finish()
    audit = drift.audit(tmp_path / "record", longer, engines=["local", "reference"], seeds=[0])
    found = [check.troubles[0].position for check in audit.checks if check.troubles]
    assert found == [9, 9, 9]


def test_a_replay_ends_at_a_position(tmp_path: Path) -> None:
    items = list(drift.run(words(), {"lines": LINES}, record=tmp_path / "record"))
    for until in (0, 1, 4096, 10_000):
        run = drift.replay(tmp_path / "record", words(), until=until)
        assert list(run) == items[:until]
        assert run.report.items_out == until
    with pytest.raises(drift.SettingsError, match="until=-1"):
        drift.replay(tmp_path / "record", words(), until=-1)


def test_a_run_that_failed_fails_again_at_the_same_item(tmp_path: Path) -> None:
    graph = drift.Graph("bad")
    graph.source("numbers").map(lambda n: 10 // n).sink("out")
    with pytest.raises(drift.StepError) as first:
        drift.run(graph, {"numbers": [5, 2, 0, 1]}, record=tmp_path / "record").finish()
    record = Record(tmp_path / "record")
    assert (record.manifest.outcome.state, record.manifest.outcome.kind) == ("failed", "StepError")
    with pytest.raises(drift.StepError) as again:
        drift.replay(tmp_path / "record", graph).finish()
    assert str(again.value) == str(first.value)


def test_a_late_item_that_ended_a_run_ends_its_replay_in_the_same_words(tmp_path: Path) -> None:
    graph = drift.Graph("strict")
    graph.source("trips", time=drift.EventTime(time=late, lateness=5)).sink("out")
    with pytest.raises(drift.LateItem) as first:
        drift.run(graph, {"trips": TRIPS}, record=tmp_path / "record").finish()
    items = list(Record(tmp_path / "record").items())
    again = []
    with pytest.raises(drift.LateItem) as second:
        again.extend(drift.replay(tmp_path / "record", graph))
    assert str(second.value) == str(first.value)
    assert again == items


def test_a_record_has_what_was_accepted_also_where_as_many_were_read(tmp_path: Path) -> None:
    """An item far ahead waits: its batch lacks it, and has one that had waited before."""
    graph = drift.Graph("ahead")
    graph.source("times", time=drift.EventTime(time=int, lateness=9, future_max=9)).sink("out")
    times = [1, 2, 3, 4, 5, 6, 7, 20, 12, 13, 14, 30, 22, 23, 24, 25]
    items = list(drift.run(graph, {"times": times}, record=tmp_path / "record", batch_items=4))
    assert [item.payload for item in items] == sorted(times)
    assert list(drift.replay(tmp_path / "record", graph)) == items


def test_a_record_says_by_what_its_run_was_stopped_between_two_items(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), drift.run(words(), {"lines": ["to be"]}, record=tmp_path / "record") as run:
        next(run)
        raise KeyboardInterrupt
    outcome = Record(tmp_path / "record").manifest.outcome
    assert (outcome.state, outcome.kind) == ("stopped", "KeyboardInterrupt")


def test_a_run_that_is_left_is_a_shorter_record(tmp_path: Path) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "to be"

    items = []
    with drift.run(words(), {"lines": endless()}, record=tmp_path / "record") as run:
        for item in run:
            items.append(item)
            if len(items) == 20_000:
                break
    record = Record(tmp_path / "record")
    assert record.manifest.outcome.state == "stopped"
    assert list(record.items())[: len(items)] == items
    runs = [
        drift.replay(tmp_path / "record", words()),
        drift.replay(tmp_path / "record", words(), engine="zeromq", workers=2),
    ]
    for run in runs:
        assert list(run)[: record.manifest.items_out] == list(record.items())
    assert runs[0].digest == runs[1].digest != ""


KILLED = """
    import os, signal, sys
    import drift
    def endless():
        for number in range(10**9):
            if number == 60_000:
                print("far enough", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            yield f"to be {number}"
    graph = drift.Graph("words")
    graph.source("lines").flat_map(str.split).count(key=str.lower).sink("counts")
    drift.run(graph, {"lines": endless()}, record=drift.Recording(sys.argv[1], part_items_max=20_000)).finish()
"""


def test_what_a_killed_run_leaves_is_a_record_that_replays(tmp_path: Path) -> None:
    path = tmp_path / "record"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path)]
    done = subprocess.run(command, timeout=HANG_S, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: has_ended(path), "the writer has sealed what it was told")
    record = Record(path)
    assert record.manifest.outcome.state == "broken off"
    assert record.manifest.items_in > 40_000
    assert record.manifest.items_out > 100_000
    assert len(record.manifest.of("output")) > 1
    recorded = [(item.meta, item.payload) for item in record.items()]
    again = [(item.meta, item.payload) for item in drift.replay(path, words())]
    assert again[: len(recorded)] == recorded


def has_ended(path: Path) -> bool:
    return (path / "manifest.json").exists() and read_manifest(path).outcome.state != "running"


def test_a_live_run_is_replayed_by_its_stamps_and_idle_decisions(tmp_path: Path) -> None:
    graph = drift.Graph("live")
    idle = drift.EventTime(time=late, lateness=3, late="divert", idle_after_ms=1)
    merged = graph.source("trips", time=idle).merge(graph.source("stamped"))
    merged.count(key=lambda trip: trip[1]).sink("counts")
    given, go_on = threading.Event(), threading.Event()

    def waiting() -> Iterator[tuple[int, str]]:
        yield from TRIPS[:50]  # some of it may be late already, where its thread has stood still
        given.set()
        assert go_on.wait(HANG_S)
        yield from TRIPS[20:90]  # some of it is below the heartbeat it had while it was idle

    path = tmp_path / "record"
    sources = {"trips": drift.sources.live(waiting()), "stamped": drift.sources.live(TRIPS[:40])}
    items, batches = [], 0
    with drift.run(graph, sources, record=path) as run:
        for batch in run.batches():
            items += [
                Item(*row)
                for row in zip(batch.payloads, itertools.count(batch.position), ["counts"] * 999, batch.metas)
            ]
            batches += given.is_set()
            if batches > 200:
                go_on.set()
    assert run.late
    assert read_manifest(path).sources[0].live
    for engine in ("local", "reference"):
        again = drift.replay(path, graph, engine=engine)
        assert list(again) == items
        assert again.late == run.late


def test_at_recorded_pace_a_batch_waits_for_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record"
    drift.run(words(), {"lines": LINES}, record=path, batch_items=500).finish()
    given = [batch.at_ns for batch in Record(path).arrivals()]
    clock = 0

    def now_ns() -> int:
        return clock

    monkeypatch.setattr("drift.engines.recorded.time.monotonic_ns", now_ns)
    run = drift.replay(path, words(), pace="recorded")
    feed = run._feed
    feed.intake.policy.pace(500)  # no batch is split
    assert feed.live
    for number, at_ns in enumerate(given):
        if number:
            clock = at_ns - given[0] - 1
            assert feed.poll(b"") == []
            clock += 1
        assert len(feed.poll(b"")) == 1
    run.close()


def test_a_record_says_what_ran_where_and_with_what(tmp_path: Path) -> None:
    policy = drift.EventTime(time=late, lateness=7, late="divert")
    graph = drift.Graph("told")
    graph.source("trips", time=policy).sink("out")
    settings = {"engine": "zeromq", "workers": 2, "batch_items": 100, "digest": "sha256"}
    drift.run(graph, {"trips": TRIPS[:30]}, record=tmp_path / "record", **settings).finish()  # type: ignore[arg-type]
    manifest = read_manifest(tmp_path / "record")
    assert (manifest.engine, manifest.workers, manifest.algorithm) == ("zeromq", 2, "sha256")
    assert manifest.settings["batch_items"] == 100
    assert manifest.sources[0].policy["lateness"] == 7 and "late (" in manifest.sources[0].policy["time"]
    assert manifest.packages["msgspec"] == msgspec.__version__
    assert manifest.python.endswith(sys.version.split()[0])
    assert "flowchart" in manifest.graph_mermaid and "graph 'told'" in manifest.graph_text
    assert manifest.started < manifest.ended
    assert len(manifest.digest) == len(manifest.files[0].hash) == len(manifest.self_hash) == 64
    assert manifest.fingerprint["name"] == "told"
    assert drift.audit(tmp_path / "record", graph).ok


def test_pandas_reads_a_record(tmp_path: Path) -> None:
    import msgpack
    import pandas

    drift.run(words(), {"lines": LINES[:9]}, record=tmp_path / "record").finish()
    output = pandas.read_parquet(tmp_path / "record" / "output")
    assert list(output.columns) == ["position", "sink", "time", "tie", "path", "payload"]
    assert list(output.position) == list(range(63))
    assert msgpack.unpackb(output.payload[0], use_list=False) == ("to", 1)
    inputs = pandas.read_parquet(tmp_path / "record" / "input")
    assert list(inputs.payload.map(msgpack.unpackb)) == LINES[:9]
    joined = output.merge(inputs, on=["time", "tie"], suffixes=("", "_in"))
    assert list(joined.payload_in.map(msgpack.unpackb)) == [line for line in LINES[:9] for _ in range(7)]
    assert joined.position.equals(output.sort_values(["time", "tie", "path"], ignore_index=True).position)


def test_a_folder_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "record"
    drift.run(words(), {"lines": LINES[:3]}, record=path).finish()
    with pytest.raises(drift.SettingsError, match=r"holds a record; .*pass a folder that does not exist"):
        drift.run(words(), {"lines": LINES}, record=path)
    (tmp_path / "file").write_text("")
    with pytest.raises(drift.SettingsError, match="is a file"):
        drift.run(words(), {"lines": LINES}, record=tmp_path / "file")
    with pytest.raises(drift.SettingsError, match="is no path"):
        drift.run(words(), {"lines": LINES}, record=5)  # type: ignore[arg-type]
    with pytest.raises(drift.SettingsError, match=r"'s3://key:\*\*\*@bucket/r' is a URL, and a record is a folder"):
        drift.run(words(), {"lines": LINES}, record="s3://key:hush@bucket/r")
    with pytest.raises(drift.SettingsError, match="part_items_max=0 is not"):
        drift.run(words(), {"lines": LINES}, record=drift.Recording(tmp_path / "other", part_items_max=0))
    assert not (tmp_path / "other").exists()


def test_a_graph_that_differs_is_said(tmp_path: Path) -> None:
    drift.run(words(), {"lines": LINES[:3]}, record=tmp_path / "record").finish()
    other = drift.Graph("words")
    other.source("lines").flat_map(str.split).count(key=str.upper).sink("counts")
    with pytest.warns(UserWarning, match="the graph is not the one") as warned:
        drift.replay(tmp_path / "record", other)
    assert warned[0].filename == __file__  # where it was asked for, not within the library


STEPS: dict[str, Callable[[Any], Any]] = {
    "at the end": lambda keyed: keyed.at_end(drift.agg.count()),
    "a session": lambda keyed: keyed.window(drift.windows.session(2)).count(),
    "rows": lambda keyed: keyed.window(drift.windows.tumbling(2)).rows(n=drift.agg.count()),
    "rolling": lambda keyed: keyed.rolling(2, n=drift.agg.count()),
    "a process": lambda keyed: keyed.process(0, lambda n, row, time: (n, [n]), lambda n, note, time: (n, [])),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_graph_that_has_run_is_still_the_graph_that_was_recorded(name: str, tmp_path: Path) -> None:
    graph = drift.Graph("rows")
    STEPS[name](graph.source("rows").key_by("zone")).sink("out")
    drift.run(graph, {"rows": [{"zone": "ab"[n % 2]} for n in range(5)]}, record=tmp_path / "record").finish()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drift.replay(tmp_path / "record", graph).finish()


def test_a_replay_loads_the_graph_from_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "mygraph.py").write_text(
        "import drift\ngraph = drift.Graph('mine')\ngraph.source('n').map(lambda n: n + 1).sink('out')\n"
    )
    code = "import drift, mygraph; drift.run(mygraph.graph, {'n': range(5)}, record='record').finish()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=HANG_S)
    assert [item.payload for item in drift.replay(tmp_path / "record")] == [1, 2, 3, 4, 5]
    assert Record(tmp_path / "record").manifest.target == f"{tmp_path / 'mygraph.py'}:graph"


def test_what_is_no_record_is_said(tmp_path: Path) -> None:
    with pytest.raises(drift.InputError, match="does not exist"):
        drift.Record(tmp_path / "nothing")
    with pytest.raises(drift.InputError, match="is no record"):
        drift.Record(tmp_path)


class Opaque:
    """What has no canonical form, and is no class that a record tries out."""


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("batch_items", [1, 512])
@pytest.mark.parametrize("bad", [Opaque(), [Opaque()], {"a": object()}], ids=["object", "in a list", "in a dict"])
def test_a_payload_without_canonical_form_ends_a_recorded_run_at_its_position(
    engine: str, batch_items: int, bad: Any, tmp_path: Path
) -> None:
    graph = drift.Graph("ones")
    graph.source("n").map(lambda payload: 1).sink("out")
    run = drift.run(graph, {"n": [1, 2, bad, 4]}, record=tmp_path / "r", engine=engine, batch_items=batch_items)
    released: list[int] = []
    with pytest.raises(
        drift.PayloadError, match=r"source 'n' has a payload that a record cannot store: a .*\n  payload"
    ):
        released.extend(item.payload for item in run)
    assert released == [1, 1]
    record = drift.Record(tmp_path / "r")
    assert (record.manifest.outcome.state, record.counts) == ("failed", {"input": 2, "output": 2})
    assert drift.audit(tmp_path / "r", graph).ok


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_a_late_payload_without_canonical_form_is_an_error_of_its_source(engine: str, tmp_path: Path) -> None:
    graph = drift.Graph("ones")
    by_time = drift.EventTime(lambda payload: payload[0], lateness=0, late="divert")
    graph.source("n", time=by_time).map(lambda payload: payload[0]).sink("out")
    arrived = [(1, 1), (5, 2), (2, Opaque()), (7, 1)]
    run = drift.run(graph, {"n": arrived}, record=tmp_path / "r", engine=engine, batch_items=1)
    with pytest.raises(drift.PayloadError, match=r"source 'n' has a payload that a record cannot store"):
        run.finish()
    assert drift.Record(tmp_path / "r").counts["output"] >= 1
    assert drift.audit(tmp_path / "r", graph).ok


def test_a_record_of_windows_is_read_where_nothing_else_was_imported(tmp_path: Path) -> None:
    graph = drift.Graph("windows")
    graph.source("numbers").window(drift.windows.tumbling(2)).count().sink("out")
    counted = [str(item.payload) for item in drift.run(graph, {"numbers": [1, 2, 3]}, record=tmp_path / "record")]
    program = "import sys, drift; print(*[item.payload for item in drift.Record(sys.argv[1]).items()], sep=chr(10))"
    read = subprocess.run([sys.executable, "-c", program, tmp_path / "record"], capture_output=True, text=True)
    assert read.stdout.splitlines() == counted and len(counted) == 2, read.stderr


def test_a_record_is_audited_with_the_classes_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as loaded:
        module = types.ModuleType("gone")
        loaded.setitem(sys.modules, module.__name__, module)
        exec("import msgspec\nclass Fare(msgspec.Struct):\n    zone: str", vars(module))
        graph = drift.Graph("fares")
        graph.source("fares").sink("out")
        drift.run(graph, {"fares": [module.Fare("JFK")]}, record=tmp_path / "record").finish()
    assert "class 'Fare' is not known here" in str(drift.audit(tmp_path / "record", graph))
    assert drift.audit(drift.Record(tmp_path / "record", [module.Fare]), graph).ok
