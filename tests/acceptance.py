"""Small cases that another engine documents, each a step of one graph: so an engine runs all of them at once.

Invariant: the rows of a case are one source's, told apart by `case`, at times at which none other of the case is.

Why: a job on Spark, or a run over processes, costs half a second, whatever is in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import drift

Numbers = drift.Stream[Any]
Row = dict[str, Any]


class Case(NamedTuple):
    """What comes in, what is done, what comes out, in order.

    Attributes:
        inputs: values by what tells them apart, "" where all are alike; each at its place in time.
        steps: from a stream for each of the inputs to the one that comes out.
        more: what comes out of sinks that `steps` makes besides.
        every: so much time is between two values.
    """

    inputs: dict[str, Sequence[Any]]
    steps: Callable[..., drift.Stream[Any]]
    expected: list[Any]
    more: dict[str, list[Any]] = {}  # noqa: RUF012
    every: int = 1


def parity(number: int) -> int:
    return number % 2


def itself(number: Any) -> Any:
    return number


def everything(number: Any) -> int:
    return 0


def second(pair: Any) -> Any:
    return pair[1]


def sum_so_far(state: int, number: int) -> tuple[int, int]:
    return state + number, state + number


def earlier(state: tuple[int, ...], number: int) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    return (*state, number), [(each, number) for each in state]


def added(state: int, number: int) -> int:
    return state + number


def sums(numbers: Numbers) -> Numbers:
    return numbers.key_by(everything).scan(0, sum_so_far)


def by_parity(aggregate: Any) -> Case:
    return Case({"": range(5)}, lambda numbers: numbers.key_by(parity).at_end(aggregate), [])


AGGREGATES = {
    "sum": (drift.agg.sum(), [(0, 6), (1, 4)]),
    "count": (drift.agg.count(), [(0, 3), (1, 2)]),
    "mean": (drift.agg.mean(), [(0, 2.0), (1, 2.0)]),
    "min": (drift.agg.min(), [(0, 0), (1, 1)]),
    "max": (drift.agg.max(), [(0, 4), (1, 3)]),
    "reduce": (drift.agg.reduce(lambda left, right: left + right), [(0, 6), (1, 4)]),
    "fold": (drift.agg.fold(0, added), [(0, 6), (1, 4)]),
}


def described(windows: drift.Stream[Any]) -> drift.Stream[Any]:
    return windows.map(lambda window: (window.key, window.value))


def summed(windows: Any) -> Callable[[Numbers], Numbers]:
    return lambda numbers: described(numbers.key_by(parity).window(windows).sum(itself))


def collected(windows: Any) -> Callable[[Numbers], Numbers]:
    return lambda numbers: described(numbers.key_by(parity).window(windows).collect())


def joined(how: Any) -> Callable[[Numbers, Numbers], Numbers]:
    """All pairs are known at the end only where they are told so."""
    return lambda left, right: left.join(right, lambda n: n % 5, parity, how=how)


def routed(numbers: Numbers) -> Numbers:
    small, even, _ = numbers.route(lambda number: number < 5, lambda number: number % 2 == 0)
    return small.map(lambda number: ("small", number)).merge(even.map(lambda number: ("even", number)))


def tens(pairs: drift.Stream[tuple[int, int]]) -> Numbers:
    return pairs.map(lambda pair: pair[1] + 10)


def iterated(numbers: Numbers) -> Numbers:
    """Three rounds, and then five more of what they gave."""
    state, items = numbers.iterate(3, 0, tens, added, name="three")
    more, last = items.iterate(5, 0, tens, added, name="five")
    items.sink("items")
    more.sink("more")
    last.sink("last")
    return state


def nested(numbers: Numbers) -> Numbers:
    def inner(pairs: drift.Stream[tuple[int, int]]) -> Numbers:
        return pairs.map(second).replay(2, 0, lambda again: again.map(second), added, name="inner")

    return numbers.replay(2, 0, inner, added, name="outer")


def collatz(numbers: Numbers) -> Numbers:
    def step(pair: Any) -> list[Any]:
        steps, start, number = pair[1]
        return [] if number == 1 else [(steps + 1, start, 3 * number + 1 if number % 2 else number // 2)]

    starts = numbers.map(lambda number: (0, number, number))
    return starts.iterate(1000, (0, 0), lambda pairs: pairs.flat_map(step), lambda best, it: max(best, it[:2]))[0]


def closure(edges: drift.Stream[tuple[int, int]]) -> drift.Stream[Any]:
    def longer(pairs: Any) -> Any:
        known = pairs.map(second)
        found = known.join_table(edges, second, lambda edge: edge[0], how="inner")
        new = known.merge(found.map(lambda pair: (pair[0][0], pair[1][1]))).dedup()
        new.sink("paths")
        return new

    return edges.iterate(1000, 0, longer, lambda count, path: count + 1)[0]


def ranks(edges: drift.Stream[tuple[int, int]]) -> drift.Stream[Any]:
    links = edges.key_by(lambda link: link[0]).at_end(drift.agg.collect(second))

    def turned(pairs: Any) -> Any:
        ranked = pairs.map(second).join_table(links, lambda it: it[0], lambda it: it[0], how="inner")
        shares = ranked.flat_map(
            lambda pair: [(pair[0][0], 0.0), *[(page, pair[0][1] / len(pair[1][1])) for page in pair[1][1]]]
        )
        summed = shares.key_by(lambda it: it[0]).at_end(drift.agg.sum(second))
        return summed.map(lambda it: (it[0], 0.15 / 3 + 0.85 * it[1]))

    first = links.map(lambda link: (link[0], 1 / 3))
    last = first.iterate(100, None, turned, lambda state, item: None)[1]
    return last.map(lambda it: (it[0], round(it[1], 5))).at_end(drift.agg.sort())


def triangles(edges: drift.Stream[tuple[int, int]]) -> drift.Stream[int]:
    """Of a < b < c: what goes from a to b and from a to c, with an edge between b and c."""
    paths = edges.join(edges, lambda edge: edge[0], lambda edge: edge[0]).filter(lambda two: two[0][1] < two[1][1])
    closing = paths.join(edges, lambda two: (two[0][1], two[1][1]), itself)
    return closing.at_end(drift.agg.count())


LINES = ["dog monkey", "cat", "horse", "monkey", "dog cat", "horse", "horse horse", "cat dog monkey"]

CASES: dict[str, Case] = {
    "sums": Case({"": [1, 2, 3, 4, 5]}, sums, [1, 3, 6, 10, 15]),
    "sums not negative": Case({"": [1, 2, -5, 3, 1]}, lambda s: sums(s).filter(lambda n: n >= 0), [1, 3, 1, 2]),
    "earlier": Case(
        {"": range(4)},
        lambda numbers: numbers.key_by(everything).scan((), earlier).flatten(),
        [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)],
    ),
    **{name: by_parity(aggregate)._replace(expected=expected) for name, (aggregate, expected) in AGGREGATES.items()},
    "words": Case(
        {"": LINES},
        lambda lines: lines.flat_map(str.split).key_by(str.lower).at_end(drift.agg.count()).at_end(drift.agg.sort()),
        [(("cat", 3), ("dog", 3), ("horse", 4), ("monkey", 3))],
    ),
    "by number": Case({"": range(10)}, summed(drift.windows.count(3, 2)), [(0, 6), (1, 9), (0, 18), (1, 21)]),
    "by number, partial": Case(
        {"": range(10)},
        summed(drift.windows.count(3, 2, partial=True)),
        [(0, 6), (1, 9), (0, 18), (1, 21), (0, 8), (1, 9)],
    ),
    "ten by five": Case(
        {"": [1] * 23},
        lambda ones: described(ones.key_by(itself).window(drift.windows.count(10, 5, partial=True)).count()),
        [(1, 10), (1, 10), (1, 10), (1, 8)],
    ),
    "tumbling": Case(
        {"": range(10)},
        collected(drift.windows.tumbling(3)),
        [(0, (0, 2)), (1, (1,)), (1, (3, 5)), (0, (4,)), (0, (6, 8)), (1, (7,)), (1, (9,))],
    ),
    # Aligned to the epoch, one window more begins before 0: [-2500, 500) has the 0.
    "sliding": Case(
        {"": range(10)},
        collected(drift.windows.sliding(3000, 2500)),
        [(0, (0,)), (0, (0, 2)), (1, (1,)), (1, (3, 5)), (0, (4,)), (1, (5, 7)), (0, (6,)), (0, (8,)), (1, (9,))],
        every=1000,
    ),
    "join": Case(
        {"left": range(5), "right": range(5)}, joined("inner"), [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4)]
    ),
    "left join": Case(
        {"left": range(5), "right": range(5)},
        joined("left"),
        [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4), (2, None), (3, None), (4, None)],
    ),
    "interval join": Case(
        {"left": range(10), "right": range(10)},
        lambda left, right: left.join(right, everything, everything, within=(1, 2)).at_end(drift.agg.count()),
        [36],
    ),
    "interval join by parity": Case(
        {"left": range(10), "right": range(10)},
        lambda left, right: left.join(right, parity, parity, within=(1, 2)).at_end(drift.agg.count()),
        [18],
    ),
    "zip": Case(
        {"left": "ABCD", "right": [1, 2, 3]}, lambda one, other: one.zip(other), [("A", 1), ("B", 2), ("C", 3)]
    ),
    "route": Case(
        {"": range(10)},
        routed,
        [("small", 0), ("small", 1), ("small", 2), ("small", 3), ("small", 4), ("even", 6), ("even", 8)],
    ),
    "iterate": Case(
        {"": range(3)},
        iterated,
        [189],
        {"items": [30, 31, 32], "more": [915], "last": [80, 81, 82]},
    ),
    "replay": Case({"": range(3)}, lambda numbers: numbers.replay(3, 0, tens, added), [99]),
    "nested": Case({"": range(10)}, nested, [180]),
    "collatz": Case({"": range(1, 10)}, collatz, [(19, 9)]),
    "closure": Case(
        {"": [(1, 2), (2, 3), (2, 4), (4, 5)]},
        closure,
        [8],
        # In each round a path is followed by the longer ones that it is found to be a part of.
        {"paths": [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (2, 5), (4, 5), (1, 5)]},
    ),
    "ranks": Case(
        {"": [(1, 2), (1, 3), (2, 3), (3, 1)]}, ranks, [((1, 0.38779), (2, 0.21481), (3, 0.3974))]
    ),
    "triangles": Case({"": [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5), (4, 5)]}, triangles, [3]),
    "fold": Case(
        {"": range(10)},
        lambda numbers: numbers.at_end(drift.agg.fold("", lambda text, n: text + str(n))),
        ["0123456789"],
    ),
}  # fmt: skip


def rows_of(names: Sequence[str]) -> list[Row]:
    """The rows of some cases, by time; values are JSON, so that a file or a DataFrame has them too."""
    rows = [
        {"at": at * CASES[name].every, "case": f"{name}/{which}", "value": json.dumps(value)}
        for name in names
        for which, values in CASES[name].inputs.items()
        for at, value in enumerate(values)
    ]
    return sorted(rows, key=lambda row: row["at"])


def at_of(row: Row) -> int:
    return row["at"]  # type: ignore[no-any-return]


def value_of(row: Row) -> Any:
    value = json.loads(row["value"])
    return tuple(value) if type(value) is list else value


def graph_of(names: Sequence[str]) -> drift.Graph:
    """All of some cases, each with its sink."""
    graph = drift.Graph("acceptance")
    rows = graph.source("rows", time=drift.EventTime(at_of))

    def inputs(name: str) -> list[drift.Stream[Any]]:
        chosen = [f"{name}/{which}" for which in CASES[name].inputs]
        return [rows.filter(lambda row, case=case: row["case"] == case).map(value_of) for case in chosen]

    for name in names:
        CASES[name].steps(*inputs(name)).sink(f"of {name}")
    return graph


def expected_of(names: Sequence[str]) -> dict[str, list[Any]]:
    """What the sinks get, in order."""
    expected = {f"of {name}": CASES[name].expected for name in names}
    return expected | {sink: items for name in names for sink, items in CASES[name].more.items()}


def by_sink(items: Sequence[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for sink, payload in items:
        found.setdefault(sink, []).append(payload)
    return found
