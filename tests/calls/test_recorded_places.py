"""`drift.recorded` in every place of the interface that takes a function: recorded there, or refused in words."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_overloads

import pytest

import drift
import drift.streams

R = drift.recorded(abs)


def _later(state: Any, payload: Any, time: int) -> tuple[Any, list[Any]]:
    return state, []


def _body(pairs: Any) -> Any:
    return pairs.map(max)


def _of(name: str, s: Any, z: Any) -> Any:
    return getattr(drift.agg, name)(R)


def _windows(stream: Any) -> Any:
    return stream.window(drift.windows.count(2))


def _corrected(stream: Any) -> Any:
    return stream.window(drift.windows.tumbling(2), allowed=2, time=R).count()


#: By the place: what gives it R. An aggregate is put into a window.
PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "Calling.call.ask": lambda s, z: s.call(R),
    "Calling.call.stub": lambda s, z: s.call(abs, stub=R),
    "Choosing.dedup.key": lambda s, z: s.dedup(key=R),
    "Choosing.inspect.function": lambda s, z: s.inspect(R),
    "Choosing.limit.key": lambda s, z: s.limit(1, key=R),
    "Choosing.route.predicates": lambda s, z: s.route(R)[0],
    "Iterating.iterate.body": lambda s, z: s.iterate(1, 0, R, max),
    "Iterating.iterate.fold": lambda s, z: s.iterate(1, 0, _body, R),
    "Iterating.iterate.until": lambda s, z: s.iterate(1, 0, _body, max, R),
    "Iterating.replay.body": lambda s, z: s.replay(1, 0, R, max),
    "Iterating.replay.fold": lambda s, z: s.replay(1, 0, _body, R),
    "Iterating.replay.until": lambda s, z: s.replay(1, 0, _body, max, R),
    "Joining.join.key": lambda s, z: s.join(z, R),
    "Joining.join.other_key": lambda s, z: s.join(z, abs, R),
    "Joining.join_as_of.key": lambda s, z: s.join_as_of(z, R),
    "Joining.join_as_of.other_key": lambda s, z: s.join_as_of(z, abs, R),
    "KeyedStream.filter.predicate": lambda s, z: s.key_by(abs).filter(R),
    "KeyedStream.filter.more": lambda s, z: s.key_by(abs).filter(bool, R),
    "KeyedStream.process.on_item": lambda s, z: s.key_by(abs).process(0, R, _later),
    "KeyedStream.process.on_time": lambda s, z: s.key_by(abs).process(0, _later, R),
    "KeyedStream.reduce.function": lambda s, z: s.key_by(abs).reduce(R),
    "KeyedStream.scan.step": lambda s, z: s.key_by(abs).scan(0, R),
    "KeyedStream.window.time": lambda s, z: _corrected(s.key_by(abs)),
    "KeyedStream.window.until": lambda s, z: s.key_by(abs).window(drift.windows.count(2), until=R).count(),
    "Stream.count.key": lambda s, z: s.count(R),
    "Stream.filter.more": lambda s, z: s.filter(bool, R),
    "Stream.flat_map.function": lambda s, z: s.flat_map(R),
    "Stream.group.key": lambda s, z: s.group(R, 1),
    "Stream.key_by.key": lambda s, z: s.key_by(R).count(),
    "Stream.map.function": lambda s, z: s.map(R, with_time=True),
    "Stream.process.key": lambda s, z: s.process(R, 0, _later, _later),
    "Stream.process.on_item": lambda s, z: s.process(abs, 0, R, _later),
    "Stream.process.on_time": lambda s, z: s.process(abs, 0, _later, R),
    "Stream.reduce.function": lambda s, z: s.reduce(abs, R),
    "Stream.reduce.key": lambda s, z: s.reduce(R, max),
    "Stream.scan.key": lambda s, z: s.scan(R, 0, divmod),
    "Stream.scan.step": lambda s, z: s.scan(abs, 0, R),
    "Stream.step.logic": lambda s, z: s.step(R),
    "Stream.window.time": lambda s, z: _corrected(s),
    "Stream.window.until": lambda s, z: s.window(drift.windows.count(2), until=R).count(),
    "WindowedStream.collect.of": lambda s, z: _windows(s).collect(R),
    "WindowedStream.count.where": lambda s, z: _windows(s).count(where=R),
    "WindowedStream.fold.function": lambda s, z: _windows(s).fold(0, R),
    "WindowedStream.max.of": lambda s, z: _windows(s).max(R),
    "WindowedStream.mean.of": lambda s, z: _windows(s).mean(R),
    "WindowedStream.min.of": lambda s, z: _windows(s).min(R),
    "WindowedStream.reduce.function": lambda s, z: _windows(s).reduce(R),
    "WindowedStream.sum.of": lambda s, z: _windows(s).sum(R),
    "agg.distinct_count.where": lambda s, z: drift.agg.distinct_count(abs, where=R),
    "agg.approximate_distinct_count.where": lambda s, z: drift.agg.approximate_distinct_count(abs, where=R),
    "agg.approximate_quantile.of": lambda s, z: drift.agg.approximate_quantile(0.5, of=R),
    "agg.fold.function": lambda s, z: drift.agg.fold(0, R),
    "agg.fold.merge": lambda s, z: drift.agg.fold(0, max, merge=R),
    "agg.quantile.of": lambda s, z: drift.agg.quantile(0.5, of=R),
    "agg.reduce.merge": lambda s, z: drift.agg.reduce(max, merge=R),
    "agg.count.where": lambda s, z: drift.agg.count(where=R),
    "agg.nth.of": lambda s, z: drift.agg.nth(1, R),
    "agg.ntile.by": lambda s, z: drift.agg.ntile(2, R),
    "agg.row_number.by": lambda s, z: drift.agg.row_number(R),
    "agg.rank.by": lambda s, z: drift.agg.rank(R),
    "agg.dense_rank.by": lambda s, z: drift.agg.dense_rank(R),
    "agg.sort.by": lambda s, z: drift.agg.sort(by=R),
    "agg.top.by": lambda s, z: drift.agg.top(2, by=R),
    "agg.collect.of": lambda s, z: drift.agg.collect(of=R),
    "windows.by_rule.rule": lambda s, z: s.window(drift.windows.by_rule(R)).count(),
    "EventTime.time": lambda s, z: drift.EventTime(R),
    "EventTime.tie": lambda s, z: drift.EventTime(abs, tie=R),
}
_OF = ("sum", "mean", "var", "std", "min", "max", "min_by", "max_by", "first", "last", "shift", "diff", "distinct")
for each in (*_OF, "distinct_count", "approximate_distinct_count"):
    PLACES[f"agg.{each}.of"] = partial(_of, each)
PLACES["agg.reduce.function"] = lambda s, z: drift.agg.reduce(R)
#: What is no parameter of its own: inside of other things.
INSIDE: dict[str, Callable[[Any, Any], Any]] = {
    "then": lambda s, z: drift.agg.count().then(R),
    "the windows of a join": lambda s, z: s.join(z, abs, within=drift.windows.by_rule(R)),
    "several aggregates": lambda s, z: _windows(s).aggregate(n=drift.agg.count(), sum=drift.agg.sum(R)),
    "a partial function": lambda s, z: s.map(partial(R)),
    "at_end": lambda s, z: s.key_by(abs).at_end(drift.agg.collect(R)),
    "with_time": lambda s, z: s.filter(R, with_time=True),
    "divert": lambda s, z: s.filter(R, on_error="divert"),
}
#: They take no function of payloads, or one that Polars calls with a table.
OTHERS = {
    "Stream.filter.predicate",  # of an overload: predicates, of the others
    "windows.names_of.function",
    "windows.fields_of_rows.key",
    "windows.not_in_columns.in_columns",
    "windows.not_in_columns.key",
    "Columnar.map_batches.function",
    "Joining.join_table.key",
    "Joining.join_table.table_key",
}


def _owners() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The functions and methods of the interface that are written in a graph."""
    for found in pkgutil.iter_modules(drift.streams.__path__):
        module = importlib.import_module(f"drift.streams.{found.name}")
        for owner, kind in vars(module).items():
            if inspect.isclass(kind) and kind.__module__ == module.__name__ and not owner.startswith("_"):
                yield from ((owner, name, each) for name, each in vars(kind).items() if inspect.isfunction(each))
    for module, owner in ((drift.agg, "agg"), (drift.windows, "windows")):
        yield from ((owner, name, each) for name, each in vars(module).items() if inspect.isfunction(each))


def _places() -> set[str]:
    """Their parameters that take functions."""
    return {
        f"{owner}.{name}.{parameter.name}"
        for owner, name, function in _owners()
        if not name.startswith("_") and function.__module__.startswith("drift.")
        for written in (function, *get_overloads(function))
        for parameter in inspect.signature(written).parameters.values()
        if "Callable" in str(parameter.annotation) or "Logic" in str(parameter.annotation)
    }


def test_the_table_has_every_parameter_that_takes_a_function() -> None:
    assert _places() - OTHERS == {each for each in PLACES if not each.startswith("EventTime")}


@pytest.mark.parametrize("place", [*PLACES, *INSIDE])
def test_what_would_not_be_recorded_is_refused_when_the_graph_is_written(place: str) -> None:
    graph = drift.Graph("refused")
    source, other = graph.source("in"), graph.source("other")
    with pytest.raises((drift.GraphError, drift.SettingsError), match=r"drift\.recorded|extends drift\.Logic"):
        given = {**PLACES, **INSIDE}[place](source, other)
        if isinstance(given, drift.agg.Aggregate):
            _windows(source).aggregate(given)


def test_one_that_another_function_calls_is_refused_in_the_run() -> None:
    graph = drift.Graph("called")
    graph.source("in").map(lambda number: (R(number),)).sink("out")
    with pytest.raises(drift.StepError, match=r"drift\.recorded\(abs\) was called by another function"):
        drift.run(graph, {"in": [1]}).finish()
