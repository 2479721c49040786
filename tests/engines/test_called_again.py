"""A run with state, called again: what its input has more is given, or refused before it is read."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outside import Server, states_on
from segmented import summed
from strategies import Case, cases

import drift
from drift.engines import whole
from drift.testing.values import Flags, Noted

pytestmark = pytest.mark.filterwarnings("error")


def passed() -> drift.Graph:
    graph = drift.Graph("passed")
    graph.source("s").sink("out")
    return graph


def called(source: Any, state: Path, **more: Any) -> tuple[list[Any], drift.Run]:
    run = drift.run(passed(), {"s": source}, state=state, **more)
    return [item.payload for item in run], run


# Every kind of source.


class Grown(NamedTuple):
    """An input that grows.

    Attributes:
        source: of what there is now.
        add: adds the payload {"k": n}.
        cut: takes away what there was, if that can be seen.
    """

    source: Callable[[], Any]
    add: Callable[[int], object]
    cut: Callable[[], object] | None = None


def folder_of_lines(at: Path) -> Grown:
    def add(n: int) -> None:
        (at / f"{n}.jsonl").write_text(f'{{"k":{n}}}\n')

    return Grown(lambda: drift.sources.jsonl(at / "*.jsonl"), add, (at / "1.jsonl").unlink)


def grown_file(at: Path) -> Grown:
    def add(n: int) -> None:
        with (at / "all.jsonl").open("a") as file:
            file.write(f'{{"k":{n}}}\n')

    return Grown(lambda: drift.sources.jsonl(at / "all.jsonl"), add, lambda: (at / "all.jsonl").write_text(""))


def folder_of_parquet(at: Path) -> Grown:
    def add(n: int) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"k": [n]}), at / f"{n}.parquet")

    return Grown(lambda: drift.sources.parquet(at / "*.parquet"), add, (at / "1.parquet").unlink)


class Iterated:
    """An iterable that can be iterated again."""

    def __init__(self, payloads: Iterable[Any]) -> None:
        self._payloads = list(payloads)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._payloads)


def in_memory(made: Callable[[list[Any]], Any]) -> Callable[[Path], Grown]:
    def grown(at: Path) -> Grown:
        rows: list[Any] = []
        return Grown(lambda: made(list(rows)), lambda n: rows.append({"k": n}), rows.clear)

    return grown


def as_pandas(rows: list[Any]) -> Any:
    import pandas

    return pandas.DataFrame(rows, columns=["k"])


def as_polars(rows: list[Any]) -> Any:
    import polars

    return polars.DataFrame(rows, schema={"k": polars.Int64})


def relation(at: Path) -> Grown:
    import duckdb

    connection = duckdb.connect()
    connection.execute("create table t (k integer)")

    return Grown(
        lambda: connection.cursor().sql("select * from t"),
        lambda n: connection.execute(f"insert into t values ({n})"),
        lambda: connection.execute("delete from t"),
    )


def query(at: Path) -> Grown:
    path = at / "rows.db"

    def execute(sql: str) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(sql)
        connection.close()

    execute("create table t (k integer)")
    return Grown(
        lambda: drift.sources.sqlite(path, "select * from t", key="k"), lambda n: execute(f"insert into t values ({n})")
    )


def delta(at: Path) -> Grown:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    return Grown(
        lambda: drift.sources.delta(at / "t"),
        lambda n: write_deltalake(at / "t", pa.table({"k": [n]}), mode="append"),
        lambda: DeltaTable(at / "t").delete(),
    )


def iceberg(at: Path) -> Grown:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    properties = {"type": "sql", "uri": f"sqlite:///{at}/c.db", "warehouse": f"file://{at}/wh"}
    catalog = load_catalog("c", **properties)
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", pa.schema([("k", pa.int64())]))
    named = {"name": "c", **properties}
    return Grown(
        lambda: drift.sources.iceberg("a.t", catalog=named),
        lambda n: table.append(pa.table({"k": [n]})),
        lambda: table.delete(),
    )


KINDS: list[Callable[[Path], Grown]] = [
    folder_of_lines,
    grown_file,
    folder_of_parquet,
    in_memory(list),
    in_memory(Iterated),
    in_memory(as_pandas),
    in_memory(as_polars),
    relation,
    query,
    delta,
    iceberg,
]
NAMES = ["lines", "file", "parquet", "list", "iterable", "pandas", "polars", "duckdb", "query", "delta", "iceberg"]


@pytest.fixture(params=KINDS, ids=NAMES)
def grown(request: pytest.FixtureRequest, tmp_path: Path) -> Grown:
    (tmp_path / "in").mkdir()
    made: Grown = request.param(tmp_path / "in")
    made.add(1)
    return made


def test_a_run_that_is_over_gives_the_same_report_again_and_refuses_what_is_new(grown: Grown, tmp_path: Path) -> None:
    state, written = tmp_path / "state", tmp_path / "out.jsonl"

    def again() -> drift.Run:
        return drift.run(passed(), {"s": grown.source()}, sinks={"out": drift.sinks.jsonl(written)}, state=state)

    first = again().finish()
    same = again().finish()
    assert (same.digest, same.items_in, same.items_out, same.sinks) == (first.digest, 1, 1, {"out": 1})
    grown.add(2)
    for _ in range(2):
        with pytest.raises(
            drift.SettingsError, match=r"is over: .* 's' has more now, such as \{'k': 2\}.*complete=False"
        ):
            again()
    assert written.read_text().count("\n") == 1


def test_a_paused_run_goes_on_with_what_is_new_and_may_be_completed(grown: Grown, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert called(grown.source(), state, complete=False)[0] == [{"k": 1}]
    assert called(grown.source(), state, complete=False)[0] == []
    grown.add(2)
    grown.add(3)
    payloads, run = called(grown.source(), state, complete=False)
    assert payloads == [{"k": 2}, {"k": 3}] and run.report.items_in == 3
    payloads, run = called(grown.source(), state)
    assert (payloads, run.report.held) == ([], None)
    assert run.digest == called(grown.source(), tmp_path / "whole")[1].digest


def test_input_that_has_become_shorter_is_an_error(grown: Grown, tmp_path: Path) -> None:
    if grown.cut is None:
        pytest.skip("rows behind a key are asked for, whatever is before it")
    for complete in (True, False):
        called(grown.source(), tmp_path / f"{complete}", complete=complete)
    grown.cut()
    for complete in (True, False):
        with pytest.raises(drift.InputError):
            called(grown.source(), tmp_path / f"{complete}", complete=complete)


@pytest.mark.parametrize("made", [list, tuple, Iterated, as_pandas, as_polars], ids=lambda each: each.__name__)
def test_items_in_another_order_than_they_were_read_in_are_an_error(made: Callable[..., Any], tmp_path: Path) -> None:
    state, rows = tmp_path / "state", [{"k": n} for n in range(5)]
    assert called(made(rows[:2]), state, complete=False)[0] == rows[:2]
    assert called(made(rows[:4]), state, complete=False)[0] == rows[2:4]
    for other in ([{"k": 9}, *rows], rows[::-1]):
        with pytest.raises(
            drift.InputError, match=r"up to item 4 .* that item is another one, \{'k': [12]\}: .* comes behind what"
        ):
            called(made(other), state, complete=False)
    assert called(made(rows), state, complete=False)[0] == rows[4:]


@pytest.mark.parametrize("made", [list, tuple, Iterated], ids=lambda each: each.__name__)
@pytest.mark.parametrize("batch_items", [1, 3, 100])
def test_items_that_are_others_than_were_read_are_an_error_wherever_they_are(
    made: Callable[..., Any], batch_items: int, tmp_path: Path
) -> None:
    rows = [{"k": n, "of": ("a", 0.5)} for n in range(9)]

    def call(rows: list[Any]) -> list[Any]:
        run = drift.run(passed(), {"s": made(rows)}, state=tmp_path, batch_items=batch_items, complete=False)
        return [item.payload for item in run]

    assert call(rows[:4]) + call(rows[:7]) == rows[:7]
    for at in range(6):
        for other in ({"k": 70, "of": ("a", 0.5)}, {"k": float(at), "of": ("a", 0.5)}, {"k": at, "of": ("a", 0.25)}):
            with pytest.raises(drift.InputError, match=r"up to item 7 .* items before that are others; bring back"):
                call([*rows[:at], other, *rows[at + 1 :]])
    with pytest.raises(drift.InputError, match="items before that are others"):
        call([rows[1], rows[0], *rows[2:]])
    assert call(rows) == rows[7:]


def in_batches(rows: list[Any]) -> Any:
    """A table of Arrow whose first rows are in a batch with other types of the same values."""
    import pyarrow as pa

    others = pa.schema([("k", pa.int8()), ("word", pa.dictionary(pa.int8(), pa.large_string()))])
    first, rest = pa.Table.from_pylist(rows[:3], others), pa.Table.from_pylist(rows[3:], others)
    return pa.concat_tables([first, rest, first[:0]])


def as_table(rows: list[Any]) -> Any:
    import pyarrow as pa

    return pa.table({"k": [row["k"] for row in rows], "word": [row["word"] for row in rows]})


def as_words(library: str) -> Callable[[list[Any]], Any]:
    def made(rows: list[Any]) -> Any:
        whole = as_table(rows)
        if library == "polars":
            import polars

            return polars.DataFrame(whole).with_columns(polars.col("word").cast(polars.Categorical))
        return whole.to_pandas(strings_to_categorical=True)

    return made


ROWS = [{"k": n, "word": f"w{n % 3}"} for n in range(12)]
#: Of the first seven rows those in which a value is another, by its place.
OTHERS = [(0, {"k": 0, "word": "x"}), (2, {"k": 3, "word": "w2"}), (5, {"k": 5, "word": None})]


@pytest.mark.parametrize("payload", ["dict", "tuple"])
@pytest.mark.parametrize("batch_items", [1, 3, 100])
def test_a_table_is_known_by_all_rows_that_were_read_whatever_holds_them(
    batch_items: int, payload: Any, tmp_path: Path
) -> None:
    def call(made: Callable[[list[Any]], Any], rows: list[Any]) -> list[int]:
        source = drift.sources.table(made(rows), payload=payload)
        run = drift.run(passed(), {"s": source}, state=tmp_path, batch_items=batch_items, complete=False)
        return [item.payload["k" if payload == "dict" else 0] for item in run]

    assert call(as_table, ROWS[:4]) + call(as_table, ROWS[:7]) == list(range(7))
    for count, made in enumerate([in_batches, as_words("polars"), as_words("pandas"), as_table], 7):
        for at, other in OTHERS:
            with pytest.raises(drift.InputError, match=f"up to item {count} .* items before that are others"):
                call(made, [*ROWS[:at], other, *ROWS[at + 1 :]])
        assert call(made, ROWS[: count + 1]) == [count]


@pytest.mark.parametrize("made", [list, as_table], ids=lambda each: each.__name__)
def test_input_that_is_sorted_as_a_whole_is_known_by_all_of_it(
    made: Callable[[list[Any]], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(whole, "_READ_ITEMS", 3)
    graph = drift.Graph("sorted")
    graph.source("s", time=drift.EventTime(lambda row: -row["k"], lateness="all")).sink("out")

    def call(rows: list[Any], until: int) -> list[int]:
        run, got = drift.run(graph, {"s": made(rows)}, state=tmp_path / "state", batch_items=1), []
        for item in run:
            got.append(item.payload["k"])
            if len(got) == until:
                run.stop()
        return got

    assert call(ROWS, 5)[:5] == [11, 10, 9, 8, 7]
    for at, other in OTHERS:
        with pytest.raises(drift.InputError, match="'s' has other input than the run that is resumed"):
            call([*ROWS[:at], other, *ROWS[at + 1 :]], 12)
    assert call(ROWS, 12)[-5:] == [4, 3, 2, 1, 0]


def test_items_without_a_canonical_form_are_known_by_their_number(tmp_path: Path) -> None:
    graph = drift.Graph("formless")
    graph.source("s").map(type).map(str).sink("out")
    items: list[Any] = [1, object(), 2]
    for count in (1, 2, 3):
        list(drift.run(graph, {"s": items[:count]}, state=tmp_path, complete=False))
    assert list(drift.run(graph, {"s": [5, object(), 2, 4]}, state=tmp_path, complete=False))


def test_a_diverted_row_in_front_of_a_position_is_known_again_by_what_was_found(tmp_path: Path) -> None:
    import pyarrow as pa

    def table(*moments: int) -> pa.Table:
        return pa.table({"at": pa.array(moments, pa.timestamp("ns"))})

    graph = drift.Graph("diverted")
    graph.source("s", on_error="divert").sink("out")
    with_bad = drift.run(graph, {"s": table(1000, 1001)}, state=tmp_path, complete=False)
    assert [item.sink for item in with_bad] == ["out", "errors"]
    for others in ((1000, 2000, 3000), (1000, 1003, 3000)):  # corrected, or as bad: it was given as what it was
        with pytest.raises(drift.InputError, match=r"up to item 2 .* that item is another one"):
            list(drift.run(graph, {"s": table(*others)}, state=tmp_path, complete=False))
    again = drift.run(graph, {"s": table(1000, 1001, 3000)}, state=tmp_path, complete=False)
    assert [item.sink for item in again] == ["out"]
    list(drift.run(graph, {"s": table(1001)}, state=tmp_path / "diverted", complete=False))
    with pytest.raises(drift.InputError, match="row 1 when the state of this run was saved, and now it has 0"):
        list(drift.run(graph, {"s": table()}, state=tmp_path / "diverted", complete=False))


# Sources that give what they give once.


def piped(at: Path, lines: Sequence[str]) -> Any:
    path = at / "pipe"
    if not path.exists():
        os.mkfifo(path)

    def write() -> None:
        with path.open("w") as pipe:
            pipe.writelines(f"{line}\n" for line in lines)

    threading.Thread(target=write, daemon=True).start()
    return drift.sources.text(path)


def sent(at: Path, lines: Sequence[str]) -> Any:
    import socket

    source = drift.sources.tcp_lines()
    with socket.create_connection(source.address) as peer:
        peer.sendall("".join(f"{line}\n" for line in lines).encode())
    return source


@pytest.mark.parametrize(
    "made",
    [lambda at, lines: iter(lines), lambda at, lines: drift.sources.live(iter(lines)), piped, sent],
    ids=["generator", "live", "pipe", "tcp"],
)
def test_what_is_given_once_goes_on_behind_a_pause(made: Callable[..., Any], tmp_path: Path) -> None:
    state = tmp_path / "state"
    for lines in (["a", "b"], [], ["c"]):
        if lines or made is not sent:  # of a socket whose peers say nothing the end is not known
            assert called(made(tmp_path, lines), state, complete=False)[0] == lines


def test_what_is_given_once_is_refused_unread_by_a_run_that_is_over(tmp_path: Path) -> None:
    state = tmp_path / "state"
    called(iter("ab"), state)
    more = iter("cd")
    with pytest.raises(drift.SettingsError, match=r"is over: .*'s' cannot be asked what is new"):
        called(more, state)
    assert next(more) == "c"
    with pytest.raises(drift.SettingsError, match=r"is over: .*'s' is live"):
        called(drift.sources.live(more), state)
    assert next(more) == "d"


class Unsaid:
    """A source of a user that does not say whether it can be read again."""

    live = False

    def __init__(self, payloads: Iterable[Any]) -> None:
        self.left = list(payloads)

    def open(self) -> Any:
        return self

    def read(self, items_max: int) -> list[Any] | None:
        some, self.left = self.left[:items_max], self.left[items_max:]
        return some or None

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        pass


def test_a_source_of_a_user_without_a_position_is_refused_unread(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert called(Unsaid("ab"), state)[0] == ["a", "b"]
    more = Unsaid("cd")
    with pytest.raises(drift.SettingsError, match="no position to be read from"):
        called(more, state)
    assert more.left == ["c", "d"]


# Live and as a batch.


def stopped(source: Any, state: Path, at: int) -> list[Any]:
    """A run over a live source that is stopped once it has given so many items."""
    run, got = drift.run(passed(), {"s": source}, state=state), []
    for item in run:
        got.append(item.payload["k"])
        if len(got) == at:
            run.stop()
    return got


@pytest.mark.parametrize("many", [False, True], ids=["file", "folder"])
def test_a_followed_file_and_a_batch_of_it_go_on_with_each_other(many: bool, tmp_path: Path) -> None:
    grown = (folder_of_lines if many else grown_file)(tmp_path)
    path = tmp_path / ("*.jsonl" if many else "all.jsonl")
    grown.add(1)
    assert called(grown.source(), tmp_path / "state", complete=False)[0] == [{"k": 1}]
    grown.add(2)
    assert stopped(drift.sources.jsonl(path, follow=True), tmp_path / "state", 1) == [2]
    grown.add(3)
    assert called(grown.source(), tmp_path / "state", complete=False)[0] in ([{"k": 3}], [])
    grown.add(4)
    rest = called(grown.source(), tmp_path / "state")[0]
    assert rest in ([{"k": 4}], [{"k": 3}, {"k": 4}])
    with pytest.raises(drift.SettingsError, match=r"is over: .* is live"):
        drift.run(passed(), {"s": drift.sources.jsonl(path, follow=True)}, state=tmp_path / "state")


LINED: dict[str, tuple[Callable[..., Any], str, Callable[[int], str]]] = {
    "text": (drift.sources.text, "", lambda n: f"{n * 111}\n"),
    "jsonl": (drift.sources.jsonl, "", lambda n: f"{n * 111}\r\n"),
    "rows": (lambda path: drift.sources.jsonl(path, schema={"k": int}), "", lambda n: f'{{"k": {n * 111}}}\n'),
    "csv": (drift.sources.csv, "k,note\n", lambda n: f'{n * 111},"a\nb"\n'),
}


@pytest.mark.parametrize("many", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("name", LINED)
def test_a_line_that_is_written_in_parts_comes_whole_with_the_call_behind_its_end(
    name: str, many: bool, tmp_path: Path
) -> None:
    kind, head, line = LINED[name]
    folder = tmp_path / "in"
    folder.mkdir()
    written = (head + "".join(map(line, range(1, 5)))).encode()
    source = lambda: kind(folder if many else folder / "1")  # noqa: E731
    (folder / "1").write_bytes(b"")
    got: list[Any] = []
    for end in range(len(head), len(written), 3):
        (folder / "1").write_bytes(written[:end])
        got += called(source(), tmp_path / "state", complete=False)[0]
    (folder / "1").write_bytes(written[:-1].rstrip())  # the last line has no end
    got += called(source(), tmp_path / "state", complete=False)[0]
    assert len(got) == 3
    if many:  # nor will it have one: another file was begun
        (folder / "2").write_bytes(head.encode() + line(5).encode())
        got += called(source(), tmp_path / "state", complete=False)[0]
        assert len(got) == 5
    got += called(source(), tmp_path / "state")[0]
    assert got == called(source(), tmp_path / "whole")[0] and len(got) == (5 if many else 4)


# Several sources, and what is held.


def paired() -> drift.Graph:
    graph = drift.Graph("paired")
    left, right = (graph.source(name, time=drift.EventTime(time=abs)) for name in ("left", "right"))
    merged = left.merge(right)
    merged.sink("items")
    merged.key_by(lambda n: n % 3).window(drift.windows.tumbling(10)).count().sink("windows")
    merged.scan(lambda n: n % 2, 0, lambda total, n: (total + n, total + n), name="adds").sink("sums")
    merged.at_end(drift.agg.sum(), name="adds all").sink("whole")
    return graph


def outputs(run: drift.Run) -> list[Any]:
    return [(item.position, item.sink, item.meta, item.payload) for item in run]


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_what_a_paused_run_holds_comes_with_the_next_calls(engine: Any, tmp_path: Path) -> None:
    left, right = list(range(0, 80, 2)), [-n for n in range(1, 61, 3)]
    whole = drift.run(paired(), {"left": left, "right": right})
    expected, got = outputs(whole), []
    more: dict[str, Any] = {"engine": engine, "state": tmp_path / "state", "batch_items": 4}
    if engine == "zeromq":
        more["workers"] = 2
    for lefts, rights in ((11, 3), (14, 12)):
        run = drift.run(paired(), {"left": left[:lefts], "right": right[:rights]}, complete=False, **more)
        got += outputs(run)
        held = run.report.held
        assert held is not None
        least = min(left[lefts - 1], -right[rights - 1])
        assert held.sources["left"] >= 1 and f"{held.sources['right']} item" in str(held)
        open_now = {(n % 3, abs(n) // 10) for n in [*left, *right] if abs(n) < least <= abs(n) // 10 * 10 + 9}
        windows = [keys for name, keys in held.steps.items() if name != "adds all"]
        assert windows == [(len({key for key, _ in open_now}), len(open_now))] and held.steps["adds all"] == (1, 1)
    with drift.run(paired(), {"left": left, "right": right}, **more) as run:
        got += outputs(run)
    assert got == expected and run.report.digest == whole.report.digest
    with pytest.raises(drift.SettingsError, match=r"source 'right' has more now, such as -64"):
        drift.run(paired(), {"left": left, "right": [*right, -64]}, **more)


def test_items_of_the_last_time_and_those_within_lateness_come_behind_a_pause(tmp_path: Path) -> None:
    graph = drift.Graph("ties")
    graph.source("s", time=drift.EventTime(time=lambda item: item[0], lateness=3)).sink("out")
    items = [(5, "b"), (5, "a"), (5, "c"), (3, "d"), (9, "e"), (9, "f")]
    expected, got = outputs(drift.run(graph, {"s": items})), []
    for count in range(2, 7):
        run = drift.run(graph, {"s": items[:count]}, state=tmp_path / "state", complete=count == 6)
        got += outputs(run)
    assert got == expected


@given(
    cases(items_max=10),
    st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), max_size=3),
    st.sampled_from([1, 2, 100]),
    st.booleans(),
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_calls_with_a_pause_between_give_together_what_one_run_gives(
    case: Case, pauses: list[list[int]], batch_items: int, waits: bool
) -> None:
    inputs, reached = case.sources(), dict.fromkeys(case.sources(), 0)
    with states_on(Server()) as url:  # blocks of the digest are short there
        whole = drift.run(case.dataflow(), inputs)
        expected, got = outputs(whole), []
        state = drift.Checkpoints(url, every_s=0 if waits else 1000, classes=(Noted, Flags))
        for number, more in enumerate([*pauses, None]):
            for rank, name in enumerate(inputs):
                reached[name] = len(inputs[name]) if more is None else max(more[rank], reached[name])
            run = drift.run(
                case.dataflow(),
                {name: inputs[name][: reached[name]] for name in inputs},
                state=state,
                complete=more is None,
                batch_items=batch_items,
            )
            got += outputs(run)
            assert (run.report.held is None) == (more is None), number
        assert [repr(each) for each in got] == [repr(each) for each in expected]
        assert run.report.digest == whole.report.digest


# Segments, settings, the end itself.


def dear(number: int) -> dict[str, int]:
    return {"number": number, "score": number * number % 1009}


def scored() -> drift.Graph:
    graph = drift.Graph("scored")
    scores = graph.source("numbers").map(dear, name="dear", durable=True)
    scores.scan(lambda each: each["number"] % 7, 0, summed, name="sums").sink("out")
    return graph


@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_a_graph_with_durable_steps_pauses_and_is_over_as_a_whole(engine: Any, tmp_path: Path) -> None:
    expected, got = outputs(drift.run(scored(), {"numbers": range(50)})), []
    for count, complete in ((20, False), (50, True)):
        run = drift.run(scored(), {"numbers": range(count)}, engine=engine, state=tmp_path / "state", complete=complete)
        got += outputs(run)
    assert got == expected
    with pytest.raises(drift.SettingsError, match=r"'numbers' has more now, such as 50"):
        drift.run(scored(), {"numbers": range(51)}, engine=engine, state=tmp_path / "state")


def test_a_pause_needs_a_state_and_an_engine_that_has_one_before_the_end(tmp_path: Path) -> None:
    for more, message in (
        ({}, "pass state= too"),
        ({"engine": "spark", "state": tmp_path}, "'spark' has no checkpoint before the end.*'local' or 'zeromq'"),
    ):
        with pytest.raises(drift.SettingsError, match=message):
            drift.run(passed(), {"s": []}, **{"complete": False, **more})  # type: ignore[arg-type]


def test_a_run_that_is_over_goes_back_before_its_end_only_if_no_sink_has_more(tmp_path: Path) -> None:
    for name, sinks in (("none", None), ("file", {"out": drift.sinks.jsonl(tmp_path / "out.jsonl")})):
        state = drift.Checkpoints(tmp_path / name, every_items=1, every_s=0, keep=100)
        drift.run(passed(), {"s": range(300)}, state=state, batch_items=10, sinks=sinks).finish()
        back = drift.Checkpoints(tmp_path / name, from_checkpoint=1)
        if sinks is None:
            report = drift.run(passed(), {"s": range(310)}, state=back).finish()
            assert report.digest == drift.run(passed(), {"s": range(310)}).finish().digest
        else:
            with pytest.raises(drift.SettingsError, match="has more now, such as 300"):
                drift.run(passed(), {"s": range(310)}, state=back, sinks=sinks)
