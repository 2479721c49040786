"""Payloads of a source with a schema: which are rows of it, what is in place of the others, and what steps get."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import drift
import drift.testing
from drift.columns.rows import Frame
from drift.columns.schema_rows import SchemaRows
from drift_graph.errors import InputError, SettingsError

SCHEMA = {"at": int, "key": str, "fare": float}
FIELDS = tuple(pl.Schema(SCHEMA).items())
Rows = list[Any]

values: dict[str, st.SearchStrategy[Any]] = {
    "at": st.none() | st.integers(0, 40),
    "key": st.none() | st.sampled_from(["a", "b"]),
    "fare": st.none() | st.floats(-5, 5),
}
good = st.fixed_dictionaries(values) | st.fixed_dictionaries(dict(reversed(values.items())))
bad = st.one_of(
    st.fixed_dictionaries({**values, "fare": st.integers(0, 9)}),
    st.fixed_dictionaries({**values, "at": st.booleans() | st.just(2**63)}),
    st.fixed_dictionaries({**values, "key": st.just(b"a")}),
    st.fixed_dictionaries({**values, "more": st.none()}),
    st.fixed_dictionaries({name: values[name] for name in ("at", "key")}),
    st.just(None),
    st.just(("at", "key", "fare")),
)


def is_row(payload: Any) -> bool:
    """The rule, in other words."""
    if type(payload) is not dict or sorted(payload) != ["at", "fare", "key"]:
        return False
    at, key, fare = payload["at"], payload["key"], payload["fare"]
    fits = (at is None or (type(at) is int and at < 2**63), key is None or type(key) is str)
    return all(fits) and (fare is None or type(fare) is float)


def seen(row: dict[str, Any]) -> str:
    return repr(row)


def graph_of(policy: drift.EventTime | None = None, **settings: Any) -> drift.Graph:
    graph = drift.Graph("rows")
    rows = graph.source("rows", schema=SCHEMA, time=policy, **settings)
    rows.with_columns(twice=pl.col("fare") * 2).map(seen).sink("columns")
    rows.map(seen).sink("functions")
    rows.count("key").sink("counts")
    return graph


def in_order(row: dict[str, Any], **more: Any) -> str:
    return seen({name: row[name] for name in SCHEMA} | more)


@given(st.lists(good | bad, max_size=25), st.sampled_from([1, 3, 64]), st.sampled_from(["reference", "local"]))
def test_what_is_no_row_is_diverted_in_its_place(given_rows: Rows, batch_items: int, engine: Any) -> None:
    settings = {"batch_items": batch_items} if engine == "local" else {}
    items = list(drift.run(graph_of(on_error="divert"), {"rows": given_rows}, engine=engine, **settings))
    taken = [payload for payload in given_rows if is_row(payload)]
    assert [item.payload for item in items if item.sink == "functions"] == [in_order(row) for row in taken]
    twice = [in_order(row, twice=None if row["fare"] is None else row["fare"] * 2) for row in taken]
    assert [item.payload for item in items if item.sink == "columns"] == twice
    apart = [payload for payload in given_rows if not is_row(payload)]
    assert [item.payload["payload"] for item in items if item.sink == "errors"] == apart
    assert {item.payload["location"] for item in items if item.sink == "errors"} <= {"rows"}


@given(st.lists(good, max_size=12), bad, st.lists(good | bad, max_size=12), st.sampled_from([1, 3, 64]))
def test_or_ends_the_input_at_its_item(before: Rows, wrong: Any, behind: Rows, batch_items: int) -> None:
    for engine, settings in (("reference", {}), ("local", {"batch_items": batch_items})):
        run = drift.run(graph_of(), {"rows": [*before, wrong, *behind]}, engine=engine, **settings)  # type: ignore[arg-type]
        found: list[str] = []
        with pytest.raises(InputError, match=f"item {len(before)} of source 'rows': .*change the schema"):
            for item in run:
                found += [item.payload] if item.sink == "functions" else []
        assert found == [in_order(row) for row in before]


timed = st.fixed_dictionaries({**values, "at": st.integers(0, 40)}) | good | bad


@given(st.lists(timed, max_size=30), st.booleans())
@example([{"at": 5, "key": "a", "fare": 1.0}, None, {"at": None, "key": "a", "fare": 1.0}], True)
def test_in_event_time_rows_are_the_same_in_any_batches(given_rows: Rows, diverts: bool) -> None:
    policy = drift.EventTime("at", lateness=9, late="divert")
    graph = graph_of(policy, on_error="divert" if diverts else "error", late="late")
    found = set()
    for settings in ({"engine": "reference"}, {"batch_items": 2}, {"batch_items": 64}):
        run, items, said = drift.run(graph, {"rows": given_rows}, **settings), [], ""  # type: ignore[arg-type]
        try:
            items += run
        except drift.DriftError as error:
            said = f"{type(error).__name__}: {error}"
        found.add((run.digest, len(items), said))
    assert len(found) == 1


@pytest.mark.parametrize("count", [20, 3000])
def test_a_list_and_frames_are_the_same_input(count: int) -> None:
    rows = [{"fare": n / 4, "at": n, "key": "ab"[n % 2]} for n in range(count)]
    frame = pl.DataFrame(rows, schema={"fare": float, "at": int, "key": str})
    narrow = frame.with_columns(pl.col("at").cast(pl.Int16), pl.col("key").cast(pl.Categorical))
    graph = graph_of(drift.EventTime("at"))
    digests = {drift.run(graph, {"rows": rows}, engine="reference").finish().digest}
    for given_rows in (rows, frame, narrow, frame.select(*SCHEMA)):
        digests.add(drift.run(graph, {"rows": given_rows}).finish().digest)
    if count > 1000:
        digests.add(drift.run(graph, {"rows": rows}, engine="zeromq", workers=2).finish().digest)
    assert len(digests) == 1


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_many_rows_before_one_that_is_none_all_come(engine: Any) -> None:
    rows: Rows = [{"at": n, "key": "a", "fare": 1.0} for n in range(1500)]
    run = drift.run(graph_of(drift.EventTime("at")), {"rows": [*rows, {**rows[-1], "fare": 1}]}, engine=engine)
    found: list[str] = []
    with pytest.raises(InputError, match="item 1500 of source 'rows'"):
        for item in run:
            found += [item.payload] if item.sink == "functions" else []
    assert found == [seen(row) for row in rows[:-1]]  # the heartbeat is at the last


def test_many_rows_become_columns_once_and_keep_their_dicts() -> None:
    rows = [{"at": n, "key": "a", "fare": 1.0} for n in range(2000)]
    taken = SchemaRows(FIELDS)(rows)
    assert type(taken) is Frame and taken.values == rows and taken.values[7] is rows[7]
    other = SchemaRows(FIELDS)([dict(reversed(row.items())) for row in rows])
    assert type(other) is Frame and list(other.values[7]) == list(SCHEMA)
    assert SchemaRows(FIELDS)(taken) is taken
    few = SchemaRows(FIELDS)(rows[:5])
    assert type(few) is list and few[0] is rows[0]


def test_what_a_dict_holds_has_the_order_of_the_schema_too() -> None:
    schema = {"n": int, "of": pl.Struct({"a": pl.Int64, "b": pl.List(pl.Int64)})}
    graph = drift.Graph("nested")
    graph.source("rows", schema=schema).map(seen).sink("out")
    expected = "{'n': 1, 'of': {'a': 2, 'b': [3]}}"
    for count in (1, 2000):
        rows = [{"n": 1, "of": {"b": [3], "a": 2}}] * count
        for engine in ("reference", "local"):
            assert {item.payload for item in drift.run(graph, {"rows": rows}, engine=engine)} == {expected}  # type: ignore[call-overload]


def test_lines_that_cannot_be_read_and_rows_of_another_type_are_diverted_beside_each_other(tmp_path: Path) -> None:
    rows: Rows = [{"at": n, "key": "a", "fare": n if n % 5 == 1 else float(n)} for n in range(20)]
    lines = ["{" if n % 5 == 3 else json.dumps(row) for n, row in enumerate(rows)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    graph = graph_of(on_error="divert")
    record, source = tmp_path / "record", drift.sources.jsonl(tmp_path / "rows.jsonl", dict)
    run = drift.run(graph, {"rows": source}, record=record, batch_items=6)
    items = list(run)
    assert [item.payload for item in items if item.sink == "functions"] == [
        in_order(row) for n, row in enumerate(rows) if n % 5 not in (1, 3)
    ]
    apart = [item.payload for item in items if item.sink == "errors"]
    assert [each["location"] == "rows" for each in apart] == [True, False] * 4
    assert drift.replay(record, graph).finish().digest == run.digest
    assert drift.run(graph, {"rows": source}, engine="reference").finish().digest == run.digest


def test_a_run_resumes_among_diverted_rows(tmp_path: Path) -> None:
    rows: Rows = [{"at": n, "key": "a", "fare": n if n % 7 == 1 else float(n)} for n in range(200)]
    graph = graph_of(drift.EventTime("at"), on_error="divert")
    whole = drift.run(graph, {"rows": rows}).finish().digest
    for stop in (5, 60, 111):
        checkpoints = drift.Checkpoints(tmp_path / f"state{stop}", every_items=5, every_s=100)
        first = drift.run(graph, {"rows": rows}, state=checkpoints, batch_items=4)
        for at, _ in enumerate(first):
            if at == stop:
                first.close()
                break
        run = drift.run(graph, {"rows": rows}, state=checkpoints, batch_items=9)
        assert run.finish().digest == whole


event_time = drift.EventTime("at", lateness=5, late="divert")


@pytest.mark.long
@drift.testing.deterministic(graph_of(event_time, on_error="divert"), rows=st.lists(timed, max_size=12))
def test_the_harness_takes_what_is_diverted() -> None: ...


# Files of texts, which are read as the rows of the schema.

TYPED = {"at": int, "fare": float, "when": pl.Datetime("us")}
READ = [{"at": n, "fare": n + 0.0, "when": datetime(2013, 1, 1, n)} for n in range(6)]


def of_texts(**settings: Any) -> drift.Graph:
    graph = drift.Graph("typed")
    graph.source("rows", schema=TYPED, **settings).with_columns(later=pl.col("when").dt.offset_by("1h")).sink("out")
    return graph


def write_texts(path: Path) -> None:
    lines = [{**row, "fare": row["at"], "when": row["when"].isoformat()} for row in READ]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        cells = [",".join(map(str, line.values())) for line in lines]
        path.write_text("\n".join(["at,fare,when", *cells, ""]))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file_is_read_as_rows_of_the_sources_schema(kind: str, tmp_path: Path) -> None:
    """Also each file of a folder; and with the graph's schema it is as with that of the source itself."""
    source = getattr(drift.sources, kind)
    for name in ("a", "b"):
        write_texts(tmp_path / f"{name}.{kind}")
    expected = drift.run(of_texts(), {"rows": READ}).finish().digest
    for more in ({}, {"schema": TYPED}):
        for engine in ("reference", "local", "zeromq"):
            run: Any = drift.run(of_texts(), {"rows": source(tmp_path / f"a.{kind}", **more)}, engine=engine)
            assert run.finish().digest == expected
    of_both = drift.run(of_texts(), {"rows": READ + READ}).finish().digest
    assert drift.run(of_texts(), {"rows": source(tmp_path)}).finish().digest == of_both


def test_lists_and_structs_in_json_are_rows_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1, "of": {"a": [1, null]}, "kind": "x"}\n')
    (tmp_path / "rows.csv").write_text("n,of,kind\n1,[],x\n")
    graph = drift.Graph("nested")
    kinds = {"n": int, "of": pl.Struct({"a": pl.List(pl.Int64)}), "kind": pl.Enum(["x"])}
    graph.source("rows", schema=kinds).map(seen).sink("out")
    (item,) = drift.run(graph, {"rows": drift.sources.jsonl(tmp_path / "rows.jsonl")})
    assert item.payload == "{'n': 1, 'of': {'a': [1, None]}, 'kind': 'x'}"
    with pytest.raises(SettingsError, match=r"csv: the schema has Struct.* for 'of', and no text is read as one"):
        drift.run(graph, {"rows": drift.sources.csv(tmp_path / "rows.csv")}).finish()


def test_what_cannot_be_read_as_a_row_is_diverted_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("at,fare,when\n1,2.5,2013-01-01T05:00\n2,x,2013-01-01T05:00\n3\n4,,2013-01-01T06:00\n")
    graph = of_texts(on_error="divert")
    items = list(drift.run(graph, {"rows": drift.sources.csv(path)}))
    assert [(item.payload["at"], item.payload["fare"]) for item in items if item.sink == "out"] == [(1, 2.5), (4, None)]
    assert [item.payload["location"] for item in items if item.sink == "errors"] == ["rows, line 3", "rows, line 4"]
    with pytest.raises(InputError, match="line 3: the column 'fare' has 'x', which is no Float64"):
        drift.run(of_texts(), {"rows": drift.sources.csv(path)}).finish()


def test_a_source_that_was_told_what_its_payloads_are_gives_these(tmp_path: Path) -> None:
    for kind in ("csv", "jsonl"):
        write_texts(tmp_path / f"rows.{kind}")
    convert = {"at": int, "fare": float, "when": datetime.fromisoformat}
    as_told = drift.run(of_texts(), {"rows": drift.sources.csv(tmp_path / "rows.csv", convert=convert)}).finish()
    assert as_told.digest == drift.run(of_texts(), {"rows": READ}).finish().digest
    for told in (
        drift.sources.csv(tmp_path / "rows.csv", convert={}),
        drift.sources.jsonl(tmp_path / "rows.jsonl", dict),
    ):
        with pytest.raises(InputError, match="which it would not have as a column"):
            drift.run(of_texts(), {"rows": told}).finish()


def test_a_run_resumes_in_a_file_that_is_read_as_rows(tmp_path: Path) -> None:
    write_texts(tmp_path / "rows.csv")
    source, state = drift.sources.csv(tmp_path / "rows.csv"), drift.Checkpoints(tmp_path / "state", every_items=2)
    whole = [item.payload for item in drift.run(of_texts(), {"rows": source})]
    with drift.run(of_texts(), {"rows": source}, state=state, batch_items=2) as run:
        first = [next(run).payload for _ in range(4)]
    assert first == whole[:4]
    rest = list(drift.run(of_texts(), {"rows": source}, state=state, batch_items=2))
    assert rest[0].position > 0 and [item.payload for item in rest] == whole[rest[0].position :]
