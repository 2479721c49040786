"""Calls whose arguments do not fit are refused in words that say what an argument is called here."""

import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import drift
from drift_graph.called import _ELSEWHERE, _WRITTEN, called, parameters_of

KINDS = (drift.Stream, drift.KeyedStream, drift.WindowedStream, drift.Graph, drift.Run, drift.Record)
MODULES = (drift.agg, drift.windows, drift.sources, drift.sinks, drift.spark)
OTHERS = (drift.run, drift.replay, drift.audit, drift.diff, drift.explain, drift.EventTime, drift.Checkpoints)

#: Each public function, method and constructor.
PUBLIC: dict[str, Callable[..., Any]] = {
    **{
        f"{kind.__name__}.{name}": method
        for kind in KINDS
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    },
    **{
        f"{module.__name__}.{name}": function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name in module.__all__
    },
    **{each.__name__: each for each in (*OTHERS, drift.Graph)},
}


def rides() -> Any:
    return drift.Graph("rides").source("rides", time=drift.EventTime("at"))


def ran(**settings: Any) -> drift.Run:
    graph = drift.Graph("rides")
    graph.source("rides").sink("out")
    return drift.run(graph, {"rides": []}, **settings)


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "join as of": (lambda: rides().join_as_of(rides(), key="zone", tolerance=5), "it is called within here"),
    "separator": (lambda: drift.sources.csv("rides.csv", sep=";"), "it is called delimiter here"),
    "columns": (lambda: drift.sources.csv("rides.csv", usecols=["at"]), "it is called schema here"),
    "nulls": (lambda: drift.sources.csv("rides.csv", na_values=["NA"]), "it is called null_values here"),
    "sum": (lambda: drift.agg.sum(column="fare"), "it is called of here"),  # type: ignore[call-overload]
    "watermark": (lambda: drift.EventTime("at", watermark=5), "it is called lateness here"),  # type: ignore[call-arg]
    "source": (lambda: drift.Graph("rides").source("rides", timestamp="at"), "time=drift.EventTime("),  # type: ignore
    "sink": (lambda: drift.sinks.parquet("rides", mode="append"), '"continue", "replace" or "error"'),  # type: ignore
    "servers": (lambda: drift.sources.kafka(brokers="kafka:1", topic="rides"), "it is called servers here"),  # type: ignore
    "tumbling": (lambda: drift.windows.tumbling(every=10), "it is called size here"),  # type: ignore[call-arg]
    "sliding": (lambda: drift.windows.sliding(10, slide=5), "it is called every here"),  # type: ignore[call-arg]
    "window": (lambda: rides().key_by("zone").window(size=10), "windows=drift.windows.tumbling("),
    "rolling": (lambda: rides().key_by("zone").rolling(window=10), "window is called span here"),
    "interval": (lambda: drift.Checkpoints("kept", interval=5), "it is called every_s here"),  # type: ignore[call-arg]
    "run": (lambda: ran(parallelism=2), "it is called workers here"),
    "spark": (
        lambda: drift.spark.stream(1, {}, checkpointLocation="a"),
        "checkpointLocation is called checkpoint here",
    ),
    "too many": (lambda: drift.windows.session(5, 6), "takes 1 positional argument but 2 were given"),  # type: ignore
    "none": (lambda: drift.windows.session(), "missing 1 required positional argument: 'gap'"),  # type: ignore
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_that_others_call_otherwise_is_told(name: str) -> None:
    call, said = CALLS[name]
    with pytest.raises(drift.SettingsError) as raised:
        call()
    assert said in str(raised.value)


WRONG: dict[str, tuple[Callable[[Any], object], list[Any], str]] = {
    "columns of CSV": (lambda given: drift.sources.csv("a", columns=given), [5], "columns: Sequence[str] | None, "),
    "converters": (lambda given: drift.sources.csv("a", columns=["n"], convert=given), [5], "convert: Mapping[str, "),
    "columns": (lambda given: drift.sources.parquet("a", columns=given), [5], "columns: Sequence[str] | None, "),
    "a URL": (lambda given: drift.sources.postgres(given, "select 1", key="k"), [None, 5, b"u"], "url: str, not "),
    "a query": (lambda given: drift.sources.sqlite("a", given, key="k"), [None, 5], "query: str, not "),
    "a key": (lambda given: drift.sources.sqlite("a", "select 1", key=given), [None, 5, b"k"], "key: str, not "),
    "seconds": (lambda given: drift.sources.live([], close_max_s=given), [None, "1"], "close_max_s="),
    "columns of files": (
        lambda given: drift.sinks.parquet("a", columns=given),
        [5],
        "columns: Sequence[str] | Mapping",
    ),
    "a host": (lambda given: drift.sources.tcp_lines(given), [None, 5], "host: str, not "),
    "a port": (lambda given: drift.sources.tcp_lines(port=given), ["7000", 1.5, None], "port: int, not "),
    "partitions": (
        lambda given: drift.sinks.parquet("a", partition_by=given),
        [5],
        "partition_by: str | Sequence[str] | None",
    ),
    "columns of a table": (
        lambda given: drift.sinks.sqlite("a", "t", columns=given),
        [5],
        "columns: Sequence[str] | None, ",
    ),
    "steps": (lambda given: drift.Checkpoints("a", dropped=given), [None, 5], "dropped: Sequence[str], not "),
    "renamed steps": (lambda given: drift.Checkpoints("a", was=given), [None, 5], "was: Mapping[str, str], not "),
    "a record": (lambda given: drift.Record(given), [None, 5], "path: str | os.PathLike[str], not "),
    "a record that is replayed": (lambda given: drift.replay(given), [None, 5], "path: str | os.PathLike[str], not "),
    "classes of a record": (lambda given: recorded("classes", given), [5, True], "Record takes classes: Classes |"),
    "classes of what is restored": (
        lambda given: drift.restored(drift.canonical(1), given),
        [5],
        "restored takes classes: Classes",
    ),
    "classes of states": (lambda given: drift.Checkpoints("a", classes=given), [5], "classes: Sequence[type], not "),
    "a position": (lambda given: recorded("first", given), [None, "1", 0.5], "items takes first: int, not "),
    "an end": (lambda given: recorded("end", given), ["1"], "items takes end: int | None, not "),
    "a connection": (
        lambda given: ran().to_duckdb(connection=given),
        [5, "a"],
        "to_duckdb takes connection: duckdb.DuckDBPyConnection | None, not ",
    ),
    "an engine": (lambda given: ran(engine=given), [[], {}], "engine="),
    "a decoder": (lambda given: drift.sources.kafka("a", "t", decode=given), [[], {}], "decode="),
}


@pytest.mark.parametrize(
    "name, flag",
    [
        (name, parameter.name)
        for name, function in PUBLIC.items()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation == "bool"
    ],
)
def test_a_flag_is_true_or_false_and_no_word_that_is_taken_for_true(name: str, flag: str) -> None:
    for value in ("no", "", 0, None):
        with pytest.raises(drift.SettingsError) as raised:
            PUBLIC[name](**{flag: value})
        assert f" takes {flag}: True or False, not {value!r} (at {__file__}:" in str(raised.value)


def test_a_flag_that_is_given_by_its_place_is_true_or_false() -> None:
    for take in (drift.agg.rank, drift.agg.row_number):
        with pytest.raises(drift.SettingsError, match="takes descending: True or False, not 'no'"):
            take("fare", "no")  # type: ignore[arg-type]


def recorded(name: str, given: Any) -> object:
    """What a record of one item gives where an argument is this."""
    with tempfile.TemporaryDirectory() as folder:
        graph = drift.Graph("rides")
        graph.source("rides").sink("out")
        list(drift.run(graph, {"rides": [1]}, record=f"{folder}/record"))
        if name == "classes":
            return drift.Record(f"{folder}/record", given)
        return list(drift.Record(f"{folder}/record").items(**{name: given}))


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_another_type_is_named_with_the_type_that_it_has_to_have(name: str) -> None:
    call, values, said = WRONG[name]
    for value in values:
        with pytest.raises(drift.SettingsError) as raised:
            call(value)
        assert said in str(raised.value) and repr(value) in str(raised.value)


NUMBERS: dict[str, Callable[[Any], object]] = {
    "keep": lambda given: drift.Checkpoints("a", keep=given),
    "from_checkpoint": lambda given: drift.Checkpoints("a", from_checkpoint=given),
    "every_s": lambda given: drift.Checkpoints("a", every_s=[1, given]),
    "close_max_s": lambda given: drift.sources.live([], close_max_s=given),
    "buffer_items_max": lambda given: drift.sources.live([], buffer_items_max=given),
    "line_max": lambda given: drift.sources.text("a", line_max=given),
    "rows_at_once": lambda given: drift.sources.sqlite("a", "t", key="k", rows_at_once=given),
    "connections_max": lambda given: drift.sources.tcp_lines(connections_max=given),
    "part_items": lambda given: drift.sinks.parquet("a", part_items=given),
    "part_every": lambda given: drift.sinks.parquet("a", part_every=given),
    "part_bytes_max": lambda given: ran(record=drift.Recording("a", part_bytes_max=given)),
    "batch_items": lambda given: ran(batch_items=given),
    "timeout_s": lambda given: rides().call(len, timeout_s=given),
    "concurrency": lambda given: rides().call(len, concurrency=given),
    "count": lambda given: rides().split(given),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_nothing_can_hold_is_refused_where_it_is_given(name: str) -> None:
    for given in (10**6000, float("nan"), True, np.float64(0.5)):
        with pytest.raises(drift.DriftError, match=name if name != "count" else "split"):
            NUMBERS[name](given)
    if name != "part_every":
        with pytest.raises(drift.DriftError):
            NUMBERS[name](2**70)


WORDS: dict[str, Callable[[Any], object]] = {
    "payload": lambda given: drift.sources.parquet("a", payload=given),
    "resume": lambda given: drift.sinks.jsonl("a", resume=given),
    "late": lambda given: drift.EventTime("at", late=given),
    "lateness": lambda given: drift.EventTime("at", lateness=given),
    "closed": lambda given: drift.windows.tumbling(5, closed=given),
    "changed_code": lambda given: drift.Checkpoints("a", changed_code=given),
}


@pytest.mark.parametrize("name", WORDS)
def test_an_expression_or_a_table_is_no_word(name: str) -> None:
    for given in (pl.col("at"), np.array(["continue", "dict"]), pl.DataFrame({"at": [1]})):
        with pytest.raises(drift.SettingsError, match=f"takes {name}"):
            WORDS[name](given)


@pytest.mark.parametrize("asked", [{"first": -1}, {"end": -2}, {"first": -3, "end": 1}])
def test_rows_of_a_record_are_counted_from_0(tmp_path: Path, asked: dict[str, int]) -> None:
    graph = drift.Graph("rides")
    graph.source("rides").sink("out")
    list(drift.run(graph, {"rides": [1, 2, 3]}, record=tmp_path / "record"))
    record = drift.Record(tmp_path / "record")
    for ask in (record.items, record.table, record.output_rows):
        with pytest.raises(drift.SettingsError, match="rows of a record are counted from 0"):
            list(ask(**asked))
    with pytest.raises(drift.SettingsError, match=r"table 'inputs': it is 'output' or 'input'"):
        record.table("inputs")  # type: ignore[arg-type]
    assert [item.payload for item in record.items(1, 9)] == [2, 3]


@pytest.mark.parametrize("kind", ["iterate", "replay"])
def test_a_body_that_takes_no_stream_is_named(kind: str) -> None:
    for body in (int, lambda: None, lambda stream, other: stream):
        with pytest.raises(drift.GraphError, match=rf"step '{kind} .*' \(at .*\) has body=.*, which cannot be called"):
            getattr(rides(), kind)(3, 0, body, max)

    def wrong(stream: Any) -> Any:
        return len(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len") as raised:
        getattr(rides(), kind)(3, 0, wrong, max)
    assert not isinstance(raised.value, drift.DriftError)


NAMED: dict[str, Callable[[Any], object]] = {
    "csv": lambda columns: drift.sources.csv("a.csv", columns=columns),
    "parquet": lambda columns: drift.sources.parquet("a.parquet", columns=columns),
    "delta": lambda columns: drift.sources.delta("a", columns=columns),
    "iceberg": lambda columns: drift.sources.iceberg("a.b", columns=columns),
    "to csv": lambda columns: drift.sinks.csv("a.csv", columns=columns),
    "to parquet": lambda columns: drift.sinks.parquet("a", columns=columns),
    "to delta": lambda columns: drift.sinks.delta("a", columns=columns),
    "to iceberg": lambda columns: drift.sinks.iceberg("a.b", columns=columns),
    "to sqlite": lambda columns: drift.sinks.sqlite("a.db", "t", columns=columns),
    "to postgres": lambda columns: drift.sinks.postgres("postgresql://a", "t", columns=columns),
}


@pytest.mark.parametrize("name", NAMED)
def test_one_name_is_no_list_of_columns_of_its_letters(name: str) -> None:
    for columns in ("at", [None], ["at", 1]):
        with pytest.raises(drift.SettingsError, match=r"columns=.* (is no list of names|not \[)"):
            NAMED[name](columns)
    NAMED[name](["at"])


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_call_says_what_it_takes_and_where_it_is(name: str) -> None:
    function = PUBLIC[name]
    kinds = {each.kind for each in inspect.signature(function).parameters.values()}
    itself = [None] if inspect.isfunction(function) and name.startswith(tuple(each.__name__ for each in KINDS)) else []
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        given: tuple[list[Any], dict[str, Any]] = itself, {"no_such_argument": 1}
    elif inspect.Parameter.VAR_POSITIONAL not in kinds:
        given = [*itself, *[None] * 40], {}
    else:
        return  # it takes whatever it is given
    with pytest.raises(drift.SettingsError) as raised:
        function(*given[0], **given[1])
    assert "it takes " in str(raised.value) and f"(at {__file__}:" in str(raised.value)
    assert isinstance(raised.value, TypeError)  # as Python says it


def test_each_name_that_others_have_leads_to_a_parameter_that_is_there() -> None:
    takes: dict[str, set[str]] = {}
    for name, function in PUBLIC.items():
        takes.setdefault(name.rpartition(".")[2], set()).update(parameters_of(function))
    everywhere = {"batch_items"}.union(*takes.values())
    for here in (*_ELSEWHERE, *_WRITTEN):
        of, _, parameter = here.rpartition(".")
        assert parameter in (takes[of] if of else everywhere), here


def test_an_error_within_a_call_that_fits_is_left_as_it_is() -> None:
    @called
    def wrong(size: int) -> None:
        raise TypeError(f"not {size}")

    with pytest.raises(TypeError, match="not 3") as raised:
        wrong(3)
    assert not isinstance(raised.value, drift.DriftError)
    with pytest.raises(TypeError, match="wrong takes size: int, not '3'"):
        wrong("3")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name, where",
    [("tumbling", "windows.tumbling"), ("sum", "agg.sum"), ("csv", "sources.csv or drift.sinks.csv"), ("nothing", "")],
)
def test_a_name_that_a_part_of_drift_has_is_told(name: str, where: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'{where and f'; it is drift.{where}'}$"):
        getattr(drift, name)


@pytest.mark.parametrize(
    "name, here",
    [("agg.lag", "shift"), ("windows.hop", "sliding"), ("sources.read_csv", "csv"), ("sinks.print", "stdout")],
)
def test_a_name_that_others_have_is_told(name: str, here: str) -> None:
    module, name = name.split(".")
    with pytest.raises(AttributeError, match=f"drift.{module} has no '{name}'; it is called {here} here"):
        getattr(getattr(drift, module), name)


@pytest.mark.parametrize("method", ["running", "rolling", "rows"])
def test_places_of_rows_are_no_field_of_one_row(method: str) -> None:
    keyed = rides().key_by("zone")
    steps: dict[str, Callable[[Any], object]] = {
        "running": lambda aggregate: keyed.running(place=aggregate),
        "rolling": lambda aggregate: keyed.rolling(5, place=aggregate),
        "rows": lambda aggregate: keyed.window(drift.windows.tumbling(5)).rows(place=aggregate),
    }
    with pytest.raises(drift.GraphError, match=rf"{method}: place= gives each row a value of its own.*each\("):
        steps[method](drift.agg.rank("fare"))
    steps[method](drift.agg.rank("fare").then(max))
