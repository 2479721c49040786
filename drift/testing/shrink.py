"""Shrinks a failing case: first the input, then the deviations from order.

Invariant: the result fails, and without any single item or any single deviation it passes under all schedules that were
tried.

Why the two are shrunk separately: decisions depend on keys, so an input without one item can be run under the same
deviations, renumbered; if that passes, a few other schedules are tried, because the question is whether any schedule
fails. Once the input is small, runs are short, and the smallest set of deviations is searched both by removing
deviations and by trying every possible single one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from drift.engines.simulated.schedule import Key
from drift.machines.plan import Plan
from drift.testing.check import Case, Output, Result, check, in_order
from drift.testing.schedule import ARRIVE, EARLY, HELD, Deviation, Schedule, explicit
from drift_graph.canonical import NoCanonicalForm, stored
from drift_graph.errors import DriftError, SettingsError

#: Limit of runs for shrinking; so far it has always finished long before.
RUNS_MAX = 10_000
#: A case that is no larger than this gets no extra effort.
_ITEMS_WANTED, _DEVIATIONS_WANTED = 4, 2
#: Other schedules that are tried on a smaller input: more if it is small, since a run is short then.
_SCHEDULES_MIN, _SCHEDULES_MAX, _ITEMS_RUN = 6, 40, 200
_HOLDS = (1, 2, 4, 8, 16, 32, 64)


class Shrinker:
    """Makes one failing case smaller.

    Args:
        result: of a check that failed.
        payloads: whether payloads may be replaced by simpler ones; not if a strategy has shrunk them, since only the
            strategy knows which payloads are valid.
        checked: runs a case, as `check` does.
    """

    def __init__(
        self, result: Result, *, items: bool = True, payloads: bool = True, checked: Callable[..., Result] = check
    ) -> None:
        assert result.failure is not None
        self.best = result
        self._check = checked
        self.runs = 0
        self._items = items
        self._payloads = payloads
        self._plans: dict[bool, Plan] = {}  # of the latest case's graph: fused, and not
        self._latest = result.case
        self._expected: Output | None = None  # of the latest case's input
        self._effort = 1
        self._error = type(result.expected.error)

    def run(self) -> Result:
        """The smallest failing case found."""
        self._try(replace(self.best.case, schedule=explicit(self.best.case.schedule, self.best.made)))
        self._settle()
        if len(self._deviations()) > _DEVIATIONS_WANTED:
            self._name_ends()  # a delay until an event does not depend on the other deviations
            self._settle()
        if self._items and self.best.case.item_count > _ITEMS_WANTED:
            self._effort = 5
            self._settle()
        self._say_early()
        self._search_schedules()
        self._say_early()
        self._search_deviations()
        self._shrink_choices()
        self._name_ends()
        return self.best

    def _settle(self) -> None:
        """Run all passes in turn, until none makes the case smaller."""
        before = None
        while before != (before := self._size()) and self.runs < RUNS_MAX:
            if self._items:
                self._shrink_items()
            while any(map(self._try_schedules, self.best.case.smaller())):
                pass
            if self._items and self._payloads:
                self._shrink_payloads()
            self._shrink_settings()
            self._shrink_deviations()

    # Trying.

    def _size(self) -> tuple[Any, ...]:
        case = self.best.case
        operators = len(case.dataflow.operators)
        costs = [list(map(_cost, payloads)) for payloads in case.inputs.values()]
        return case.item_count, operators, costs, _settings_cost(case.schedule), len(self._deviations())

    def _deviations(self) -> tuple[Deviation, ...]:
        return self.best.case.schedule.deviations

    def _try(self, case: Case) -> bool:
        """Whether a case fails; if so, it becomes the best one, with its schedule made explicit."""
        if self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        try:
            result = self._checked(case)
        except DriftError:
            return False
        if result.failure is None or type(result.expected.error) not in (type(None), self._error):
            return False
        result.case = replace(case, schedule=explicit(case.schedule, result.made))
        self.best = result
        return True

    def _checked(self, case: Case) -> Result:
        """Check a case; many differ in the schedule alone, so plans and the reference's output are made once."""
        if case.dataflow is not self._latest.dataflow:
            self._plans = {}
        if case.dataflow is not self._latest.dataflow or case.inputs is not self._latest.inputs:
            self._expected = None
        self._latest = case
        fused = case.schedule.fused
        plan = self._plans[fused] = self._plans.get(fused) or Plan(case.dataflow, fused=fused)
        result = self._check(case, self._expected, plan=plan)
        self._expected = None if case.schedule.live else result.expected  # that of live sources is of this run
        return result

    def _try_with(self, deviations: Sequence[Deviation]) -> bool:
        case = self.best.case
        return self._try(replace(case, schedule=case.schedule.with_deviations(deviations)))

    def _try_schedules(self, case: Case) -> bool:
        """Whether a case fails as it is, or under another schedule."""
        if self._try(case):
            return True
        return any(self._try(replace(case, schedule=schedule)) for schedule in _others(case, self._effort))

    # The input.

    def _shrink_items(self) -> None:
        for source in list(self.best.case.inputs):
            size = (len(self.best.case.inputs[source]) + 1) // 2
            while size:
                stop = len(self.best.case.inputs[source])
                while stop > 0:
                    start = max(stop - size, 0)
                    self._try_schedules(_without(self.best.case, source, start, stop))
                    stop = start
                size //= 2

    def _shrink_payloads(self) -> None:
        for source in list(self.best.case.inputs):
            for at in range(len(self.best.case.inputs[source])):
                self._shrink_payload(source, at)

    def _shrink_payload(self, source: str, at: int) -> None:
        progress = True
        while progress:
            progress = False
            case = self.best.case
            payload = case.inputs[source][at]
            for simpler in _simpler(payload):
                if _cost(simpler) >= _cost(payload):
                    continue
                changed = list(case.inputs[source])
                changed[at] = simpler
                try:
                    inputs = in_order(case.dataflow, {**case.inputs, source: changed})
                except SettingsError:
                    continue
                if self._try(replace(case, inputs=inputs)):
                    progress = True
                    break

    # The schedule.

    def _shrink_settings(self) -> None:
        for change in (
            {"live": ()},
            {"in_flight_max": Schedule.in_flight_max},
            {"fused": True},
            {"workers": 1},
            {"workers": 2},
            {"batch_items": 1},
            {"batch_items": 2},
        ):
            schedule = replace(self.best.case.schedule, **change)
            if _settings_cost(schedule) < _settings_cost(self.best.case.schedule):
                self._try_schedules(replace(self.best.case, schedule=schedule))

    def _shrink_deviations(self) -> None:
        """Remove halves of the deviations, quarters, and so on; then single ones."""
        if self._deviations() and self._try_with(()):
            return
        size = len(self._deviations()) // 2
        while size:
            at = 0
            while at < len(self._deviations()):
                found = self._deviations()
                if not self._try_with(found[:at] + found[at + size :]):
                    at += size
            size //= 2

    def _say_early(self) -> None:
        """Replace several items that arrive late by one that arrives early."""
        for source, payloads in self.best.case.inputs.items():
            late = [each for each in self._deviations() if each.key.kind == ARRIVE and each.key.source == source]
            others = tuple(each for each in self._deviations() if each not in late)
            if len(late) > 1:
                for at, earlier in itertools.product(range(len(payloads)), range(1, len(payloads))):
                    if self._try_with((*others, Deviation(Key(EARLY, "", source, at, 0), earlier))):
                        break

    def _search_schedules(self) -> None:
        """If many deviations are left: search for another schedule that fails with fewer."""
        if len(self._deviations()) <= _DEVIATIONS_WANTED:
            return
        for schedule in _others(self.best.case, 8):
            best = self.best
            if self._try(replace(best.case, schedule=schedule)):
                self._shrink_deviations()
                if len(self._deviations()) >= len(best.case.schedule.deviations):
                    self.best = best
                elif len(self._deviations()) <= _DEVIATIONS_WANTED:
                    return

    def _search_deviations(self) -> None:
        """If two or more deviations are left: try a single one, or one of them with another one."""
        if len(self._deviations()) < 2:
            return
        single = list(self._single_deviations())
        for one in single:
            if self._try_with((one,)):
                return
        if len(self._deviations()) < 3:
            return
        for retained in self._deviations():
            for one in single:
                if one.key != retained.key and self._try_with((retained, one)):
                    return
        for workers, batch_items in ((1, 8), (2, 8), (1, 2), (2, 1), (3, 1)):
            other = replace(self.best.case.schedule, workers=workers, batch_items=batch_items)
            pairs = itertools.product(self._cuts(), (one for one in single if one.key.kind == "batch"))
            for several in (*((one,) for one in single), *pairs):
                if self._try(replace(self.best.case, schedule=replace(other, deviations=several))):
                    return

    def _cuts(self) -> list[Deviation]:
        """Deviations that make a batch one item shorter than it could be."""
        inputs = self.best.case.inputs
        return [Deviation(Key("cut", "", name, at, 0), 1) for name in inputs for at in range(len(inputs[name]))]

    def _single_deviations(self) -> Iterator[Deviation]:
        keys = [*self.best.made, *(event.key for event in self.best.simulation.log)]
        for turns in _HOLDS:
            for key in dict.fromkeys(keys):
                if key.kind in HELD:
                    yield Deviation(key, turns)
        for key in dict.fromkeys(keys):
            if key.kind not in HELD:
                yield from (Deviation(key, choice) for choice in range(1, 4))

    def _shrink_choices(self) -> None:
        for at in range(len(self._deviations())):
            if at >= len(self._deviations()):
                return
            low, high = 0, self._deviations()[at].choice
            while low + 1 < high:
                middle = (low + high) // 2
                found = self._deviations()
                if self._try_with((*found[:at], found[at]._replace(choice=middle), *found[at + 1 :])):
                    high = middle
                else:
                    low = middle

    def _name_ends(self) -> None:
        """Replace delays of a number of turns by delays until an event, which stay valid when the code changes."""
        for at in range(len(self._deviations())):
            deviation = self._deviations()[at]
            if deviation.key.kind not in HELD or deviation.until is not None:
                continue
            for until in _last_before(deviation.key, self.best):
                found = self._deviations()
                if self._try_with((*found[:at], deviation._replace(until=until), *found[at + 1 :])):
                    break


def _last_before(key: Key, result: Result) -> Iterator[Key]:
    """The last event before a delayed one: at the same receiver, and at any."""
    log = result.simulation.log
    held = next((event for event in log if event.key == key), None)
    if held is None:
        return
    before = [
        event
        for event in log[: log.index(held)]
        if event.sent_turn < held.arrival_turn and event.arrival_turn > held.sent_turn
    ]
    alike = [event for event in before if event.key.kind == key.kind and event.to == held.to]
    reads = [event for event in before if event.key.kind == "read"]
    for several in (alike, reads, before):
        if several:
            yield several[-1].key


def _without(case: Case, source: str, start: int, stop: int) -> Case:
    """A case without some items of a source, with the deviations about the other items."""
    inputs = {**case.inputs, source: case.inputs[source][:start] + case.inputs[source][stop:]}

    def renumbered(key: Key) -> Key:
        if key.source != source or key.number < start:
            return key
        return key._replace(number=max(key.number - (stop - start), start))

    deviations: dict[Key, Deviation] = {}
    for each in case.schedule.deviations:
        moved = each._replace(key=renumbered(each.key), until=renumbered(each.until) if each.until else None)
        deviations.setdefault(moved.key, moved)
    return replace(case, inputs=inputs, schedule=case.schedule.with_deviations(deviations.values()))


def _others(case: Case, effort: int) -> Iterator[Schedule]:
    """Other schedules: with the settings as they are, and with others."""
    several = effort * min(max(_ITEMS_RUN // (case.item_count + 1), _SCHEDULES_MIN), _SCHEDULES_MAX)
    first = case.schedule
    for noise in range(1, several + 1):
        workers = (first.workers, 2, first.workers, 3)[noise % 4]
        batch_items = (first.batch_items, first.batch_items, 1)[noise % 3]
        yield replace(first, workers=workers, batch_items=batch_items, deviations=(), noise=noise, losses=False)


def _settings_cost(schedule: Schedule) -> tuple[int, ...]:
    return (
        len(schedule.live),
        schedule.in_flight_max != Schedule.in_flight_max,
        not schedule.fused,
        schedule.workers,
        schedule.batch_items,
    )


def _cost(payload: Any) -> tuple[int, bytes]:
    try:
        form = stored(payload)
    except NoCanonicalForm:
        form = b"\xc1" * 64
    return len(form), form


def _simpler(value: Any) -> Iterator[Any]:
    """Simpler values of the same type; of a value with parts, also copies with simpler parts."""
    kind = type(value)
    if kind is bool:
        yield False
    elif kind is int:
        yield from (0, 1, value // 2, value - 1 if value > 0 else -value)
    elif kind is float:
        yield from (0.0, 1.0)
        if value == value and abs(value) < 2**53:
            yield float(int(value))
    elif kind in (str, bytes):
        yield kind()
        yield value[: len(value) // 2]
        yield from (value[:at] + value[at + 1 :] for at in range(min(len(value), 16)))
        if kind is str:
            yield "a" * len(value)
    elif kind in (tuple, list):
        yield kind(value[:0])
        yield from (value[:at] + value[at + 1 :] for at in range(min(len(value), 16)))
        for at in range(min(len(value), 16)):
            yield from (kind((*value[:at], part, *value[at + 1 :])) for part in _simpler(value[at]))
    elif kind is dict:
        for name in list(value)[:16]:
            yield {other: part for other, part in value.items() if other != name}
            yield from ({**value, name: part} for part in _simpler(value[name]))
    elif value is not None:
        yield from (0, None)


def shrunk(
    result: Result, *, items: bool = True, payloads: bool = True, checked: Callable[..., Result] = check
) -> Result:
    """The smallest case that fails like a failed one; see `Shrinker`."""
    return Shrinker(result, items=items, payloads=payloads, checked=checked).run()
