"""Groupings, scans and the worker that runs them, against models that are too simple to be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import pytest
from columns import columns_of, meta_at
from hypothesis import given
from hypothesis import strategies as st
from strategies import STEPS, few_keys, one_key, payloads, same_payload
from tight import LEAST_MEMORY, limited

import drift
import drift.machines.log as log_module
from drift.machines.checkpoints import DELETED
from drift.machines.differences import NOTHING, Debts, Difference
from drift.machines.keyed import KeyedStage
from drift.machines.keys import Partitioner
from drift.machines.maps import Ports
from drift.machines.pending import split
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Router, Worker
from drift_graph.canonical import canonical, encode_many
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import END_OF_TIME, PHASE_TIMERS, later_meta, pack_time, varint
from drift_graph.metas import Metas


@given(payloads, payloads)
def test_a_difference_holds_nothing_where_old_and_new_are_the_same(old: Any, new: Any) -> None:
    difference = Difference()
    difference.replace(b"m", old, new)
    equal = canonical(old) == canonical(new)
    assert difference.columns() == (
        Columns(Metas(), [], None) if equal else Columns(Metas([b"m"] * 2), [old, new], [-1, 1])
    )
    only = Difference()
    only.replace(b"m", NOTHING, new)
    only.replace(b"m", old, NOTHING)
    assert only.diffs == [1, -1]


def test_a_debt_takes_back_one_equal_item_each() -> None:
    debts = Debts("step")
    debts.owe(b"m", 1)
    debts.owe(b"m", 1)
    assert not debts.settles(b"m", True) and not debts.settles(b"n", 1)
    assert debts.settles(b"m", 1) and debts.settles(b"m", 1) and not debts.settles(b"m", 1)
    assert len(debts) == 0


def stage_of(grow: Callable[[drift.Stream[Any]], drift.Stream[Any]]) -> KeyedStage:
    graph = drift.Graph("one stage")
    grow(graph.source("in")).sink("out")
    plan = Plan(graph.build())
    (stage,) = plan.stages().values()
    assert isinstance(stage, KeyedStage)
    return stage


def naive_windows(items: list[tuple[bytes, Any]], window: int, key: Callable[[Any], Any]) -> list[tuple[bytes, Any]]:
    buckets: dict[bytes, list[Any]] = {}
    windows = []
    for meta, payload in sorted(items, key=lambda item: item[0]):
        bucket = buckets.setdefault(canonical(key(payload)), [])
        bucket.append(payload)
        windows.append((meta, tuple(bucket[-window:])))
    return windows


def naive_scan(
    items: list[tuple[bytes, Any]], initial: Any, step: Callable[[Any, Any], tuple[Any, Any]], key: Callable[[Any], Any]
) -> list[tuple[bytes, Any]]:
    states: dict[bytes, Any] = {}
    outputs = []
    for meta, payload in sorted(items, key=lambda item: item[0]):
        place = canonical(key(payload))
        states[place], output = step(states.get(place, initial), payload)
        outputs.append((meta, output))
    return outputs


def one_at_a_meta(came: Counter[tuple[int, bytes]]) -> bool:
    """Whether no tombstone is ahead of its item, and no item of the one that it replaces."""
    there = [number for (number, _), count in came.items() if count]
    return set(came.values()) <= {0, 1} and len(set(there)) == len(there)


def check_stage(
    data: st.DataObject,
    make: Callable[[], KeyedStage],
    naive: Callable[[list[tuple[bytes, Any]]], list[tuple[bytes, Any]]],
) -> None:
    """Also where what is kept is cut and looked through as early as can be, which takes more items by default."""
    if data.draw(st.booleans()):
        check_made_stage(data, make(), naive)
        return
    with limited(LEAST_MEMORY):
        check_made_stage(data, make(), naive)


def check_made_stage(
    data: st.DataObject, stage: KeyedStage, naive: Callable[[list[tuple[bytes, Any]]], list[tuple[bytes, Any]]]
) -> None:
    """Feed a stage changes in drawn batches, tombstones before their items as well, settling on the way."""
    final: dict[int, Any] = data.draw(st.dictionaries(st.integers(0, 12), payloads, max_size=8))
    taken_back = data.draw(st.lists(st.tuples(st.integers(0, 12), payloads), max_size=6))
    changes = [(number, payload, 1) for number, payload in final.items()]
    for number, payload in taken_back:
        changes += [(number, payload, 1), (number, payload, -1)]
    changes = data.draw(st.permutations(changes))
    dropped: dict[Any, Any] = {}
    if data.draw(st.booleans()):
        stage.page(lambda keys: [(key, dropped[key]) for key in keys if dropped.get(key, DELETED) is not DELETED])
    came: Counter[tuple[int, bytes]] = Counter()
    sent: Counter[tuple[bytes, bytes]] = Counter()
    values_of = {canonical(payload): payload for _, payload, _ in changes}
    while changes:
        size = data.draw(st.integers(1, len(changes)))
        batch, changes = changes[:size], changes[size:]
        orderly = one_at_a_meta(came)
        for number, payload, diff in batch:
            came[number, canonical(payload)] += diff
        ports: Ports = {}
        out = stage.process(sorted_by_meta(columns_of(batch)), ports)
        assert not ports
        assert encode_many(out.payloads) == b"".join(map(canonical, out.payloads))
        batch_counts: Counter[tuple[bytes, bytes]] = Counter()
        for meta, payload, diff in zip(out.metas, out.payloads, out.diffs or [1] * len(out.metas)):
            batch_counts[meta, canonical(payload)] += diff
            sent[meta, canonical(payload)] += diff
        if orderly and one_at_a_meta(came):
            assert sum(map(abs, batch_counts.values())) == len(out.metas), "an item was made and unmade in one batch"
        if out.metas:
            assert min(out.metas) >= meta_at(min(number for number, _, _ in batch)), "an effect before its cause"
        if data.draw(st.booleans()):
            stage.settle(meta_at(min((number for number, _, _ in changes), default=100)))
        if stage.pages and data.draw(st.booleans()):
            for entries in stage.drop(data.draw(st.integers(1, 3)), recent=data.draw(st.booleans())):
                dropped.update(entries)
        if one_at_a_meta(came):
            there = [(meta_at(number), values_of[form]) for (number, form), count in came.items() if count]
            assert {place for place, count in sent.items() if count} == {
                (meta, canonical(payload)) for meta, payload in naive(there)
            }
            assert set(sent.values()) <= {0, 1}
    stage.settle(END_OF_TIME)
    assert stage.held == 0


@given(st.integers(1, 5), st.sampled_from([one_key, few_keys, same_payload]), st.data())
def test_a_grouping_sends_what_makes_its_windows_right(
    window: int, key: Callable[[Any], Any], data: st.DataObject
) -> None:
    check_stage(
        data, lambda: stage_of(lambda stream: stream.group(key, window)), partial(naive_windows, window=window, key=key)
    )


@given(st.sampled_from(sorted(STEPS)), st.sampled_from([one_key, few_keys, same_payload]), st.data())
def test_a_scan_sends_what_makes_its_outputs_right(step: str, key: Callable[[Any], Any], data: st.DataObject) -> None:
    initial, function = STEPS[step]
    make = partial(stage_of, lambda stream: stream.scan(key, initial, function))
    check_stage(data, make, partial(naive_scan, initial=initial, step=function, key=key))


@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_grouping_keeps_no_more_of_the_settled_than_it_needs(window: int) -> None:
    stage = stage_of(lambda stream: stream.group(one_key, window))
    for start in range(0, 1000, 10):
        stage.process(columns_of([(number, number, 1) for number in range(start, start + 10)]), {})
        stage.settle(meta_at(start + 10))
        assert stage.held == 0
        assert not len(stage._log) and not stage._histories
    last = tuple(range(1001 - window, 1000))
    assert list(stage.as_of(meta_at(1000), [None])) == [(None, last or DELETED)]


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("unsettled", [0, 2])
def test_a_bucket_that_is_never_settled_keeps_no_more_than_it_needs_and_no_less(window: int, unsettled: int) -> None:
    stage = stage_of(lambda stream: stream.group(one_key, window))
    sent: Counter[tuple[bytes, Any]] = Counter()
    for start in range(0, 1000, 10):
        late = [(number, number, 1) for number in range(start, start + 10)]
        for part in (late[5:], late[:5]):
            out = stage.process(columns_of(part), {})
            for meta, windows, diff in zip(out.metas, out.payloads, out.diffs or [1] * len(out.metas)):
                sent[meta, windows] += diff
        stage.settle(meta_at(start + 10 - unsettled))
        assert stage.held == unsettled
        assert len(stage._log) <= 1
        assert all(len(history.metas) <= 100 for history in stage._histories.values())
    items = [(meta_at(number), number) for number in range(1000)]
    assert +sent == Counter(naive_windows(items, window, one_key))


def outputs_after(
    grow: Callable[[drift.Stream[Any]], drift.Stream[Any]], changes: Sequence[list[tuple[int, Any, int]] | int]
) -> Counter[Any]:
    """What counts of a stage's output after batches of changes, or moves of minimal time, where it forgets at once."""
    sent: Counter[Any] = Counter()
    with mock.patch.multiple(log_module, _SMALL_ITEMS_MAX=1, _ROWS_RETAINED_MIN=0):
        stage = stage_of(grow)
        for change in changes:
            if isinstance(change, int):
                stage.settle(meta_at(change))
                continue
            out = stage.process(columns_of(change), {})
            for payload, diff in zip(out.payloads, out.diffs or [1] * len(out.payloads)):
                sent[payload] += diff
    return +sent


def test_a_state_kept_above_rows_that_were_taken_back_is_not_that_before_what_comes_later() -> None:
    # At 3 the log forgets where the row at 10 was.
    changes = [[(3, 3, 1)], [(10, 10, 1)], [(10, 10, -1)], 3, [(5, 5, 1)], [(12, 12, 1)], [(11, 11, 1)]]
    sent = outputs_after(lambda stream: stream.group(one_key, 2), changes)
    assert sent == Counter([(3,), (3, 5), (5, 11), (11, 12)])


def test_a_correction_does_not_stop_where_a_state_is_equal_and_not_the_same() -> None:
    def step(state: Any, payload: str) -> tuple[Any, str]:
        state = {"yes": True, "one": 1}.get(payload, state)
        return state, f"{state!r} {payload}"

    rest = range(5, 45)  # enough that states are kept between them, once they have run again
    changes = [[(1, "yes", 1)], [(at, str(at), 1) for at in rest], [(3, "3", 1)], [(1, "yes", -1), (2, "one", 1)]]
    sent = outputs_after(lambda stream: stream.scan(one_key, 0, step), changes)
    assert sent == Counter(["1 one", "1 3", *(f"1 {at}" for at in rest)])


@pytest.mark.parametrize("settled", [5, 7])
def test_what_is_left_of_a_batch_has_the_states_behind_what_went(settled: int) -> None:
    changes = [[(1, 1, 1), (2, 10, 1), (4, 20, 1), (6, 40, 1), (9, 100, 1)], settled, [(8, 1000, 1)]]
    sent = outputs_after(lambda stream: stream.scan(one_key, 0, lambda total, n: (total + n, total + n)), changes)
    assert sent == Counter([1, 11, 31, 71, 1071, 1171])


def test_a_later_item_that_has_come_waits_no_more_next_to_an_item_above_the_heartbeat() -> None:
    later = later_meta(meta_at(1), varint(0), 3, PHASE_TIMERS)
    assert later is not None
    batch = columns_of([])._replace(metas=Metas([later, meta_at(9)]), payloads=["note", "item"])
    assert split(batch, meta_at(5), meta_at(5)) == (batch, None)
    now, waits = split(batch, meta_at(2), meta_at(2))
    assert now is not None and waits is not None
    assert (now.payloads, waits.payloads) == (["item"], ["note"])


@pytest.mark.parametrize("key", [one_key, few_keys, same_payload])
@pytest.mark.parametrize(
    "grow",
    [lambda stream, key: stream.group(key, 3), lambda stream, key: stream.scan(key, *STEPS["mixing"])],
    ids=["group", "scan"],
)
@pytest.mark.parametrize("far_at_once", [1, 50])
def test_an_item_far_ahead_keeps_itself_and_nothing_that_comes_with_it_or_after_it(
    grow: Callable[[drift.Stream[Any], Any], drift.Stream[Any]], key: Callable[[Any], Any], far_at_once: int
) -> None:
    stage = stage_of(lambda stream: grow(stream, key))
    for start in range(0, 20_000, 200):
        batch = [(number, number, 1) for number in range(start, start + 200)]
        if start // 200 < far_at_once:
            batch.append((10**6 + start, start, 1))
        stage.process(columns_of(batch), {})
        stage.settle(meta_at(start + 200))
    histories = stage._histories
    logged = sum(len(segment.metas) for segment in stage._log._segments.values())
    assert stage.held == far_at_once
    assert logged + sum(len(history.metas) for history in histories.values()) <= 16 * far_at_once + 1000
    assert len(histories) <= 256 + 2 * far_at_once
    stage.settle(END_OF_TIME)
    assert stage.held == 0 and not len(stage._log)


@pytest.mark.parametrize("behind", [0, 3, 100])
def test_items_that_come_one_by_one_are_logged_together_and_forgotten_when_they_are_settled(behind: int) -> None:
    stage = stage_of(lambda stream: stream.group(few_keys, 2))
    sent: Counter[tuple[bytes, Any]] = Counter()
    order = [number + 8 * (number % 9 == 0) - (number % 9 == 8) for number in range(2000)]
    numbers = list(dict.fromkeys(order))  # the last of nine before the others
    for at, number in enumerate(numbers):
        out = stage.process(columns_of([(number, number, 1)]), {})
        for meta, window, diff in zip(out.metas, out.payloads, out.diffs or [1] * len(out.metas)):
            sent[meta, window] += diff
        if behind:
            stage.settle(meta_at(min(numbers[at + 1 :], default=number) - behind))
            segments = list(stage._log._segments.values())
            assert len(segments) <= 4 + behind // 9 and sum(len(each.metas) for each in segments) <= 32 + 3 * behind
    assert len(stage._log) <= len(numbers) // 4
    assert +sent == Counter(naive_windows([(meta_at(number), number) for number in sorted(numbers)], 2, few_keys))


def test_a_scan_takes_back_several_items_of_a_key_though_the_state_after_the_first_is_the_same() -> None:
    def parity(state: int, payload: int) -> tuple[int, tuple[int, int]]:
        return payload % 2, (state, payload)

    stage = stage_of(lambda stream: stream.scan(one_key, 0, parity))
    stage.process(columns_of([(number, number, 1) for number in range(0, 20, 2)]), {})
    out = stage.process(columns_of([(2, 2, -1), (8, 8, -1), (12, 12, -1)]), {})
    assert (out.metas, out.payloads, out.diffs) == (
        [meta_at(number) for number in (2, 8, 12)],
        [(0, 2), (0, 8), (0, 12)],
        [-1, -1, -1],
    )
    out = stage.process(columns_of([(5, 5, 1)]), {})
    assert sorted(zip(out.metas, out.payloads, out.diffs or [])) == [
        (meta_at(5), (0, 5), 1),
        (meta_at(6), (0, 6), -1),
        (meta_at(6), (1, 6), 1),
    ]


@pytest.mark.parametrize("rows_retained_min", [0, 512])
def test_what_a_tombstone_took_from_a_scan_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, rows_retained_min: int
) -> None:
    """Also where the memory of it seems settled while the batch that it came in is not, and is cut or is not."""
    monkeypatch.setattr(log_module, "_HISTORIES_RETAINED_MIN", 0)
    monkeypatch.setattr(log_module, "_ROWS_RETAINED_MIN", rows_retained_min)
    stage = stage_of(lambda stream: stream.scan(one_key, 0, STEPS["mixing"][1]))
    stage.process(columns_of([(1, 1, 1), (2, 2, 1), (9, 9, 1)]), {})
    stage.process(columns_of([(9, 9, -1)]), {})
    stage.settle(meta_at(5))
    out = stage.process(columns_of([(8, 8, 1)]), {})
    expected = naive_scan([(meta_at(n), n) for n in (1, 2, 8)], 0, STEPS["mixing"][1], one_key)
    assert list(zip(out.metas, out.payloads)) == expected[2:] and out.diffs is None


@pytest.mark.parametrize(
    "pair",
    [{1, 2}, {1: 2, 3: 4}, "ab", b"ab", (1, 2, 3), (1,), iter((1, 2)), None],
    ids=lambda pair: type(pair).__name__,
)
@pytest.mark.parametrize(("engine", "fused"), [("local", True), ("local", False), ("reference", True)])
def test_a_scan_takes_a_sequence_of_two_from_its_step_and_nothing_else(engine: str, fused: bool, pair: Any) -> None:
    graph = drift.Graph("pairs")
    graph.source("in").scan(one_key, 0, lambda state, n: pair if n == 3 else [state, n], name="step").sink("out")
    run = drift.run(graph, {"in": [1, 2, 3, 4]}, engine=engine, fused=fused)
    released: list[Any] = []
    with pytest.raises(drift.StepError, match="must return \\(next state, output\\)"):
        released.extend(item.payload for item in run)
    assert released == [1, 2]


def test_a_scan_keeps_one_state_of_what_is_settled() -> None:
    stage = stage_of(lambda stream: stream.scan(few_keys, 0, STEPS["mixing"][1]))
    for start in range(0, 1000, 10):
        late = [(number, number, 1) for number in range(start, start + 10)]
        stage.process(columns_of(late[5:]), {})
        stage.process(columns_of(late[:5]), {})
        stage.settle(meta_at(start + 10))
        assert stage.held == 0
        assert len(stage._log) <= 1
        assert all(len(history.metas) <= 100 for history in stage._histories.values())
    assert len(stage._states) == 3


def test_no_state_is_kept_above_the_rows_that_a_tombstone_left() -> None:
    stage = stage_of(lambda stream: stream.scan(one_key, 0, STEPS["mixing"][1]))
    for change in ((13, 13, 1), (2, 2, 1), (13, 13, -1), (6, 6, 1), (5, 5, 1), (6, 6, -1), (5, 5, -1)):
        stage.process(columns_of([change]), {})
        for history in stage._histories.values():
            assert history.kept_at == sorted(set(history.kept_at)) and len(history.kept) == len(history.kept_at)
            assert not history.kept_at or history.kept_at[-1] <= history.metas[-1]


def test_a_window_that_ends_up_the_same_is_not_sent_again() -> None:
    stage = stage_of(lambda stream: stream.group(one_key, 2))
    stage.process(columns_of([(number, 0, 1) for number in (1, 2, 4, 5)]), {})
    out = stage.process(columns_of([(3, 0, 1)]), {})
    assert (out.metas, out.payloads, out.diffs) == ([meta_at(3)], [(0, 0)], None)


def test_a_scan_stops_where_a_recomputed_state_is_the_old_one() -> None:
    calls: list[int] = []

    def parity(state: int, payload: int) -> tuple[int, int]:
        calls.append(payload)
        return payload % 2, state

    stage = stage_of(lambda stream: stream.scan(one_key, 0, parity))
    for start in range(0, 200, 40):
        stage.process(columns_of([(number, number, 1) for number in range(start, start + 40, 2)]), {})
    for number, expected in (
        (41, [40, 41, *range(42, 80, 2)]),
        (45, [41, 42, 44, 45, 46, 48, 50, 52, 54]),
    ):  # then states are kept more often
        calls.clear()
        out = stage.process(columns_of([(number, number, 1)]), {})
        assert calls == expected and len(out.metas) == 3


@pytest.mark.parametrize("workers", [3, 300])
def test_a_worker_sends_each_key_to_its_owner_and_nothing_to_itself(workers: int) -> None:
    graph = drift.Graph("keys")
    graph.source("in").group(same_payload, 1, name="windows").sink("out")
    plan = Plan(graph.build())
    columns = columns_of([(number, number, 1) for number in range(1000)])
    sends = Router(plan, workers).route({"windows": [columns]})
    partitioner = Partitioner(workers)
    for owner, parts in sends.items():
        for _, part in parts:
            assert {partitioner.owner(payload) for payload in part.payloads} == {owner}
    assert sorted(meta for parts in sends.values() for _, part in parts for meta in part.metas) == list(columns.metas)
    worker = Worker(plan, 1, 3)
    assert set(worker.turn([("in", columns)])) == {BARRIER, 0, 2}


def test_a_correction_goes_round_a_cycle_once() -> None:
    """Each window behind it is made anew once; not twice as many at every turn."""
    calls: list[int] = []

    def total(state: int, payload: int) -> tuple[int, int]:
        calls.append(payload)
        return state + payload, state

    graph = drift.Graph("cycle")
    graph.source("in").scan(one_key, 0, total).sink("out")
    worker = Worker(Plan(graph.build(), fused=False))
    worker.turn([("in", columns_of([(number, number, 1) for number in range(1, 41)]))])
    calls.clear()
    worker.turn([("in", columns_of([(0, 100, 1)]))])
    assert len(calls) <= 8 * 41


def test_a_bucket_whose_items_are_settled_starts_again_with_what_was_logged_since() -> None:
    graph = drift.Graph("buckets")
    graph.source("in").group(lambda payload: payload[0], 2, name="g").sink("out")
    stage = Plan(graph.build()).stages()["g"]
    ports: Ports = {}
    stage.process(Columns(Metas([pack_time(3)]), [("b", 3)], None), ports)
    stage.settle(pack_time(2))
    stage.process(Columns(Metas([pack_time(3)]), [("b", 3)], [-1]), ports)
    stage.process(Columns(Metas([pack_time(6)]), [("b", 6)], None), ports)
    stage.settle(pack_time(7))
    out = stage.process(Columns(Metas([pack_time(9), pack_time(11)]), [("a", 9), ("b", 11)], [-1, 1]), ports)
    assert out.payloads == [(("b", 6), ("b", 11))]


def test_a_bucket_that_is_settled_resumes_from_what_came_in_order_after_it() -> None:
    """What was corrected once is kept, and what came in order since then is settled and logged no more."""
    graph = drift.Graph("pairs")
    graph.source("in", time=drift.EventTime(lambda time: time, lateness=10)).group(lambda time: 0, 2).sink("out")
    arrived = [5, 3, 20, 30, 60, 50, 80]
    expected = [(3,), (3, 5), (5, 20), (20, 30), (30, 50), (50, 60), (60, 80)]
    for batch_items in (1, 2, 3, 7):
        run = drift.run(graph, {"in": arrived}, batch_items=batch_items)
        assert [item.payload for item in run] == expected
