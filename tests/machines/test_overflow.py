"""States that do not fit in memory: the output is the same, and memory is bounded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from columns import meta_at
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases
from test_checkpoints import later_steps, rows, with_later

import drift
from drift.engines import overflow
from drift.engines.by_key import FileByKey, write_by_key
from drift.engines.overflow import Overflow, bytes_of
from drift.machines.checkpoints import DELETED, Entries
from drift.machines.keyed import KeyedStage, Place
from drift.machines.logics import ScanLogic
from drift.machines.worker import Snapshot, Worker
from drift.operators import KeyedItems, ScanState
from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_graph.sizes import bytes_in


def count(state: tuple[int, int], number: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (state[0] + 1, state[1] + number), (number, state[1])


def counting(step: Any = count, initial: Any = (0, 0)) -> drift.Graph:
    graph = drift.Graph("counting")
    graph.source("numbers").scan(lambda number: number, initial, step, name="counts").sink("out")
    return graph


@pytest.fixture
def relieved(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Overflow, int, int]]]:
    """After each turn: the states on disk, the keys in memory, and the bytes of these."""
    seen: list[tuple[Overflow, int, int]] = []
    relieve = Overflow.relieve

    def noted(self: Overflow, worker: Worker) -> None:
        relieve(self, worker)
        seen.append((self, sum(map(len, worker.pages())), bytes_of(worker.pages())))

    monkeypatch.setattr(Overflow, "relieve", noted)
    yield seen


def test_more_keys_than_fit_in_memory_have_the_same_output(relieved: list[tuple[Overflow, int, int]]) -> None:
    random = Random(7)
    numbers = list(range(200_000)) + [random.randrange(200_000) for _ in range(50_000)]
    expected = drift.run(counting(), {"numbers": numbers}).finish().digest
    assert drift.run(counting(), {"numbers": numbers}, memory_max="8 MB").finish().digest == expected
    batch_bytes = 4096 * 500
    assert max(taken for *_, taken in relieved) <= 8_000_000 * 9 // 8 + batch_bytes
    assert max(keys for _, keys, _ in relieved) < 40_000
    files, *_ = relieved[-1]
    assert files.dropped > 200_000


def test_states_of_keys_that_come_again_and_again_stay_in_memory(relieved: list[tuple[Overflow, int, int]]) -> None:
    numbers = [number for each in range(60_000) for number in (each, each % 100)]
    drift.run(counting(), {"numbers": numbers}, memory_max="2 MB").finish()
    files, *_ = relieved[-1]
    assert 50_000 < files.dropped < 60_000 + 100  # of the others each once


def ended(case: Any, **more: Any) -> tuple[str, str]:
    """The digest of a run, and the error that ended it."""
    run = drift.run(case.dataflow(), case.sources(), **more)
    try:
        return run.finish().digest, ""
    except drift.StepError as error:
        return "", str(error)


@given(cases(items_max=12, failing=True), st.integers(1, 4))
def test_a_run_that_drops_all_that_it_can_ends_as_any_other(case: Any, batch_items: int) -> None:
    assert ended(case, batch_items=batch_items, memory_max=1) == ended(case, batch_items=batch_items)


class Leaving(ScanLogic):
    """Numbers the items of a key; None makes it begin again, without a state."""

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Any) -> None:
        for key, payload in zip(rows.keys, rows.payloads):
            states[key] = states.get(key, 0) + 1
            give(states[key])
            if payload is None:
                del states[key]


@pytest.mark.parametrize("settled", [True, False])
def test_a_key_whose_state_is_gone_does_not_get_the_one_that_was_dropped_before(settled: bool) -> None:
    (group,) = counting().build().groups.values()
    logic = Leaving(group.key, ScanState(group.key, 0, count, count))
    logic.key = lambda payload: "key"
    stage = KeyedStage(logic, Place(group, None, None, (b"\x01",)))
    dropped: dict[Any, Any] = {}
    stage.page(lambda keys: [(key, dropped[key]) for key in keys if dropped.get(key, DELETED) is not DELETED])
    made = []
    for number, payload in enumerate([1, 2, None, 3]):
        made += stage.process(Columns(Metas([meta_at(number)]), [payload], None), {}).payloads
        if settled or number < 2:
            stage.settle(meta_at(number + 1))
        for entries in stage.drop(1, recent=True):
            dropped.update(entries)
    assert made == [1, 2, 3, 1]


@given(later_steps, rows(), rows())
@settings(max_examples=30)
def test_so_has_one_with_timers_and_later_items(steps: list[str], first: list[Any], second: list[Any]) -> None:
    sources = {"in0": first, "in1": second}
    expected = drift.run(with_later(steps), sources).finish().digest
    assert drift.run(with_later(steps), sources, memory_max=1).finish().digest == expected


def test_windows_that_slide_by_number_go_on_where_they_were() -> None:
    graph = drift.Graph("windows")
    graph.source("numbers").group(lambda number: number % 50, 3).sink("out")
    numbers = list(range(1000))
    expected = drift.run(graph, {"numbers": numbers}).finish().digest
    assert drift.run(graph, {"numbers": numbers}, memory_max=1, batch_items=7).finish().digest == expected


def test_files_are_merged_and_few(monkeypatch: pytest.MonkeyPatch, relieved: list[tuple[Overflow, int, int]]) -> None:
    most = 0
    merge = Overflow._merge

    def noted(self: Overflow) -> None:
        nonlocal most
        merge(self)
        most = max(most, len(self._files))

    monkeypatch.setattr(Overflow, "_merge", noted)
    numbers = list(range(3000)) * 2
    expected = drift.run(counting(), {"numbers": numbers}).finish().digest
    assert drift.run(counting(), {"numbers": numbers}, memory_max=1, batch_items=50).finish().digest == expected
    assert 1 < most < 24
    files, *_ = relieved[-1]
    assert files._files == []  # closed


def test_what_is_deleted_is_written_only_where_something_lies_below(tmp_path: Path) -> None:
    snapshot = Snapshot(b"\x01", {"counts": Entries.of([(1, "one"), (2, DELETED)])}, [])
    found = {}
    for deleted in (False, True):
        with (tmp_path / str(deleted)).open("wb") as file:
            write_by_key(file, [snapshot], deleted=deleted)
        written = FileByKey(memoryview((tmp_path / str(deleted)).read_bytes()))
        found[deleted] = dict(written.tables["counts"].rows()).keys()
    assert found == {False: {1}, True: {1, 2}}


def test_a_state_that_pickle_cannot_write_is_named() -> None:
    def keep(state: Any, number: int) -> tuple[Any, int]:
        return (lambda: number), number

    with pytest.raises(drift.PayloadError, match="step 'counts' has a state that cannot be written to disk"):
        drift.run(counting(keep, None), {"numbers": range(10)}, memory_max=1).finish()


def test_where_no_file_can_be_written_the_run_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(drift.StorageError, match=r"cannot be written to .*gone: No such file.*TMPDIR"):
        drift.run(counting(), {"numbers": range(10)}, memory_max=1).finish()


def test_a_size_is_a_number_of_bytes_or_has_a_unit() -> None:
    sizes = {2: 2, "2": 2, "2 GB": 2 * 10**9, "1.5kb": 1500, " 512 MiB ": 512 << 20}
    assert {size: bytes_in(size) for size in sizes} == sizes
    for wrong in ("2 parsecs", "", "GB", 0, -1, 1.5, True, "0"):
        with pytest.raises(drift.SettingsError, match=r"memory_max=.* is not a number of bytes, or a text such as"):
            drift.run(counting(), {"numbers": []}, memory_max=wrong)
    with pytest.raises(drift.SettingsError, match="is a setting of engine='local' or engine='zeromq'"):
        drift.run(counting(), {"numbers": []}, engine="reference", memory_max=1)


def test_the_estimate_counts_what_keys_and_states_hold() -> None:
    small = bytes_of([{n: n for n in range(1000)}])
    assert 200_000 < small < 400_000
    large = bytes_of([{n: [bytes(10_000)] for n in range(1000)}])
    assert large - small > 9_000_000
    assert bytes_of([{}]) == 0 and overflow._SAMPLED < 1000
