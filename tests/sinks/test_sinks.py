"""Sinks: what a file holds is a prefix of the output, whatever happened, and a rerun makes it whole."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any, NamedTuple

import polars
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift import SettingsError, SinkError, sinks
from drift.sinks import Sink, as_sink
from drift.sinks.base import PlainSink
from drift_graph.meta import global_time, time_of
from drift_graph.metas import Metas

pytestmark = pytest.mark.filterwarnings("error")


def meta_at(position: int) -> bytes:
    return global_time(position * 10, 0, 0, 0)


def lines_of(payloads: list[Any]) -> bytes:
    """The file that holds these payloads at positions 0, 1, ..."""
    lines = [
        {"position": position, "time": position * 10, "meta": meta_at(position).hex(), "payload": payload}
        for position, payload in enumerate(payloads)
    ]
    return "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines).encode()


def written(sink: Sink, payloads: list[Any], ends: list[int] | None = None) -> None:
    """Open a sink, write these payloads in batches that end there, close it."""
    edges = [0, *sorted(min(end, len(payloads)) for end in ends or ()), len(payloads)]
    try:
        sink.open()
        for start, end in pairwise(edges):
            if start < end:
                sink.write(range(start, end), Metas([meta_at(at) for at in range(start, end)]), payloads[start:end])
    finally:
        sink.close()


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def file_bytes_max(limit: int) -> Iterator[None]:
    """A disk that is full: no file of this process may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


# The file.


def test_a_line_has_position_time_meta_and_payload(tmp_path: Path) -> None:
    graph = drift.Graph("counts")
    graph.source("words").count(key=str.lower).sink("out")
    path = tmp_path / "out.jsonl"
    items = list(drift.run(graph, {"words": ["a", "B", "A"]}, sinks={"out": sinks.jsonl(path)}))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(line) for line in lines] == [["position", "time", "meta", "payload"]] * 3
    assert [line["payload"] for line in lines] == [["a", 1], ["b", 1], ["a", 2]]
    assert [(line["position"], line["time"], bytes.fromhex(line["meta"])) for line in lines] == [
        (item.position, item.time, item.meta) for item in items
    ]


def test_each_of_several_sinks_gets_its_own_items(tmp_path: Path) -> None:
    graph = drift.Graph("parted")
    numbers = graph.source("numbers")
    numbers.filter(lambda number: number % 3 == 0).sink("thirds")
    numbers.sink("all")
    taken: list[drift.Item[int]] = []
    path = tmp_path / "thirds.jsonl"
    run = drift.run(graph, {"numbers": range(20)}, sinks={"thirds": sinks.jsonl(path), "all": taken})
    items = list(run)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["payload"] for line in lines] == list(range(0, 20, 3))
    assert [line["position"] for line in lines] == [item.position for item in items if item.sink == "thirds"]
    assert taken == [item for item in items if item.sink == "all"]


@given(
    payloads=st.lists(st.text(max_size=5) | st.integers(), max_size=12),
    had=st.integers(0, 800),
    ends=st.lists(st.integers(0, 12), max_size=4),
)
@settings(deadline=None, max_examples=300)
def test_a_file_cut_at_any_byte_is_continued_to_the_complete_file(
    payloads: list[Any], had: int, ends: list[int]
) -> None:
    with folder() as inside:
        path, whole = inside / "out.jsonl", lines_of(payloads)
        path.write_bytes(whole[:had])
        for _ in range(2):  # also a file that is whole already
            written(sinks.jsonl(path), payloads, ends)
            assert path.read_bytes() == whole


@given(had=st.integers(0, 6), shorter=st.integers(0, 6), ends=st.lists(st.integers(0, 6), max_size=3))
@settings(deadline=None)
def test_a_rerun_that_ends_earlier_leaves_the_rest_of_the_file(had: int, shorter: int, ends: list[int]) -> None:
    with folder() as inside:
        path, payloads = inside / "out.jsonl", list("abcdef")
        path.write_bytes(lines_of(payloads[:had]))
        written(sinks.jsonl(path), payloads[:shorter], ends)
        assert path.read_bytes() == lines_of(payloads[: max(had, shorter)])


@given(
    changed=st.integers(0, 5),
    torn=st.binary(max_size=5),
    ends=st.lists(st.integers(0, 6), max_size=3),
)
@settings(deadline=None)
def test_a_file_of_another_run_is_refused_by_line_and_left_alone(changed: int, torn: bytes, ends: list[int]) -> None:
    with folder() as inside:
        path, payloads = inside / "out.jsonl", list("abcdef")
        other = [*payloads[:changed], "another", *payloads[changed + 1 :]]
        path.write_bytes(lines_of(other) + torn)
        with pytest.raises(SinkError) as caught:
            written(sinks.jsonl(path), payloads, ends)
        assert str(caught.value).startswith(
            f"{path}, line {changed + 1}: it is not what this run gives at position {changed}; another graph, input"
        )
        assert "resume='replace'" in str(caught.value)
        assert path.read_bytes() == lines_of(other) + torn


@pytest.mark.parametrize("content", [b"my diary, without a newline", b"one\ntwo\n", b"{}\n" * 1000, b"\0"])
def test_a_file_that_is_none_of_ours_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "diary"
    path.write_bytes(content)
    with pytest.raises(SinkError, match="line 1: it is not what this run gives at position 0"):
        written(sinks.jsonl(path), [1, 2])
    assert path.read_bytes() == content


def test_a_last_line_that_the_disk_has_garbled_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(lines_of([1, 2]) + b"\0" * 20)
    written(sinks.jsonl(path), [1, 2, 3])
    assert path.read_bytes() == lines_of([1, 2, 3])


@pytest.mark.parametrize("foreign", [b"2,20,", b'"2', b"a note"])
@pytest.mark.parametrize("kind", [sinks.jsonl, sinks.csv])
def test_lines_of_somebody_else_behind_the_last_are_not_cut_off(kind: Any, foreign: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out"
    written(kind(path), [{"n": 1}, {"n": 2}])
    ours = path.read_bytes()
    path.write_bytes(ours + foreign + b"\n")  # a line of an editor, also in CSV, whose own end otherwise
    with pytest.raises(SinkError, match="it is not what this run gives at position 2"):
        written(kind(path), [{"n": 1}, {"n": 2}, {"n": 3}])
    assert path.read_bytes() == ours + foreign + b"\n"
    path.write_bytes(ours + foreign)  # torn off
    written(kind(path), [{"n": 1}, {"n": 2}, {"n": 3}])
    assert path.read_bytes().startswith(ours) and foreign not in path.read_bytes()[len(ours) :].splitlines()


KINDS: dict[str, Callable[[Path], Any]] = {
    "drift.sinks.jsonl": lambda folder: sinks.jsonl(folder / "out.jsonl"),
    "drift.sinks.csv": lambda folder: sinks.csv(folder / "out.csv"),
    "drift.sinks.parquet": lambda folder: sinks.parquet(folder / "parts"),
    "drift.sinks.sqlite": lambda folder: sinks.sqlite(folder / "out.db", "numbers"),
    "drift.sinks.delta": lambda folder: sinks.delta(folder / "table"),
    "a sink of your own": lambda folder: Stored(),
}


class Stored(sinks.ResumingSink):
    def __init__(self) -> None:
        super().__init__("stored", "continue")

    def begin(self, resume: str) -> sinks.Last | None:
        return None

    def store(self, positions: Any, metas: Any, payloads: Any) -> sinks.Last:
        return sinks.Last(positions[-1], metas[-1])

    def end(self) -> None:
        pass


@pytest.mark.parametrize("then, now", list(permutations(KINDS, 2)))
def test_another_kind_of_sink_than_before_the_checkpoint_is_refused(then: str, now: str, tmp_path: Path) -> None:
    graph = drift.Graph("numbers")
    graph.source("numbers").map(lambda n: {"n": n}).sink("out")

    def run(kind: str, numbers: range) -> None:
        given = {"out": KINDS[kind](tmp_path)}
        drift.run(graph, {"numbers": numbers}, sinks=given, state=tmp_path / "state", complete=False).finish()

    run(then, range(10))
    with pytest.raises(SinkError, match=f"sink 'out' is {now} now, and was {then} when the state"):
        run(now, range(20))
    if then != "a sink of your own":
        run(then, range(20))


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "a sink of your own"])
def test_a_sink_that_writes_elsewhere_than_before_the_checkpoint_says_where_it_wrote(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = drift.Graph("numbers")
    graph.source("numbers").map(lambda n: {"n": n}).sink("out")

    def run(numbers: range, **sinks: Any) -> None:
        state = tmp_path / "state"
        drift.run(graph, {"numbers": numbers}, sinks=sinks, state=state, complete=False).finish()

    (tmp_path / "then").mkdir()
    (tmp_path / "now").mkdir()
    monkeypatch.chdir(tmp_path / "then")
    run(range(10), out=KINDS[kind](Path()))
    says = f"sink 'out' writes to {tmp_path}/now/.* now, and wrote to {tmp_path}/then/.* when the state"
    with pytest.raises(SinkError, match=says):
        run(range(20), out=KINDS[kind](tmp_path / "now"))
    shutil.rmtree(tmp_path / "now")
    shutil.copytree(tmp_path / "then", tmp_path / "now")
    run(range(20), out=KINDS[kind](tmp_path / "now"))  # what is there came with it
    shutil.rmtree(tmp_path / "now")
    (tmp_path / "now").mkdir()
    with pytest.raises(SinkError, match=f"^(table 'numbers' of )?{tmp_path}/now/.*is not computed again: bring"):
        run(range(30), out=KINDS[kind](tmp_path / "now"))


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "a sink of your own"])
def test_two_sinks_of_a_run_do_not_write_to_one_place(kind: str, tmp_path: Path) -> None:
    graph = drift.Graph("numbers")
    rows = graph.source("numbers").map(lambda n: {"n": n})
    rows.sink("out")
    rows.sink("again")
    with pytest.raises(SettingsError, match=f"sink 'out' and sink 'again' are both given {tmp_path}/.*; give each its"):
        drift.run(graph, {"numbers": []}, sinks={name: KINDS[kind](tmp_path) for name in ("out", "again")}).finish()
    assert not list(tmp_path.iterdir())


def test_replace_starts_anew_and_error_refuses(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"something long that was there before\n" * 100)
    with pytest.raises(SinkError, match="exists already, with 3700 bytes; move it away, or pass resume='continue'"):
        written(sinks.jsonl(path, resume="error"), [1])
    assert path.stat().st_size == 3700
    written(sinks.jsonl(path, resume="replace"), [1])
    assert path.read_bytes() == lines_of([1])
    path.write_bytes(b"")
    written(sinks.jsonl(path, resume="error"), [1])
    assert path.read_bytes() == lines_of([1])
    with pytest.raises(SettingsError, match="resume='append'"):
        sinks.jsonl(path, resume="append")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="the path of a file is a text"):
        sinks.jsonl(7)  # type: ignore[arg-type]


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    first = sinks.jsonl(path)
    first.open()
    with pytest.raises(SinkError, match=r"another run writes to .*out.jsonl"):
        written(sinks.jsonl(path, resume="replace"), [1])
    first.write([0], Metas([meta_at(0)]), [1])
    first.close()
    assert path.read_bytes() == lines_of([1])


def test_what_was_written_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    graph = drift.Graph("same")
    graph.source("numbers").sink("out")
    for item in drift.run(graph, {"numbers": range(10)}, sinks={"out": sinks.jsonl(path)}, batch_items=1):
        assert len(path.read_text().splitlines()) > item.position


# What goes wrong.


@given(limit=st.integers(0, 500), ends=st.lists(st.integers(0, 8), max_size=3))
@settings(deadline=None, max_examples=60)
def test_a_full_disk_says_what_is_safe_and_the_next_run_resumes_from_there(limit: int, ends: list[int]) -> None:
    with folder() as inside:
        path, payloads = inside / "out.jsonl", list("abcdefgh")
        whole = lines_of(payloads)
        limit = min(limit, len(whole) - 1)
        with pytest.raises(SinkError) as caught, file_bytes_max(limit):
            written(sinks.jsonl(path), payloads, ends)
        had = path.read_bytes()
        assert had == whole[:limit]
        safe = had.count(b"\n") - 1
        expected = f"the lines up to position {safe} are complete" if safe >= 0 else "nothing was written"
        assert str(caught.value) == (
            f"{path} cannot be written: File too large; {expected}; clear that up, and run again with resume='continue'"
        )
        written(sinks.jsonl(path), payloads, ends)
        assert path.read_bytes() == whole


def test_a_device_without_space_is_a_sink_error() -> None:
    with pytest.raises(SinkError, match="/dev/full cannot be written: No space left on device; nothing was written"):
        written(sinks.jsonl("/dev/full"), [1])
    written(sinks.jsonl("/dev/null"), [1])


def test_a_path_that_cannot_be_opened_is_a_sink_error(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "no" / "where", "No such file or directory")):
        with pytest.raises(SinkError, match=f"cannot be opened for writing: {said}; nothing was written"):
            written(sinks.jsonl(path), [1])


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


@dataclasses.dataclass
class Flight:
    carrier: str
    seats: set[int]


@pytest.mark.parametrize(
    ("payload", "json_value"),
    [
        ((1, (2, "é")), [1, [2, "é"]]),
        (Pair(1, 2), [1, 2]),
        (b"\xff\x00", base64.b64encode(b"\xff\x00").decode()),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset("ba"), ["a", "b"]),
        (Flight("LH", {9, 2}), {"carrier": "LH", "seats": [2, 9]}),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ({2: "b", 10: "a"}, {"2": "b", "10": "a"}),
        (Colour.RED, "red"),
        (10**30, 10**30),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "2020-01-02T03:04:05Z"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (datetime.timedelta(seconds=90), "PT90S"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ("line\nbreak\r\u2028", "line\nbreak\r\u2028"),
        (None, None),
    ],
)
def test_payloads_are_written_as_documented(payload: Any, json_value: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for _ in range(2):  # and are found to be equal by a rerun
        written(sinks.jsonl(path), [payload])
        (line,) = path.read_bytes().split(b"\n")[:-1]
        assert json.loads(line)["payload"] == json_value


def test_a_line_does_not_depend_on_the_order_of_dicts_and_sets_or_on_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    payloads: list[Any] = [{"a": 1, "b": 2}, {1: 2, 3: 4}, {"x", "y", "z"}]
    written(sinks.jsonl(path), payloads)
    first = path.read_bytes()
    path.unlink()
    written(sinks.jsonl(path), [{"b": 2, "a": 1}, {3: 4, 1: 2}, {"z", "y", "x"}], [1, 2])
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (object(), "a object, cannot be written as JSON: Encoding objects of type object is unsupported"),
        ([1, {2: 1j}], "a list, cannot be written as JSON: Encoding objects of type complex is unsupported"),
        ({(1, 2): 3}, "a dict, cannot be written as JSON: "),
        ({1: "a", "1": "b"}, "a dict, cannot be written as JSON: two keys of a dict are the same text in JSON"),
        (math.nan, "a float, cannot be written as JSON: it has NaN or an infinity, which JSON has not: map it to None"),
        ({"a": None, "b": -math.inf}, "a dict, cannot be written as JSON: it has NaN or an infinity"),
        ([1, None, {"a": (math.inf,)}], "a list, cannot be written as JSON: it has NaN or an infinity"),
        (Flight("LH", {math.nan}), "a Flight, cannot be written as JSON: it has NaN or an infinity"),  # type: ignore
        ("\ud800", "a str, cannot be written as JSON: 'utf-8' codec can't encode"),
    ],
)
def test_a_payload_that_json_cannot_express_is_named_by_position_and_type(
    payload: Any, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(SinkError) as caught:
        written(sinks.jsonl(path), [1, 2, payload, 4])
    assert str(caught.value).startswith(f"{path}: the payload at position 2, {said}")
    assert str(caught.value).endswith("before the sink; the lines up to position 1 are complete")
    assert path.read_bytes() == lines_of([1, 2])
    with pytest.raises(SinkError, match=r"the payload at position 0.*; nothing was written"):
        written(sinks.jsonl(tmp_path / "other"), [payload])


@pytest.mark.parametrize("bad", [{"a": "\ud800"}, {"a": ["\ud800"]}], ids=["plain", "JSON"])
def test_text_that_is_no_utf_8_is_named_by_its_position_in_csv(bad: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with pytest.raises(SinkError, match=r"the payload at position 2 cannot be written as CSV: .*; the lines up to pos"):
        written(sinks.csv(path), [{"a": "x"}, {"a": "y"}, bad, {"a": "z"}])
    assert [line.rpartition(",")[2] for line in path.read_bytes().decode().split()] == ["a", "x", "y"]
    with pytest.raises(SinkError, match=r"the payload at position 0 .*; nothing was written"):
        written(sinks.csv(tmp_path / "other"), [bad])
    assert (tmp_path / "other").read_bytes() in (b"", b"position,time,a\r\n")


def test_text_that_is_no_utf_8_is_refused_by_parquet(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="surrogates not allowed"):
        written(sinks.parquet(tmp_path / "out"), [{"a": "x"}, {"a": "\ud800"}])


def test_a_csv_file_tells_an_empty_text_from_none(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    payloads = [
        {"a": "", "b": None, "c": "None"},
        {"a": 'x,"', "b": math.nan, "c": -0.0},
        {"a": None, "b": "", "c": 10**30},
    ]
    written(sinks.csv(path), payloads)
    written(sinks.csv(path), payloads, [1, 2])
    lines = path.read_bytes().decode().split("\r\n")
    assert lines[1:] == ['0,0,"",,None', '1,10,"x,""",nan,-0.0', f'2,20,,"",{10**30}', ""]
    table = polars.read_csv(path)
    assert table["a"].to_list() == ["", 'x,"', None] and table["b"].to_list() == [None, "nan", ""]
    path.unlink()
    with pytest.raises(SinkError, match=r"position 1 cannot be written as CSV: it has NaN or an infinity"):
        written(sinks.csv(path), [{"a": [None]}, {"a": [math.nan]}])
    assert path.read_bytes().decode() == "position,time,a\r\n0,0,[null]\r\n"


DAY, ZONED = datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "values",
    [
        [1.5, None, math.nan, -0.0, math.inf],
        [1, 2.5, None],
        ["a", None, ""],
        [b"a", b""],
        [2**63 - 1, -(2**63)],
        [True, None],
    ],
)
def test_a_parquet_file_gives_the_values_that_were_written(values: list[Any], tmp_path: Path) -> None:
    written(sinks.parquet(tmp_path), [{"v": value} for value in values])
    found = pyarrow.parquet.read_table(tmp_path)["v"].to_pylist()
    assert list(map(repr, found)) == [repr(float(v)) if type(v) is int and 2.5 in values else repr(v) for v in values]


@pytest.mark.parametrize(
    "values",
    [["a", b"b"], [b"b", "a"], [2**63], [-1, 2**63], [2**53 + 1, 0.5], [1.5, True], [DAY, ZONED.replace(tzinfo=None)],
     [ZONED.replace(tzinfo=None), ZONED], [1, "a"]],
)  # fmt: skip
def test_a_column_of_parquet_that_would_hold_other_values_is_refused(values: list[Any], tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no one type holds the values of 'v'"):
        written(sinks.parquet(tmp_path), [{"v": value} for value in values])
    assert not list(tmp_path.glob("*.parquet"))


def test_closing_what_was_never_opened_does_nothing(tmp_path: Path) -> None:
    sinks.jsonl(tmp_path / "out.jsonl").close()
    assert not (tmp_path / "out.jsonl").exists()


# Lists and callables.


def test_a_callable_that_raises_is_a_sink_error_that_names_it_and_the_position() -> None:
    taken = []

    def store(item: drift.Item[int]) -> None:
        if item.payload == 3:
            raise KeyError("no shelf")
        taken.append(item.payload)

    graph = drift.Graph("same")
    graph.source("numbers").sink("out")
    with pytest.raises(SinkError) as caught:
        drift.run(graph, {"numbers": range(6)}, sinks={"out": store}).finish()
    assert str(caught.value).startswith("sink 'out': ")
    assert f"store ({__file__}:{store.__code__.co_firstlineno}) raised KeyError at position 3: 'no shelf'" in str(
        caught.value
    )
    assert isinstance(caught.value.__cause__, KeyError)
    assert taken == [0, 1, 2]


def test_items_of_a_list_and_of_a_callable_know_their_metas() -> None:
    metas = Metas.numbered(5, 3, b"\x00\x00\x00")
    taken: list[drift.Item[str]] = []
    called: list[drift.Item[str]] = []
    for sink in (as_sink("out", taken), as_sink("out", called.append)):
        sink.open()
        sink.write(range(10, 13), Metas(metas), ["a", "b", "c"])
        sink.close()
    assert taken == called
    assert [(item.payload, item.position, item.meta, item.time, item.sink) for item in taken] == [
        (payload, position, meta, time_of(meta), "out") for payload, position, meta in zip("abc", (10, 11, 12), metas)
    ]


def test_what_is_no_sink_says_what_to_write() -> None:
    with pytest.raises(SettingsError, match=r"no list and not callable; to write a file use drift.sinks.jsonl\(path\)"):
        as_sink("out", "out.jsonl")
    with pytest.raises(SettingsError, match="sink 'out' is given 7, which is no drift sink"):
        as_sink("out", 7)


def test_a_sink_of_a_user_that_raises_is_a_sink_error_that_names_it_and_the_position() -> None:
    class Full(PlainSink):
        def write(self, positions: Any, metas: Any, payloads: Any) -> None:
            if 7 in positions:
                raise OSError("no space left")

    graph = drift.Graph("same")
    graph.source("numbers").sink("out")
    with pytest.raises(SinkError, match=r"sink 'out', Full, raised OSError: no space left; .* before position 6"):
        drift.run(graph, {"numbers": range(20)}, sinks={"out": Full()}, batch_items=2).finish()


def test_every_sink_is_closed_also_where_closing_another_raises(tmp_path: Path) -> None:
    class Broken:
        def open(self) -> None: ...
        def write(self, positions: Any, metas: Any, payloads: Any) -> None: ...
        def complete(self) -> None: ...
        def close(self) -> None:
            raise SinkError("the door is stuck")

    graph = drift.Graph("three")
    numbers = graph.source("numbers")
    for name in ("a", "b", "c"):
        numbers.sink(name)
    files = {name: sinks.jsonl(tmp_path / name) for name in ("a", "c")}
    with pytest.raises(SinkError, match="the door is stuck"):
        drift.run(graph, {"numbers": [1]}, sinks={"a": files["a"], "b": Broken(), "c": files["c"]}).finish()
    for name in files:  # each lets go of its file
        again = sinks.jsonl(tmp_path / name, resume="replace")
        again.open()
        again.close()


# Standard output.


def test_standard_output_takes_lines_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    written(sinks.stdout(), [1, "é"])
    assert capsys.readouterr().out == lines_of([1, "é"]).decode()
    written(sinks.stdout("text"), [1, "é", (2, 3)])
    assert capsys.readouterr().out == "1\né\n(2, 3)\n"
    with pytest.raises(SinkError, match="standard output: the payload at position 1, a object, cannot be written"):
        written(sinks.stdout(), [1, object()])
    assert capsys.readouterr().out == lines_of([1]).decode()
    with pytest.raises(SettingsError, match="neither 'jsonl' nor 'text'"):
        sinks.stdout("xml")  # type: ignore[arg-type]


ENDLESS = """
import sys, drift, itertools
graph = drift.Graph("endless")
graph.source("numbers").sink("out")
try:
    drift.run(graph, {"numbers": itertools.count()}, sinks={"out": drift.sinks.stdout("text")}).finish()
except drift.SinkError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
"""


def test_a_reader_that_leaves_ends_the_run_with_one_error_and_no_noise() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert [process.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
        process.stdout.close()
        (said,) = process.stderr.read().splitlines()
    assert process.returncode == 3
    assert said.startswith("standard output cannot take the items at positions ")
    assert "BrokenPipeError" in said
