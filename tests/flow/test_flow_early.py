"""Early results of windows, windows that end when it is enough, and windows of all kinds that fail or go elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flows
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flow_windows import by_key, ruled, timed, value
from test_state import check_goes_on

import drift


def test_a_session_is_reported_early_from_its_own_start() -> None:
    items = [(time, time, 0) for time in (3, 5, 8, 30)]
    graph = flows.flow(
        lambda stream: stream.window(drift.windows.session(5), early=drift.windows.every(time=4)).count(),
        "in",
        time=flows.event_time(),
    )
    found = [(each.start, each.end, each.value, each.early) for each in flows.outputs(graph, {"in": items})]
    assert found == [(3, 10, 2, True), (3, 13, 3, True), (3, 13, 3, False), (30, 35, 1, True), (30, 35, 1, False)]


BOUNDED = ("tumbling", "sliding", "apart", "both ends", "no ends", "to their ends", "sliding to their ends")


EARLY_KINDS = {
    "tumbling": drift.windows.tumbling(9, 2),
    "sliding": drift.windows.sliding(9, 4, 1),
    "apart": drift.windows.sliding(3, 5),
    "both ends": drift.windows.tumbling(6, 1, closed="both"),
    "no ends": drift.windows.tumbling(6, 1, closed="none"),
    "to their ends": drift.windows.tumbling(6, 1, closed="right"),
    "sliding to their ends": drift.windows.sliding(9, 4, closed="right"),
    "session": drift.windows.session(4),
    "number": drift.windows.count(5, 2),
    "number, partial": drift.windows.count(4, 5, partial=True),
    "rule": drift.windows.by_rule(lambda item: ruled(item)),  # type: ignore[arg-type,return-value]
    "rule, partial": drift.windows.by_rule(lambda item: ruled(item), partial=True),  # type: ignore[arg-type,return-value]
}


def early_graph(windows: Any, early: Any, until: Any = None) -> drift.Graph:
    return flows.flow(
        lambda stream: stream.key_by(value).window(windows, early=early, until=until).collect(),
        "in",
        time=flows.event_time(),
    )


def early_outputs(
    windows: Any, early: Any, items: list[flows.Timed], engines: Any, until: Any = None
) -> list[tuple[int, Any]]:
    return flows.timed_outputs(early_graph(windows, early, until), {"in": items}, engines)


@pytest.mark.parametrize("kind", EARLY_KINDS)
@given(timed(), st.integers(1, 4), st.booleans())
@settings(max_examples=8)
def test_early_results_are_what_windows_have_so_far_and_change_nothing(
    kind: str, items: list[flows.Timed], every: int, by_number: bool
) -> None:
    windows, ruling = EARLY_KINDS[kind], kind.startswith("rule")
    early = drift.windows.every(items=every) if by_number else drift.windows.every(time=every)
    given_rows = early_outputs(windows, early, items, flows.ENGINES[1:])
    final = [(time, each) for time, each in given_rows if not each.early]
    assert sorted(final, key=repr) == sorted(early_outputs(windows, None, items, ()), key=repr)
    for _, whole in final:
        of_window = [
            (time, each)
            for time, each in given_rows
            if each.early and each.key == whole.key and each.value[0] == whole.value[0] and each.start == whole.start
        ]
        sizes = [len(each.value) for _, each in of_window]
        assert [each.value for _, each in of_window] == [whole.value[:size] for size in sizes]
        if by_number:
            assert not [size for size in sizes if size % every]
            assert set(sizes) >= set(range(every, len(whole.value), every))
            continue
        begun = whole.start if kind in BOUNDED else whole.value[0][0]
        assert not [time for time, _ in of_window if (time + 1 - begun) % every]
        assert sizes == [sum(item[0] <= time for item in whole.value) for time, _ in of_window]
        if kind in BOUNDED:
            ends = [end - 1 for end in range(begun + every, whole.end, every) if whole.value[0][0] < end]
        else:
            ends = sorted({begun + ((item[0] - begun) // every + 1) * every - 1 for item in whole.value})
            ends = [end for end in ends if end < whole.value[-1][0]]
        if kind != "session":
            assert [time for time, _ in of_window if time < whole.value[-1][0] or not ruling][: len(ends)] == ends


def is_enough(items: tuple[flows.Timed, ...]) -> bool:
    return len(items) == 3 or items[-1][1] % 5 == 0


def until_enough(kind: str, items: list[flows.Timed]) -> list[tuple[int, Any]]:
    """What windows give that end when it is enough: the first items of what they have without, or one by one."""
    found = []
    if kind.startswith("number"):
        size, every = (4, 5) if "partial" in kind else (5, 2)
        for key, of_key in by_key(items, True).items():
            for start in range(0, len(of_key), every):
                whole = tuple(of_key[start : start + size])
                last = next((at for at in range(1, len(whole) + 1) if at == size or is_enough(whole[:at])), None)
                if last is not None or "partial" in kind:
                    time = drift.END if last is None else whole[last - 1][0]
                    found.append((time, drift.Window(key, start, start + len(whole[:last]), whole[:last])))
        return found
    if kind != "session" and not kind.startswith("rule"):
        for time, each in early_outputs(EARLY_KINDS[kind], None, items, ()):
            last = next((at for at in range(len(each.value)) if is_enough(each.value[: at + 1])), None)
            ended = each if last is None else msgspec.structs.replace(each, value=each.value[: last + 1])
            found.append((time if last is None else ended.value[-1][0], ended))
        return found

    def give(time: int, *of: Any) -> None:
        found.append((time, drift.Window(*of)))

    for key, of_key in by_key(items, True).items():
        inside: tuple[flows.Timed, ...] = ()
        for item in of_key:
            answer = ruled(item) if kind != "session" else "go on"
            if answer == "skip":
                continue
            if kind == "session" and inside and item[0] >= inside[-1][0] + 4:
                give(inside[-1][0] + 3, key, inside[0][0], inside[-1][0] + 4, inside)
                inside = ()
            if answer == "open" and inside:
                give(item[0], key, inside[0][0], inside[-1][0] + 1, inside)
                inside = ()
            inside = (*inside, item)
            if answer == "close" or is_enough(inside):
                give(item[0], key, inside[0][0], item[0] + 1, inside)
                inside = ()
        if inside and kind == "session":
            give(inside[-1][0] + 3, key, inside[0][0], inside[-1][0] + 4, inside)
        elif inside and kind == "rule, partial":
            give(drift.END, key, inside[0][0], inside[-1][0] + 1, inside)
    return found


@pytest.mark.parametrize("kind", EARLY_KINDS)
@given(timed(), st.integers(0, 4))
@settings(max_examples=25)
def test_a_window_ends_with_the_item_with_which_its_result_is_enough(
    kind: str, items: list[flows.Timed], every: int
) -> None:
    early = drift.windows.every(items=every) if every else None
    found = early_outputs(EARLY_KINDS[kind], early, items, flows.ENGINES[1:], is_enough)
    final = [(time, each) for time, each in found if not each.early]
    assert sorted(final, key=repr) == sorted(until_enough(kind, items), key=repr)
    for _, each in found:
        assert not each.early or (len(each.value) % every == 0 and not is_enough(each.value))


def test_windows_of_rows_end_when_their_result_is_enough() -> None:
    data = [{"zone": zone, "at": at, "fare": fare} for at, (zone, fare) in enumerate(zip("abaabbab", range(2, 10)))]
    for schema in (None, {"zone": str, "at": int, "fare": int}):
        graph = drift.Graph("enough")
        source: Any = graph.source("rows", time=drift.EventTime("at"), **({} if schema is None else {"schema": schema}))
        windowed = source.key_by("zone").window(drift.windows.tumbling(6), until=lambda row: row["total"] >= 6)
        totals = windowed.rows(total=drift.agg.sum("fare"), n=drift.agg.count())
        (totals if schema is None else totals.filter("total > 1")).sink("out")
        found = flows.outputs(graph, {"rows": data})
        assert [(row["key"], row["start"], row["total"], row["n"]) for row in found] == [
            ("a", 0, 6, 2), ("b", 0, 9, 2), ("a", 6, 8, 1), ("b", 6, 9, 1),
        ]  # fmt: skip


@given(
    st.sampled_from(["tumbling", "sliding", "session", "number", "rule"]),
    st.sampled_from(["key", "value", "result"]),
    st.integers(0, 59),
    st.sampled_from([1, 7, 4096]),
)
@settings(max_examples=40)
def test_a_window_fails_where_a_function_does(kind: str, where: str, at: int, batch_items: int) -> None:
    items = flows.disordered([(number * 2 + number % 18 // 17 * 9, number, number % 2) for number in range(60)], 1)

    def checked(place: str, item: flows.Timed) -> Any:
        return float(item[2]) / (place != where or item[1] != at)

    aggregate: Any = drift.agg.collect(lambda item: (item, checked("value", item)))
    totals = aggregate.then(lambda each: sum(checked("result", item) for item, _ in each))
    graph = flows.flow(
        lambda stream: stream.key_by(lambda item: checked("key", item)).window(EARLY_KINDS[kind]).aggregate(totals),
        "in",
        time=flows.event_time(),
    )
    expected = flows.outcome(drift.run(graph, {"in": items}, engine="reference"))
    assert expected[1] or kind in ("rule", "number")  # which leave items out
    assert flows.outcome(drift.run(graph, {"in": items}, batch_items=batch_items)) == expected


EARLY: dict[str, Any] = {
    "sliding": {"early": drift.windows.every(items=2)},
    "number": {"early": drift.windows.every(time=3)},
    "rule": {"early": drift.windows.every(time=3)},
    "session": {"early": drift.windows.every(items=2), "until": is_enough},
    "tumbling": {"early": drift.windows.every(items=2), "until": is_enough},
}


@pytest.mark.parametrize("kind", EARLY)
def test_early_results_go_on_from_a_checkpoint(kind: str, tmp_path: Path) -> None:
    items = flows.disordered([(number // 3, number, number % 5) for number in range(90)], 1)
    check_goes_on(early_graph(EARLY_KINDS[kind], **EARLY[kind]).build(), {"in": items}, [9], tmp_path)
