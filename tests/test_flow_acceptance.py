"""Small cases that other engines document: running states, aggregates, word counts, windows by number and by time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import flows
import pytest

import drift

ENGINES = pytest.mark.parametrize("engine", [*flows.ENGINES, flows.ZEROMQ], ids=str)


def parity(number: int) -> int:
    return number % 2


def itself(number: int) -> int:
    return number


def thousand(number: int) -> int:
    return 1000 * number


def everything(number: int) -> None:
    return None


def sum_so_far(state: int, number: int) -> tuple[int, int]:
    return state + number, state + number


def earlier(state: tuple[int, ...], number: int) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    return (*state, number), [(each, number) for each in state]


def is_not_negative(number: int) -> bool:
    return number >= 0


def outputs(steps: Any, inputs: Any, engine: dict[str, Any], time: Any = None) -> list[Any]:
    return flows.outputs(flows.flow(steps, "in", time=time), {"in": inputs}, [engine])


@ENGINES
def test_running_states(engine: dict[str, Any]) -> None:
    def sums(stream: drift.Stream[int]) -> drift.Stream[int]:
        return stream.key_by(everything).scan(0, sum_so_far)

    assert outputs(sums, [1, 2, 3, 4, 5], engine) == [1, 3, 6, 10, 15]
    assert outputs(lambda s: sums(s).filter(is_not_negative), [1, 2, -5, 3, 1], engine) == [1, 3, 1, 2]
    assert outputs(lambda s: s.key_by(everything).scan((), earlier).flatten(), range(4), engine) == [
        (0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3),
    ]  # fmt: skip


@ENGINES
@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (drift.agg.sum(), [(0, 6), (1, 4)]),
        (drift.agg.count(), [(0, 3), (1, 2)]),
        (drift.agg.mean(), [(0, 2.0), (1, 2.0)]),
        (drift.agg.min(), [(0, 0), (1, 1)]),
        (drift.agg.max(), [(0, 4), (1, 3)]),
        (drift.agg.reduce(lambda left, right: left + right), [(0, 6), (1, 4)]),
        (drift.agg.fold(0, lambda total, number: total + number), [(0, 6), (1, 4)]),
    ],
)
def test_aggregates_by_parity(engine: dict[str, Any], aggregate: Any, expected: list[Any]) -> None:
    assert outputs(lambda s: s.key_by(parity).at_end(aggregate), range(5), engine) == expected


@ENGINES
def test_words_are_counted(engine: dict[str, Any]) -> None:
    lines = ["dog monkey", "cat", "horse", "monkey", "dog cat", "horse", "horse horse", "cat dog monkey"]
    told = outputs(lambda s: s.flat_map(str.split).key_by(str.lower).at_end(drift.agg.count()), lines, engine)
    assert sorted(told) == [("cat", 3), ("dog", 3), ("horse", 4), ("monkey", 3)]


@ENGINES
def test_windows_by_number(engine: dict[str, Any]) -> None:
    def sums(partial: bool) -> Any:
        windows = drift.windows.count(3, 2, partial=partial)
        return lambda s: s.key_by(parity).window(windows).sum(itself)

    full, all_of_them = (outputs(sums(partial), range(10), engine) for partial in (False, True))
    assert [(each.key, each.value) for each in full] == [(0, 6), (1, 9), (0, 18), (1, 21)]
    assert [(each.key, each.value) for each in all_of_them[4:]] == [(0, 8), (1, 9)]
    ten_by_five = drift.windows.count(10, 5, partial=True)
    told = outputs(lambda s: s.key_by(itself).window(ten_by_five).count(), [1] * 23, engine)
    assert [each.value for each in told] == [10, 10, 10, 8]


@ENGINES
def test_windows_by_time(engine: dict[str, Any]) -> None:
    def told(windows: Any, time: Any) -> dict[int, list[tuple[int, ...]]]:
        policy = drift.EventTime(time, lateness=0)
        found = outputs(lambda s: s.key_by(parity).window(windows).collect(), range(10), engine, policy)
        return {key: [each.value for each in found if each.key == key] for key in (0, 1)}

    assert told(drift.windows.tumbling(3), itself) == {0: [(0, 2), (4,), (6, 8)], 1: [(1,), (3, 5), (7,), (9,)]}
    # Aligned to the epoch, one window more begins before 0: [-2500, 500) has the 0.
    assert told(drift.windows.sliding(3000, 2500), thousand) == {
        0: [(0,), (0, 2), (4,), (6,), (8,)],
        1: [(1,), (3, 5), (5, 7), (9,)],
    }


@pytest.mark.parametrize("items", [3, 6, 9])
def test_a_fold_goes_on_from_a_cut(items: int, tmp_path: Path) -> None:
    graph = flows.flow(lambda stream: stream.at_end(drift.agg.fold("", lambda text, number: text + str(number))), "in")

    def run(folder: Path, engine: dict[str, Any], **more: Any) -> tuple[Any, list[Any]]:
        cuts = drift.Cuts(folder, every_s=3600, every_items=items, keep=10, **more)
        started = drift.run(graph, {"in": range(10)}, state=cuts, **engine)
        return started, [item.payload for item in started]

    first, told = run(tmp_path / "state", {"batch_items": 1})
    assert told == ["0123456789"]
    for name, engine in (("local", {}), ("zeromq", flows.ZEROMQ)):
        folder = Path(shutil.copytree(tmp_path / "state", tmp_path / name))
        again, told = run(folder, engine, from_cut=1)
        assert again.went_on_from.items_in == items
        assert (again.digest, told) == (first.digest, ["0123456789"])
    again, told = run(tmp_path / "state", {})
    assert again.went_on_from.is_last and (again.digest, told) == (first.digest, [])
