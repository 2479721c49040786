"""Rows as columns are their dicts: the same forms, and one digest whatever of a graph is written with expressions."""

from __future__ import annotations

import datetime
import decimal
import math
import pickle
import struct
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flows import ZEROMQ, outcome
from hypothesis import example, given, settings
from hypothesis import strategies as st

import drift
from drift.auditing.replay import GraphDiffers
from drift.columns import rows as rows_module
from drift.columns.expressions import Chain, Expressions, Predicate, frame_of
from drift.columns.rows import Frame, frame_of_batch
from drift_graph import payloads
from drift_graph.canonical import canonical_each, encode_many, hash64_each, stored_each
from drift_graph.errors import GraphError, ImpureStep, InputError, PayloadError, SinkError, StepError
from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_kernel import kernel

KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-40, 300),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=40),
    pa.large_string(): st.sampled_from(["", "a", "z" * 31, "z" * 32, "é" * 200, "z" * 70_000]),
    pa.binary(): st.binary(max_size=300),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.duration("us"): st.timedeltas(datetime.timedelta(-9), datetime.timedelta(9)),
    pa.decimal128(20, 2): st.decimals(-(10**17), 10**17, places=2),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=3),
    pa.struct([("b", pa.int64()), ("a", pa.string())]): st.fixed_dictionaries({"b": st.integers(0, 9), "a": st.text()}),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["x", "yy"]),
    pa.null(): st.none(),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    count = draw(st.integers(0, 6))
    letters = st.characters(codec="utf-8", exclude_characters="\0")
    names = draw(st.lists(st.text(letters, min_size=1, max_size=3), unique=True, min_size=1, max_size=5))
    columns = []
    for _ in names:
        kind = draw(st.sampled_from(list(KINDS)))
        values = st.none() | KINDS[kind] if draw(st.booleans()) else KINDS[kind]
        columns.append(pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind))
    return pa.RecordBatch.from_arrays(columns, names)


@given(batches(), st.data())
@settings(max_examples=150)
def test_rows_have_the_forms_of_their_dicts(batch: pa.RecordBatch, data: st.DataObject) -> None:
    made = frame_of_batch(batch.schema.names, batch)
    start = data.draw(st.integers(0, len(made)))
    for rows in (made, made[start:], made[start:][1:]):
        dicts = Frame(rows.frame).values
        assert encode_many(rows) == b"".join(canonical_each(dicts))
        assert canonical_each(rows) == canonical_each(dicts) and stored_each(rows) == stored_each(dicts)
        assert hash64_each(rows) == hash64_each(dicts)
    wanted = bytes(data.draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made))))
    order = data.draw(st.permutations(range(len(made))))
    dicts = made.values
    for rows, expected in (
        (payloads.chosen(made, wanted), [each for each, is_wanted in zip(dicts, wanted) if is_wanted]),
        (payloads.in_order(made, order), [dicts[at] for at in order]),
        (payloads.joined([made, made[start:]]), [*dicts, *dicts[start:]]),
        (pickle.loads(pickle.dumps(made)), dicts),
    ):
        assert type(rows) is Frame and stored_each(rows) == stored_each(expected)


@given(st.data())
def test_rows_that_are_sorted_cut_and_joined_are_those_rows(data: st.DataObject) -> None:
    frames = [pl.DataFrame({"n": range(at, at + 9), "text": [f"{n:03}" * (n % 3) for n in range(9)]}) for at in (0, 50)]
    known = [(Frame(frame), frame.to_dicts()) for frame in frames]
    for _ in range(data.draw(st.integers(1, 8))):
        rows, dicts = data.draw(st.sampled_from(known))
        how = data.draw(st.sampled_from(["in order", "chosen", "slice", "joined", "seen"]))
        if how == "in order" and dicts:
            order = data.draw(st.lists(st.integers(0, len(dicts) - 1), max_size=20))
            made: tuple[Any, Any] = payloads.in_order(rows, order), [dicts[at] for at in order]
        elif how == "chosen":
            wanted = bytes(data.draw(st.lists(st.booleans(), min_size=len(dicts), max_size=len(dicts))))
            made = payloads.chosen(rows, wanted), [each for each, is_wanted in zip(dicts, wanted) if is_wanted]
        elif how == "slice":
            start, end = (data.draw(st.integers(0, len(dicts))) for _ in range(2))
            made = rows[start:end], dicts[start:end]
        elif how == "joined":
            others = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
            made = payloads.joined([rows, *(each for each, _ in others)]), sum((more for _, more in others), dicts)
        else:
            assert canonical_each(rows) == canonical_each(dicts)
            continue
        known.append(made)
        assert type(made[0]) is Frame and len(made[0]) == len(made[1]) and made[0].schema == frames[0].schema
        assert made[0].column("n").to_list() == [each["n"] for each in made[1]]
        assert made[0].nbytes <= 40 * max(len(made[1]), 1)  # no rows may still have some bytes of text
    for rows, dicts in known:
        assert rows.field("text") == [each["text"] for each in dicts]
        assert stored_each(rows) == stored_each(dicts) and encode_many(rows) == b"".join(canonical_each(dicts))
        assert rows.values == dicts


def test_rows_of_joined_frames_are_joined_again_in_another_order() -> None:
    dicts = [[{"n": 10 * part + at} for at in (2, 0, 1)] for part in range(3)]
    first, second, third = (payloads.in_order(Frame(pl.DataFrame(sorted(each, key=str))), [2, 0, 1]) for each in dicts)
    both = payloads.joined([first, second, third])
    again = payloads.joined([third, both, second])
    assert again.values == [*dicts[2], *dicts[0], *dicts[1], *dicts[2], *dicts[1]]


def test_few_of_many_rows_do_not_keep_all_in_memory() -> None:
    frame = pl.DataFrame({"n": range(10_000)})
    known, sorted_rows = weakref.ref(frame), payloads.in_order(Frame(frame), [*range(9_999, -1, -1)])
    few = payloads.joined([sorted_rows] * 2).in_order([3, 9])
    rest = payloads.joined([sorted_rows[9_990:9_995], payloads.in_order(few, [1, 0])])
    del frame, sorted_rows
    assert known() is None and few.values == [{"n": 9_996}, {"n": 9_990}]
    assert [each["n"] for each in rest] == [9, 8, 7, 6, 5, 9_990, 9_996]


def test_a_nan_has_one_form_whatever_its_bits() -> None:
    bits = [bytes.fromhex(each) for each in ("7ff8000000000000", "fff8000000000000", "7ff8000000000001")]
    frame = pl.DataFrame({"a": [*struct.unpack(">3d", b"".join(bits)), 1.5]})
    assert canonical_each(Frame(frame)) == [*canonical_each([{"a": math.nan}]) * 3, *canonical_each([{"a": 1.5}])]


def test_forms_are_the_same_however_many_are_computed_at_once() -> None:
    count = 20_000
    frame = pl.DataFrame({"n": range(count), "text": ["x" * (at % 70) for at in range(count)]})
    made, dicts = Frame(frame), frame.to_dicts()
    assert encode_many(made[8000:17_000]) == b"".join(canonical_each(dicts[8000:17_000]))
    assert canonical_each(made[8000:17_000][100:]) == canonical_each(dicts[8100:17_000])
    assert encode_many(made) == b"".join(canonical_each(dicts))


def number_of(at: int, limit: int) -> int:
    return (at * 7919 + 13) % limit


@pytest.mark.parametrize("last", ["a", "zz"])
def test_forms_of_many_rows_are_those_of_their_dicts_whatever_varies_in_length(last: str) -> None:
    count = 3000
    texts = ["x" * number_of(at, 13) for at in range(count)]
    columns: dict[str, Any] = {
        "small": [number_of(at, 98_304) - 32_768 for at in range(count)],
        "bytes": [number_of(at, 300) for at in range(count)],
        "nulls": [None if at % 3 == 0 else number_of(at, 700) - 200 for at in range(count)],
        "wide": [number_of(at, 1 << 40) ** 2 % (1 << 63) * (-1) ** at for at in range(count)],
        "float": [None if at % 5 == 0 else at / 7 for at in range(count)],
        "text": texts,
        "none": [None if at % 4 == 0 else text for at, text in enumerate(texts)],
        "blob": [text.encode() if at % 2 else None for at, text in enumerate(texts)],
        "long": [f"{at}" * number_of(at, 90) for at in range(count)],
        "same": ["twelve bytes"] * count,
        "six": ["sixsix"] * count,
    }
    for name in columns:  # each at the end of the row, at its beginning, and between others
        for others in ([], ["bytes"], ["six", "float"]):
            frame = pl.DataFrame({"m": columns[name], **{f"n{each}": columns[each] for each in others}})
            frame = frame.rename({"m": last})
            made, expected = Frame(frame), canonical_each(frame.to_dicts())
            assert canonical_each(made) == expected and encode_many(made[1000:]) == b"".join(expected[1000:])
            assert canonical_each(Frame(frame[5:])) == expected[5:]
            with_batch = Frame(frame)
            assert with_batch.batch.num_rows == count and encode_many(with_batch) == b"".join(expected)


def test_forms_are_the_same_in_whatever_order_they_are_asked_for() -> None:
    frame = pl.DataFrame({"n": range(50), "text": ["x" * (at % 14) for at in range(50)]})
    for some in (frame, frame.select("n")):
        made, expected = Frame(some), canonical_each(some.to_dicts())
        for start, end in ((30, 50), (0, 9), (11, 13), (3, 5), (20, 40), (0, 50)):
            assert canonical_each(made[start:end]) == expected[start:end]
            assert encode_many(made[start:end]) == b"".join(expected[start:end])


def test_rows_of_other_fields_are_joined_as_dicts() -> None:
    one, other = Frame(pl.DataFrame({"a": [1, 2]})), Frame(pl.DataFrame({"b": ["x"]}))
    assert payloads.joined([one, other]) == [{"a": 1}, {"a": 2}, {"b": "x"}]
    assert one[-1] == {"a": 2} and one[::-1].values == [{"a": 2}, {"a": 1}]
    with pytest.raises(IndexError):
        one[2]


# Expressions, and functions that say the same.

SCHEMA = {"at": int, "key": str, "fare": float}
Rows = list[dict[str, Any]]
rows_of_trips = st.lists(
    st.fixed_dictionaries({"at": st.integers(0, 50), "key": st.sampled_from("abé"), "fare": st.floats(-9, 9)}),
    max_size=30,
)


def dear(row: dict[str, Any]) -> bool:
    return bool(row["fare"] > 1.0)


def with_tip(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "tip": row["fare"] * 0.15, "at": row["at"] + 1}


def brief(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": row["key"] + "!", "tip": row["tip"]}


def trips(written: tuple[bool, ...], policy: Any = None) -> drift.Graph:
    """Each step is an expression or a function, as `written` says."""
    graph = drift.Graph("trips")
    stream: Any = graph.source("trips", schema=SCHEMA, time=policy)
    schemas: tuple[Any, ...] = (stream._fields,) * 2 + ((*stream._fields, ("tip", pl.Float64())),)
    steps: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = (
        (lambda rows: rows.filter(pl.col("fare") > 1.0, name="dear"), lambda rows: rows.filter(dear, name="dear")),
        (
            lambda rows: rows.with_columns(pl.col("at") + 1, tip="fare * 0.15", name="tip"),
            lambda rows: rows.map(with_tip, name="tip"),
        ),
        (
            lambda rows: rows.select(pl.concat_str("key", pl.lit("!")), "tip", name="brief"),
            lambda rows: rows.map(brief, name="brief"),
        ),
    )
    for (by_expression, by_function), is_expression, fields in zip(steps, written, schemas):
        stream._fields = fields
        stream = (by_expression if is_expression else by_function)(stream)
    stream.sink("out")
    stream.count(key=lambda row: row["key"]).sink("counts")
    return graph


def table(rows: Rows) -> Any:
    return drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")


@given(rows_of_trips, st.tuples(st.booleans(), st.booleans(), st.booleans()), st.booleans(), st.integers(1, 9))
@example([{"at": 5, "key": "a", "fare": 2.5}, {"at": 3, "key": "é", "fare": 0.5}], (True, True, True), True, 1)
def test_rows_and_dicts_expressions_and_functions_have_one_digest(
    rows: Rows, written: tuple[bool, ...], in_event_time: bool, batch_items: int
) -> None:
    policy = drift.EventTime(lambda row: row["at"], lateness=60) if in_event_time else None
    plain = drift.run(trips((False,) * 3, policy), {"trips": rows}, engine="reference")
    expected = list(plain)
    for source in (rows, table(rows)):
        for engine in ("local", "reference"):
            run = drift.run(trips(written, policy), {"trips": source}, engine=engine, batch_items=batch_items)
            assert list(run) == expected and run.digest == plain.digest


# Expressions in a row are computed together.

STEPS: dict[str, Callable[[Any, int], Any]] = {
    "above": lambda rows, n: rows.filter(pl.col("fare") > n - 5),
    "even": lambda rows, n: rows.filter((pl.col("at") + n) % 2 == 0),
    "none": lambda rows, n: rows.filter(pl.lit(None, pl.Boolean) | (pl.col("at") > n)),
    "more": lambda rows, n: rows.with_columns(at=pl.col("at") + n, fare="fare * 2"),
    "name": lambda rows, n: rows.with_columns(key=pl.col("key") + str(n)),
    "swap": lambda rows, n: rows.select("fare", "key", "at"),
    "literal": lambda rows, n: rows.select(at=pl.lit(n), key=pl.lit("1"), fare=pl.lit(0.5)),
    "cast": lambda rows, n: rows.with_columns(at=pl.col("key").cast(pl.Int64)),
    "function": lambda rows, n: rows.filter(lambda row: row["at"] != n),
}


def of_steps(steps: list[tuple[str, int]], policy: Any = None) -> drift.Graph:
    graph = drift.Graph("steps")
    rows: Any = graph.source("trips", schema=SCHEMA, time=policy)
    for name, number in steps:
        rows = STEPS[name](rows, number)
    rows.sink("out")
    return graph


chains = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9)), min_size=2, max_size=5)


@given(chains, rows_of_trips, st.booleans())
@example(
    [("above", 4), ("even", 1), ("more", 2), ("above", 5)],
    [{"at": n, "key": "a", "fare": n % 9.0} for n in range(30)],
    True,
)
@example([("more", 2), ("cast", 0)], [{"at": n, "key": "17x"[n % 3], "fare": 1.0} for n in range(9)], True)
@example([("name", 2), ("literal", 0), ("more", 1)], [{"at": 1, "key": "a", "fare": 1.0}] * 2, True)
@settings(max_examples=60)
def test_expressions_in_a_row_have_the_outcome_of_one_by_one(
    steps: list[tuple[str, int]], rows: Rows, in_event_time: bool
) -> None:
    policy = drift.EventTime(lambda row: row["at"], lateness=60) if in_event_time else None
    rows = [{name: row[name] for name in SCHEMA} for row in rows]
    expected = outcome(drift.run(of_steps(steps, policy), {"trips": rows}, engine="reference"))
    for source in (rows, table(rows)):
        for batch_items in (4, 100):
            graph = of_steps(steps, policy)
            assert outcome(drift.run(graph, {"trips": source}, batch_items=batch_items)) == expected


def test_expressions_in_a_row_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[int] = []
    collect = pl.LazyFrame.collect
    monkeypatch.setattr(pl.LazyFrame, "collect", lambda *of, **named: queries.append(1) or collect(*of, **named))
    rows = [{"at": n, "key": "a", "fare": n % 9.0} for n in range(100)]
    graph = of_steps([("more", 1), ("name", 2), ("more", 3), ("swap", 0)])
    run = drift.run(graph, {"trips": table(rows)}, batch_items=50)
    del queries[:]
    assert run.finish().items_out == 100 and 0 < len(queries) < 2 * 4  # of a batch and some of its rows


def test_a_dropped_row_fails_in_no_later_step_and_dicts_have_the_order_of_the_schema() -> None:
    graph = drift.Graph("drops")
    rows = graph.source("trips", schema=SCHEMA).filter(pl.col("key") != "x").filter(pl.col("at") > 0)
    rows = rows.filter(pl.when(pl.col("at") != 5).then(True))  # None of 5
    rows.sink("same")
    rows.with_columns(n=pl.col("key").cast(pl.Int64)).filter(pl.col("n") > 1).sink("out")
    trips = [{"fare": 1.0, "key": "x12"[n % 3], "at": n} for n in range(9)]
    items = list(drift.run(graph, {"trips": trips}))
    assert [item.payload["n"] for item in items if item.sink == "out"] == [2, 2]
    assert [item.payload["at"] for item in items if item.sink == "same"] == [1, 2, 4, 7, 8]
    assert {tuple(item.payload) for item in items if item.sink == "same"} == {("at", "key", "fare")}


@drift.testing.deterministic(trips((True, True, True)), trips=rows_of_trips)
def test_expressions_pass_the_harness() -> None: ...


def test_over_processes_and_from_a_file_and_in_a_record(tmp_path: Path) -> None:
    rows = [{"at": n * 7 % 50, "key": "abé"[n % 3], "fare": n % 5 - 1.5} for n in range(500)]
    policy = drift.EventTime(lambda row: row["at"], lateness=60)
    graph = trips((True,) * 3, policy)
    digest = drift.run(trips((False,) * 3, policy), {"trips": rows}).finish().digest
    assert drift.run(graph, {"trips": table(rows)}, **ZEROMQ).finish().digest == digest
    pq.write_table(pl.DataFrame(rows, schema=SCHEMA).to_arrow(), tmp_path / "trips.parquet")
    source = drift.sources.parquet(tmp_path / "trips.parquet", payload="rows")
    run = drift.run(graph, {"trips": source}, record=tmp_path / "record", batch_items=64)
    assert run.finish().digest == digest
    assert drift.replay(tmp_path / "record", graph).finish().digest == digest
    out = drift.sinks.parquet(tmp_path / "out.parquet")
    assert drift.run(graph, {"trips": source}, sinks={"out": out}).finish().digest == digest
    assert pl.read_parquet(tmp_path / "out.parquet").height == sum(row["fare"] > 1 for row in rows)


def test_rows_travel_to_workers_and_back_as_columns(tmp_path: Path) -> None:
    frame = pl.DataFrame(many_rows(), schema=SCHEMA).with_columns(
        kind=pl.Series(["x", "y", None] * 1000, dtype=pl.Enum(["x", "y"])), parts=pl.concat_list("at", "at")
    )
    wide = Frame(frame.with_columns(pl.col("at").cast(pl.Int128)))
    assert pickle.loads(pickle.dumps(wide)).frame.equals(wide.frame)
    some = Frame(frame)[7:2900]
    metas = Metas([bytes([0, at >> 8, at & 0xFF]) for at in range(len(some))])
    back = pickle.loads(pickle.dumps(Columns(metas, some, None), 5))
    assert type(back.payloads) is Frame and back.payloads.frame.equals(some.frame) and back.metas == metas
    assert back.payloads.encoded() == some.encoded() and back.payloads.frame.schema == frame.schema

    graph = drift.Graph("travels")
    graph.source("rows", schema=frame.schema).filter(pl.col("at") > 9).with_columns(x=pl.col("at") * 2).sink("out")
    plain = drift.run(graph, {"rows": frame.to_dicts()})
    run = drift.run(graph, {"rows": drift.sources.table(frame, payload="rows")}, **ZEROMQ)
    made = [each.payloads for each in run.batches() if each.metas]
    assert set(map(type, made)) == {Frame}
    assert run.digest == plain.finish().digest


# Functions of tables.


def tipped(trips: pl.DataFrame) -> pl.DataFrame:
    return trips.with_columns(tip=trips["fare"] * 0.15)


TIPPED = {**SCHEMA, "tip": float}


@given(rows_of_trips, st.integers(1, 9))
def test_a_function_of_tables_is_a_map_of_rows(rows: Rows, batch_items: int) -> None:
    by_tables, by_rows = drift.Graph("tips"), drift.Graph("tips")
    by_tables.source("trips", schema=SCHEMA).map_batches(tipped, schema=TIPPED, name="tip").sink("out")
    by_rows.source("trips").map(lambda row: {**row, "tip": row["fare"] * 0.15}, name="tip").sink("out")
    expected = drift.run(by_rows, {"trips": rows}, engine="reference").finish().digest
    for source in (rows, table(rows)):
        for engine in ("local", "reference"):
            run = drift.run(by_tables, {"trips": source}, engine=engine, batch_items=batch_items)  # type: ignore[arg-type]
            assert run.finish().digest == expected


def test_what_a_function_of_tables_sets_in_place_is_set_in_a_copy() -> None:
    def later(trips: pl.DataFrame) -> pl.DataFrame:
        return trips.replace_column(0, trips["at"] + 1)

    graph = drift.Graph("in place")
    stream = graph.source("trips", schema=SCHEMA)
    stream.map_batches(later, schema=SCHEMA).sink("later")
    stream.sink("out")
    rows = [{"at": n, "key": "a", "fare": 1.0} for n in range(5)]
    items = list(drift.run(graph, {"trips": table(rows)}))
    assert [item.payload["at"] for item in items if item.sink == "later"] == [1, 2, 3, 4, 5]
    assert [item.payload["at"] for item in items if item.sink == "out"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda trips: trips.with_columns(tip=trips["fare"] - trips["fare"].mean()), ImpureStep, "not row by row"),
        (lambda trips: trips.with_columns(tip=trips["fare"].first()), ImpureStep, "not row by row: of a table of 4"),
        (lambda trips: trips.with_columns(tip=1.0).reverse(), ImpureStep, "not row by row"),
        (lambda trips: tipped(trips).head(1), ImpureStep, "returned a table of 1 rows for one of 4"),
        (lambda trips: trips.with_columns(tip=trips["key"]), StepError, "and schema= says at: Int64, .*, tip: Float64"),
        (lambda trips: trips.to_dicts(), StepError, "it returned a list; return a polars.DataFrame"),
    ],
)
def test_functions_of_tables_that_are_no_maps_of_rows_end_the_run(function: Any, error: Any, says: str) -> None:
    graph = drift.Graph("refused")
    graph.source("trips", schema=SCHEMA).map_batches(function, schema=TIPPED).sink("out")
    rows = [{"at": n, "key": "a", "fare": float(n)} for n in range(4)]
    with pytest.raises(error, match=says):
        drift.run(graph, {"trips": table(rows)}).finish()


def test_a_function_of_tables_goes_to_workers_and_a_failing_row_ends_the_run_at_its_item() -> None:
    def checked(trips: pl.DataFrame) -> pl.DataFrame:
        if (trips["at"] == 2999).any():
            raise ValueError("no such trip")
        return tipped(trips)

    rows = [{"at": n, "key": "a", "fare": float(n)} for n in range(3000)]
    graph = drift.Graph("workers")
    graph.source("trips", schema=SCHEMA).map_batches(checked, schema=TIPPED).sink("out")
    assert drift.run(graph, {"trips": table(rows[:-1])}, **ZEROMQ).finish().items_out == 2999
    run = drift.run(graph, {"trips": table(rows)})
    with pytest.raises(StepError, match="no such trip"):
        for at, item in enumerate(run):
            assert item.payload["at"] == at
    assert at == 2998


# Outputs.


def many_rows() -> Rows:
    return [{"at": n * 7 % 50, "key": "abé"[n % 3], "fare": None if n % 11 == 0 else n % 5 - 1.5} for n in range(3000)]


def exported(run: drift.Run, how: str, folder: Path) -> pl.DataFrame:
    made = run.finish() if how == "parquet" else getattr(run, how)(of="out")
    if how == "parquet":
        return pl.read_parquet(folder / "*.parquet")
    return made.pl() if how == "to_duckdb" else made if how == "to_polars" else pl.DataFrame(made)


@pytest.mark.parametrize("how", ["to_arrow", "to_polars", "to_pandas", "to_duckdb", "parquet"])
def test_outputs_take_columns_as_they_are(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    by_columns = rows_module.payloads_of
    monkeypatch.setattr(rows_module, "payloads_of", lambda *of: made.append(of[-1]) or by_columns(*of))
    outputs = []
    for at, source in enumerate((many_rows(), table(many_rows()))):
        graph = drift.Graph("out")
        stream = graph.source("trips", schema=SCHEMA).with_columns(tip="fare * 2")
        stream.filter(pl.col("at") > 9).sink("out")
        stream.filter(pl.col("at") < 20).sink("others")
        del made[:]
        folder = tmp_path / str(at)
        sinks = {"out": drift.sinks.parquet(folder, part_items=900)} if how == "parquet" else {}
        run = drift.run(graph, {"trips": source}, sinks=sinks, batch_items=1000)
        outputs.append(exported(run, how, folder))
    assert outputs[0].equals(outputs[1], null_equal=True)
    assert outputs[0].height == sum(row["at"] > 9 for row in many_rows())
    assert sum(made) < 1000 or kernel is None  # of samples; what has no kernel is made of values


LINES = {
    "text": [None if n % 7 == 0 else 'é"%\n,'[: n % 6] for n in range(2500)],
    "float %": [None if n % 5 == 0 else n / 7 * 10.0 ** (n % 40 - 20) for n in range(2500)],
    "b": [None if n % 3 == 0 else n % 2 == 0 for n in range(2500)],
    "time": [datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=n, microseconds=n % 2) for n in range(2500)],
    "none": [None] * 2500,
    "day": [datetime.date(2024, 1, 1 + n % 28) for n in range(2500)],
    "a": [n**5 - 10**15 for n in range(2500)],
    "d": [decimal.Decimal(n) / 100 for n in range(2500)],
}


@pytest.mark.parametrize("how", ["jsonl", "csv"])
@pytest.mark.parametrize("names", [list(LINES), ["value"], ["a", "parts"], ["a", "nan"]])
def test_files_of_rows_are_those_of_dicts(
    how: Any, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    by_columns = rows_module.payloads_of
    monkeypatch.setattr(
        rows_module, "payloads_of", lambda *of: (made.append(of[-1]) if of[2] == "dict" else None) or by_columns(*of)
    )
    more = {"value": LINES["text"], "parts": [[n, None] for n in range(2500)], "nan": [n / 7 for n in range(2500)]}
    more["nan"][2000] = math.nan
    frame = pl.DataFrame({name: {**LINES, **more}[name] for name in names})
    found = []
    for source in (frame.to_dicts(), drift.sources.table(frame, payload="rows")):
        graph = drift.Graph("files")
        graph.source("rows").sink("out")
        path = tmp_path / f"{len(found)}"
        del made[:]
        run = drift.run(graph, {"rows": source}, sinks={"out": getattr(drift.sinks, how)(path)}, batch_items=1000)
        error = ""
        try:
            run.finish()
        except SinkError as raised:
            error = str(raised).replace(str(path), "PATH")
        found.append((path.read_bytes(), error))
    assert found[0] == found[1] and found[0][0].count(b"\n") >= 2000
    assert bool(found[0][1]) == ("nan" in names and how == "jsonl")
    if names == list(LINES) and how == "csv":
        assert sum(made) < 1000 or kernel is None


def test_outputs_of_columns_take_the_columns_that_are_named() -> None:
    graph = drift.Graph("named")
    graph.source("trips", schema=SCHEMA).sink("out")
    wanted = {"fare": pa.float32(), "at": pa.int8(), "none": pa.string()}
    for columns in (wanted, list(wanted)):
        tables = [
            drift.run(graph, {"trips": each}).to_arrow(columns=columns) for each in (many_rows(), table(many_rows()))
        ]
        assert tables[0].to_pylist() == tables[1].to_pylist()
    assert tables[0].column_names == ["position", "sink", "time", *wanted]
    with pytest.raises(PayloadError, match="is int8"):
        drift.run(graph, {"trips": table([{"at": 300, "key": "a", "fare": 1.0}])}).to_arrow(columns=wanted)


# What is refused.


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda rows: rows.select(pl.col("fair")), "the field 'fair', and the rows have .*; did you mean 'fare'"),
        (lambda rows: rows.select(pl.col("fare").sum()), "is not row by row"),
        (lambda rows: rows.with_columns(x=pl.col("fare") - pl.col("fare").mean()), "is not row by row"),
        (lambda rows: rows.with_columns(x=pl.col("fare").shift()), "is not row by row"),
        (lambda rows: rows.with_columns(x=pl.col("fare").rank()), "is not row by row"),
        (lambda rows: rows.select(pl.col("fare").fill_null(pl.col("fare").mean())), "is not row by row: its result"),
        (lambda rows: rows.select(pl.col("at") + (pl.col("at") > 1000).sum()), "is not row by row: its result"),
        (lambda rows: rows.select(pl.col("at") + pl.col("at").null_count()), "is not row by row: its result"),
        (lambda rows: rows.select(pl.col("at") + (pl.len() - 1)), "is not row by row: its result"),
        (lambda rows: rows.filter(pl.when(pl.col("at") > 9).then(pl.col("at").max()) > 0), "is not row by row"),
        (lambda rows: rows.select(pl.col("at") + pl.lit(pl.Series([1, 2, 3]))), "has 3 values, and a row takes one"),
        (lambda rows: rows.select(pl.col("key").cast(pl.Categorical()).to_physical()), "another in each; cast to text"),
        (lambda rows: rows.select(pl.col("key").map_elements(str.upper)), "calls Python; use stream.map"),
        (
            lambda rows: rows.select(pl.concat_str([pl.lit("x" * 200), pl.col("key").map_elements(str.upper)])),
            "calls Python; use stream.map",
        ),
        (lambda rows: rows.select(pl.col("key").dt.year()), "cannot be computed of these rows"),
        (lambda rows: rows.filter(pl.col("fare") * 2), "give one that is true or false"),
        (lambda rows: rows.filter("fare >"), "no SQL text of one"),
        (lambda rows: rows.select(), "is given no expression"),
        (lambda rows: rows.select(7), "is no expression of Polars"),
        (lambda rows: rows.map(dict).select("fare"), "are not known: say them at the source"),
        (lambda rows: rows.map(dict).filter(pl.col("fare") > 0), "are not known: say them at the source"),
        (lambda rows: rows.filter(bool).select("fair"), "did you mean 'fare'"),
        (lambda rows: rows.filter(7), "filter takes a function, not 7"),
        (lambda rows: rows.filter(pl.col("fare") > 0, with_time=True), "does not take with_time"),
        (lambda rows: rows.select("fare", on_error="drop"), "'error' or 'divert'"),
    ],
)
def test_expressions_that_cannot_be_are_refused_when_the_step_is_written(
    write: Callable[[Any], Any], says: str
) -> None:
    with pytest.raises(GraphError, match=says):
        write(drift.Graph("refused").source("trips", schema=SCHEMA))


@pytest.mark.parametrize(
    "row_by_row",
    [
        pl.col("numbers").list.eval(pl.element().sum()).list.first(),
        pl.col("numbers").list.filter(pl.element() > 1).list.len(),
        pl.col("n").is_in(pl.lit(pl.Series([1, 2])).implode()).cast(int),
        pl.col("n").replace_strict({1: 2}, default=None),
        pl.col("pair").struct.with_fields(pl.field("x") + 1).struct.field("x"),
        pl.when(pl.col("n") > 1).then(pl.lit(3)).otherwise(pl.lit(4) + pl.lit(5)),
    ],
    ids=str,
)
def test_what_is_within_a_row_and_constants_are_row_by_row(row_by_row: pl.Expr) -> None:
    graph = drift.Graph("within")
    schema = {"n": int, "numbers": pl.List(int), "pair": pl.Struct({"x": int})}
    graph.source("rows", schema=schema).select(made=row_by_row).sink("out")
    rows = [{"n": n, "numbers": list(range(n)), "pair": {"x": n}} for n in range(1, 6)]
    expected = pl.DataFrame(rows, schema=schema).select(made=row_by_row).to_dicts()
    for items in (1, 2, 5):
        assert [item.payload for item in drift.run(graph, {"rows": rows}, batch_items=items)] == expected


@pytest.mark.parametrize(
    "keep",
    [
        lambda rows, others: rows.merge(others),
        lambda rows, others: rows.limit(9, key="key"),
        lambda rows, others: rows.inspect(str),
        lambda rows, others: rows.split(2)[1],
        lambda rows, others: rows.route(lambda row: row["fare"] > 3)[0],
        lambda rows, others: rows.route(lambda row: row["fare"] > 3)[1],
    ],
    ids=["merge", "limit", "inspect", "split", "route", "rest"],
)
def test_behind_steps_that_keep_rows_expressions_may_follow(keep: Callable[[Any, Any], Any]) -> None:
    def graph() -> drift.Graph:
        made = drift.Graph("kept")
        time = drift.EventTime("at", tie="fare", lateness=100)
        rows, others = (made.source(name, schema=SCHEMA, time=time) for name in ("rows", "others"))
        kept = keep(rows, others).filter("fare > 2").with_columns(tip=pl.col("fare") * 0.5)
        kept.key_by("key").window(drift.windows.tumbling(10)).rows(tips=drift.agg.sum("tip")).sink("out")
        others.sink("rest")
        return made

    given = {
        name: [{"at": 7 * n % 50, "key": "ab"[n % 2], "fare": n + less} for n in range(30)]
        for name, less in (("rows", 0.25), ("others", 0.5))
    }
    tables = {name: pl.DataFrame(rows, schema=SCHEMA) for name, rows in given.items()}
    runs = [
        drift.run(graph(), sources, **how)
        for sources in (given, tables)
        for how in ({"engine": "reference"}, {}, {"batch_items": 4})
    ]
    ends = [run.finish() for run in runs]
    assert len({end.digest for end in ends}) == 1
    assert ends[0].items_out > 30


def test_streams_of_other_fields_merge_into_one_without() -> None:
    graph = drift.Graph("merged")
    one, other = graph.source("one", schema={"a": int}), graph.source("other", schema={"a": float})
    assert one.merge(other).schema is None and one.merge(one).schema == {"a": pl.Int64}


@pytest.mark.parametrize("last", [{"x": None}, {"x": 2.0}], ids=str)
def test_an_expression_that_is_not_row_by_row_is_found_in_any_batch_of_any_run(last: Any) -> None:
    """The second net: what the list of functions would let pass."""
    fields, clean = (("x", pl.Float64()),), [{"x": 50.0 if n == 7 else 1.0} for n in range(40)]
    needing_nulls = [pl.all().forward_fill(), pl.all().fill_null(strategy="max")] if last["x"] is None else []
    for expression in (pl.col("x").is_duplicated(), pl.col("x").cum_sum(), pl.col("x").max(), *needing_nulls):
        step = Expressions(fields, (expression.meta.serialize(),), "select", str(expression))
        for _ in range(5):
            with pytest.raises(ImpureStep, match="is not row by row: of some rows of a batch of 42"):
                step.each([*clean, {"x": 3.0}, last])
            with pytest.raises(ImpureStep):
                Chain([step])([*clean, {"x": 3.0}, last])
    kept = Predicate(fields, ((pl.col("x").cum_sum() > 4).meta.serialize(),), "a sum")
    with pytest.raises(ImpureStep):
        kept.each([*clean, {"x": 3.0}, last])


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_a_decimal_that_is_no_number_is_diverted(engine: Any, capfd: pytest.CaptureFixture[str]) -> None:
    graph = drift.Graph("decimals")
    rows = graph.source("rows", schema={"price": pl.Decimal(6, 2)}, on_error="divert")
    rows.with_columns(n=pl.col("price").cast(float)).sink("out")
    given = [{"price": decimal.Decimal(text)} for text in ("1.50", "NaN", "-Infinity", "1e40", "3.50")]
    items = list(drift.run(graph, {"rows": given}, engine=engine))
    assert [item.sink for item in items] == ["out", "errors", "errors", "errors", "out"]
    assert "the field 'price' is Decimal(precision=6, scale=2)" in items[1].payload["error"]
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", [pl.Int128, pl.List(pl.Int128), pl.Object, pl.Struct({"o": pl.Object})])
def test_a_field_that_rows_cannot_have_is_refused(kind: Any) -> None:
    with pytest.raises(GraphError, match=r"has the field 'v' of type .*, which rows cannot have: .*cast it"):
        drift.Graph("refused").source("rows", schema={"v": kind})
    rows = drift.Graph("refused").source("rows", schema={"a": int})
    with pytest.raises(GraphError, match="has the field 'v' of type Int128, which rows cannot have"):
        rows.select(v=pl.col("a").cast(pl.Int128))
    with pytest.raises(GraphError, match="a field '', a name that rows cannot have"):
        rows.select(pl.col("a").alias(""))


def test_types_may_be_written_without_what_is_usual() -> None:
    schema = {"c": pl.Categorical, "d": datetime.timedelta, "e": pl.Duration, "t": pl.Datetime}
    rows = drift.Graph("usual").source("rows", schema=schema)
    assert rows.schema == {
        "c": pl.Categorical(),
        "d": pl.Duration("us"),
        "e": pl.Duration("us"),
        "t": pl.Datetime("us"),
    }


@pytest.mark.parametrize("schema", [{}, {"a": 7}, 5])
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(GraphError, match="schema="):
        drift.Graph("refused").source("trips", schema=schema)


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("bad", [{"at": 1, "key": "a"}, {"at": 1, "key": "a", "fare": "x"}, 5])
def test_a_payload_without_these_fields_ends_the_run_at_its_item(bad: Any, engine: Any) -> None:
    graph = drift.Graph("bad")
    graph.source("trips", schema=SCHEMA).with_columns(tip="fare * 2").sink("out")
    good = {"at": 1, "key": "a", "fare": 1.5}
    run = drift.run(graph, {"trips": [good, bad, good]}, engine=engine)
    assert next(run).payload["tip"] == 3.0
    with pytest.raises(InputError, match=r"item 1 of source 'trips': .*change the schema"):
        next(run)


# What a value has to be.

WRONG = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.dates(),
    st.datetimes(timezones=st.none() | st.just(datetime.UTC) | st.just(datetime.timezone(datetime.timedelta(hours=2)))),
    st.decimals(-9, 9, places=3),
    st.lists(st.integers(0, 9) | st.booleans(), max_size=2),
    st.fixed_dictionaries({"b": st.integers(0, 9), "a": st.text(max_size=2)}, optional={"c": st.none()}),
    st.none(),
)
TYPES: list[Any] = [
    pl.Int64, pl.Int8, pl.UInt16, pl.Float64, pl.Float32, pl.Boolean, pl.String, pl.Binary, pl.Date, pl.Time,
    pl.Datetime("us"), pl.Datetime("ms"), pl.Datetime("us", "UTC"), pl.Datetime("us", "Europe/Berlin"),
    pl.Duration("us"), pl.Decimal(10, 2), pl.Enum(["a", "b"]), pl.Categorical(), pl.List(pl.Int64), pl.Null,
    pl.Struct({"b": pl.Int64, "a": pl.String}),
]  # fmt: skip


@given(st.sampled_from(TYPES), st.lists(WRONG, min_size=1, max_size=3))
@settings(max_examples=300)
@example(pl.Int64, [True])
@example(pl.Float64, [2**53 + 1])
@example(pl.Float32, [0.1])
@example(pl.Decimal(10, 2), [decimal.Decimal("1.005")])
@example(pl.Datetime("ms"), [datetime.datetime(2024, 1, 1, 0, 0, 0, 1)])
@example(pl.Date, [datetime.datetime(2024, 1, 1, 5)])
@example(pl.Struct({"b": pl.Int64, "a": pl.String}), [{"b": 1}])
def test_a_dict_that_becomes_a_row_is_that_row(kind: Any, values: list[Any]) -> None:
    dicts = [{"n": 1, "a": value} for value in values]
    try:
        made = frame_of(dicts, (("n", pl.Int64()), ("a", pl.Schema({"a": kind})["a"])))
    except InputError as error:
        assert "the field 'a'" in str(error) and "change the schema" in str(error)
        return
    assert canonical_each(Frame(made)) == canonical_each(dicts) == canonical_each(Frame(made).values)


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("bad", [True, 2.0, 2**63, "2"])
def test_a_value_of_another_type_ends_the_run_at_its_row(bad: Any, engine: Any) -> None:
    graph = drift.Graph("types")
    stream = graph.source("trips", schema=SCHEMA).filter(pl.col("fare") > 0)
    stream.filter(lambda row: row["key"] == "a").with_columns(twice=pl.col("at") * 2).sink("out")
    good = {"at": 1, "key": "a", "fare": 1.5}
    run = drift.run(graph, {"trips": [good, {**good, "at": bad}, good]}, engine=engine)
    assert next(run).payload["twice"] == 2
    with pytest.raises(
        InputError,
        match=f"item 1 of source 'trips': the field 'at' is Int64, and the row .* has {bad!r}, .* change the schema",
    ):
        next(run)


def test_columns_that_rows_cannot_have_are_refused() -> None:
    graph = drift.Graph("maps")
    graph.source("rows").sink("out")
    maps = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(InputError, match="a map is a dict of any keys"):
        drift.run(graph, {"rows": drift.sources.table(maps, payload="rows")}).finish()


def test_schemas_follow() -> None:
    rows = drift.Graph("schemas").source("trips", schema=SCHEMA)
    assert rows.schema == {"at": pl.Int64, "key": pl.String, "fare": pl.Float64}
    made = rows.filter(pl.col("fare") > 0).with_columns(dear=pl.col("fare") > 9).select("dear", twice="at * 2")
    assert made.schema == {"dear": pl.Boolean, "twice": pl.Int64}
    assert rows.map(dict).schema is None


def test_a_graph_with_other_expressions_is_another(tmp_path: Path) -> None:
    def graph(factor: float) -> drift.Graph:
        made = drift.Graph("prints")
        made.source("trips", schema=SCHEMA).with_columns(tip=pl.col("fare") * factor).sink("out")
        return made

    assert graph(2.0) == graph(2.0) and graph(2.0) != graph(3.0)
    drift.run(graph(2.0), {"trips": []}, record=tmp_path / "record").finish()
    with pytest.warns(GraphDiffers, match="tip|with_columns"):
        drift.replay(tmp_path / "record", graph(3.0)).finish()


def test_decimals_and_times_of_a_file_are_those_of_its_dicts(tmp_path: Path) -> None:
    values = {
        "d": [decimal.Decimal("1.50"), None],
        "t": [datetime.time(1, 2, 3), None],
        "z": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None],
    }
    pq.write_table(pa.table(values), tmp_path / "in.parquet")
    graph = drift.Graph("same")
    graph.source("rows").sink("out")
    digests = {
        drift.run(graph, {"rows": drift.sources.parquet(tmp_path / "in.parquet", payload=kind)}).finish().digest  # type: ignore[arg-type]
        for kind in ("dict", "rows")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("as_rows", [True, False])
def test_chosen_fields_are_in_the_order_in_which_they_are_chosen(as_rows: bool) -> None:
    rows = [{"a": at, "b": -at, "^a$": at * 2} for at in range(3)]
    schema = (("a", pl.Int64()), ("b", pl.Int64()), ("^a$", pl.Int64()))
    payloads: Any = Frame(pl.DataFrame(rows)) if as_rows else rows
    for chosen in (["b", "a"], ["b"], ["^a$"], [pl.col("b"), pl.col("a") + 1], [pl.col("b").alias("c")]):
        computed = tuple((pl.col(each) if isinstance(each, str) else each).meta.serialize() for each in chosen)
        step = Expressions(schema, computed, "select", "")
        expected = pl.DataFrame(rows).select(chosen).to_dicts()
        assert list(map(list, map(dict.items, step.each(payloads)))) == list(map(list, map(dict.items, expected)))


def test_a_field_may_be_named_by_a_word_of_sql() -> None:
    graph = drift.Graph("words")
    rows = graph.source("rows", schema={"end": int, "group": str, "is open": bool})
    rows.filter("is open").select("end", of="group").sink("out")
    data = [{"end": 1, "group": "a", "is open": True}, {"end": 2, "group": "b", "is open": False}]
    assert [item.payload for item in drift.run(graph, {"rows": data})] == [{"end": 1, "of": "a"}]
