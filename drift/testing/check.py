"""One simulated run and the reference, compared byte for byte.

Invariant: `check` reports a failure exactly if the run's output, its error or its end differs from the reference's, or
an invariant of the machines broke during the run.

Why the reference can be trusted: it gets the items in the order of their times, all at once, from source machines of
its own, whatever the arrival order and the batches of the run. Only if a clock decided (a live source's stamps, an idle
source's heartbeat), it gets the items and heartbeats that the run's sources gave, as a record would hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from drift.engines.simulated.outcome import SimulatedOutput
from drift.engines.simulated.schedule import Key
from drift.engines.simulated.simulation import Simulation
from drift.machines.plan import Plan, feeding_step
from drift.testing.calls import InTurn, reference_answers
from drift.testing.schedule import Deviation, Player, Schedule, arrival_order
from drift.testing.unmerged import are_close, unmerged
from drift_barrier.digest import Digest
from drift_graph.canonical import NoCanonicalForm, canonical_each, form_of
from drift_graph.errors import DriftBug, DriftError, ProcessError, SettingsError, StepError
from drift_graph.failures import no_form_error
from drift_graph.graph import Dataflow
from drift_graph.inputs import late_before, late_until
from drift_graph.item import Item
from drift_graph.lateness import Late
from drift_graph.meta import END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.policies import EventTime, TimePolicy
from drift_graph.reference import Reference
from drift_graph.times import Arrived, SourceMachine

#: The failure of a run that agrees with the reference, but fails an assertion of the test under `deterministic`.
OF_TEST = "the test's own words"
IMPURE = "an impure step"


class NotDeterministic(AssertionError):
    """A run of a dataflow differs from the reference.

    Attributes:
        result: the failed case; the smallest one when it leaves the test, None if a run was driven by hand.
        path: of its case file; None if there is none.
    """

    def __init__(self, message: str, result: Result | None, path: Path | None = None) -> None:
        super().__init__(message)
        self.result = result
        self.path = path


class ComparedItem(NamedTuple):
    """An item of the output, in the form in which runs are compared."""

    meta: bytes
    payload: Any
    sink: str


@dataclass(frozen=True)
class Output:
    """The result of a run: its items, its error if any, and its late items."""

    rows: list[ComparedItem]
    digest: str
    error: Exception | None
    late: list[Late] = field(default_factory=list)

    def items(self) -> list[Item[Any]]:
        return [Item(row.payload, at, row.sink, row.meta) for at, row in enumerate(self.rows)]


@dataclass(frozen=True)
class Case:
    """A graph, the input of its sources, and the schedule of a run.

    Attributes:
        dataflow: the graph.
        inputs: by source; in the order of their times if the source is in event time, see `in_order`.
        schedule: of the run.
        target: of the graph, "module:name" or "file.py:name"; "" if it is not known.
        test: "file.py:name" of the test under `deterministic` whose assertion failed; "" if the run itself is wrong.
        has_impure: whether a step was found impure in it.
    """

    dataflow: Dataflow
    inputs: Mapping[str, list[Any]]
    schedule: Schedule
    target: str = ""
    test: str = ""
    has_impure: bool = False

    @property
    def item_count(self) -> int:
        return sum(map(len, self.inputs.values()))

    def smaller(self) -> Iterator[Case]:
        """Cases with smaller graphs, for shrinking; none, unless the graph was drawn."""
        return iter(())


@dataclass(frozen=True)
class Failure:
    """Why a run is wrong.

    Attributes:
        what: a few words: "another output", "another error", "a broken invariant", "an exception", or `OF_TEST`.
        message: what happened.
        position: of the first item that differs, or -1.
        expected, got: that item in the reference and in the run; None if there is none.
    """

    what: str
    message: str
    position: int = -1
    expected: ComparedItem | None = None
    got: ComparedItem | None = None


@dataclass
class Result:
    """A checked run.

    Attributes:
        expected, output: of the reference and of the run.
        outcome: None if the run broke.
        made: every decision of the schedule that was not the plainest.
        failure: None if the run is right.
        simulation: the run in its last state.
        arrived: by source, the indices of its items in the order of their arrival.
        handed: the items and heartbeats that the run's sources gave, if a clock had an influence on them.
    """

    case: Case
    expected: Output
    output: Output
    outcome: SimulatedOutput | None
    made: dict[Key, Deviation]
    failure: Failure | None
    simulation: Simulation
    arrived: dict[str, list[int]]
    handed: list[tuple[str, Arrived]] | None = None


def policies_of(dataflow: Dataflow) -> dict[str, TimePolicy]:
    return {source.name: source.time for source in dataflow.sources}


def may_idle(policy: TimePolicy) -> bool:
    """Whether a live source sends heartbeats when it has no items."""
    return policy.idle_after_ms is not None


def in_order(dataflow: Dataflow, inputs: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Inputs with the items of sources in event time sorted by time (a stable sort).

    A source's items stay in their order if one has no time, or if late items are diverted or some are allowed, since
    the order then decides which items are late or belated.

    Raises:
        SettingsError: a source is missing, or there is no such source.
    """
    names = [source.name for source in dataflow.sources]
    for name in inputs:
        if name not in names:
            raise SettingsError(
                f"graph {dataflow.name!r} has no source {name!r}; it has {', '.join(map(repr, names)) or 'none'}"
            )
    missing = [name for name in names if name not in inputs]
    if missing:
        raise SettingsError(f"no input for source {', '.join(map(repr, missing))} of graph {dataflow.name!r}")
    ordered = {}
    for source in dataflow.sources:
        payloads = list(inputs[source.name])
        if source.time.reads_payloads and source.time.late == "error" and not source.time.allowed:
            times = times_of(source.time, payloads)
            if times is not None:
                payloads = [payloads[at] for at in sorted(range(len(payloads)), key=times.__getitem__)]
        ordered[source.name] = payloads
    return ordered


def times_of(policy: EventTime, payloads: Sequence[Any]) -> list[int] | None:
    """The times of all payloads; None if a payload has none, which ends a run."""
    try:
        found = [policy.time_of(policy.time(payload)) for payload in payloads]
    except Exception:  # of a user's function; the run itself will raise and report it
        return None
    times = [time for time in found if time is not None]
    return times if len(times) == len(found) else None


def check(
    case: Case,
    expected: Output | None = None,
    *,
    plan: Plan | None = None,
    player: Player | None = None,
    simulation: type[Simulation] = Simulation,
) -> Result:
    """Run a case and compare it with the reference.

    Args:
        expected: the reference's output, if it is known and no source is live.
        plan: for the case's graph and `fused`, if it is known.
        player: makes the decisions; by default the case's schedule does.
        simulation: the class that runs the case.
    """
    player = player or Player(case.schedule)
    inputs, numbers = arrivals(case, player)
    cutting = [each.asks or (each.durable and case.schedule.deaths) for each in case.dataflow.operators]
    if simulation is Simulation and any(cutting):
        simulation, plan = InTurn, None
    run = simulation(case.dataflow, inputs, player, numbers=numbers, plan=plan, **case.schedule.settings())
    outcome, failure = None, None
    try:
        outcome = run.run()
    except SettingsError:
        raise
    except DriftBug as bug:
        failure = Failure("a broken invariant", str(bug))
    except Exception as error:  # of a machine: users' functions cannot raise through one
        failure = Failure("an exception", f"{type(error).__name__}: {error}")
    handed = [(each.name, each.arrived) for each in run.handed] if case.schedule.live else None
    if expected is None:
        expected = reference(case, handed)
    released = outcome or SimulatedOutput(run.released, run.barrier.digest.hexdigest(), None, [], 0)
    output = Output(
        [ComparedItem(*row[1:]) for row in released.items()], released.digest, released.error, released.late
    )
    if failure is None:
        failure = _compared(expected, output) or _compared_merges(case, handed, expected)
    return Result(case, expected, output, outcome, player.made, failure, run, numbers, handed)


def arrivals(case: Case, player: Player) -> tuple[dict[str, list[Any]], dict[str, list[int]]]:
    """Each source's payloads in the order of their arrival, and their indices in the case's input."""
    inputs: dict[str, list[Any]] = {}
    numbers: dict[str, list[int]] = {}
    for source in case.dataflow.sources:
        payloads = case.inputs[source.name]
        order = list(range(len(payloads)))
        if source.time.reads_payloads and source.time.may_reorder:
            times = times_of(source.time, payloads)
            # If an item has no position in the order, the arrival order would decide which error comes first.
            if times == sorted(times or [0]) and SourceMachine.of(source, 0).take(payloads).error is None:
                order = arrival_order(times, source.time.lateness, player, source.name)
        inputs[source.name] = [payloads[at] for at in order]
        numbers[source.name] = order
    return inputs, numbers


def reference(case: Case, handed: Sequence[tuple[str, Arrived]] | None = None) -> Output:
    """The right output; `handed` is needed if a clock had an influence on the sources' items."""
    answers = reference_answers(case.dataflow)
    return reference_run(Reference(case.dataflow, answers=answers), case, handed, END_OF_TIME)


def reference_run(run: Reference, case: Case, handed: Sequence[tuple[str, Arrived]] | None, below: bytes) -> Output:
    """The right output, by a given interpreter."""
    dataflow = case.dataflow
    error: Exception | None = None
    arrived_from = list(handed or ())
    if handed is None:
        for rank, source in enumerate(dataflow.sources):
            machine = SourceMachine.of(source, rank)
            arrived = machine.take(list(case.inputs[source.name]))
            arrived_from.append((source.name, arrived))
            if arrived.error is None:
                arrived_from.append((source.name, machine.settle()))
    below_by_source = {source.name: END_OF_TIME for source in dataflow.sources}
    ranks = {name: rank for rank, name in enumerate(below_by_source)}
    failed = [(each.heartbeat, ranks[name], each) for name, each in arrived_from if each.error is not None]
    if failed:
        below, rank, last = min(failed, key=itemgetter(0, 1))
        error = last.error
        below_by_source[dataflow.sources[rank].name] = below
    late = late_until((each for _, arrived in arrived_from for each in arrived.late), below_by_source)
    for name, arrived in arrived_from:
        for meta, payload in zip(arrived.metas, arrived.payloads):
            run.push(name, meta, payload)
    rows: list[ComparedItem] = []
    digest = Digest()
    try:
        for sink, meta, payload in run.pop(below):
            try:
                digest.add(Metas([meta]), [payload])
            except NoCanonicalForm as none:
                raise no_form_error(feeding_step(dataflow, sink), none, payload, meta) from None
            rows.append(ComparedItem(meta, payload, sink))
    except DriftError as raised:
        error = raised
    return Output(rows, digest.hexdigest(), error, late_before(late, error))


def _compared(expected: Output, got: Output) -> Failure | None:
    """The first difference that matters: after a loss the output need only be a prefix of the reference's."""
    lost = isinstance(got.error, ProcessError)
    rows = expected.rows[: len(got.rows)] if lost else expected.rows
    if len(rows) != len(got.rows) or (not lost and expected.digest != got.digest) or not equal_rows(rows, got.rows):
        return _first_difference(rows, got.rows, expected.digest != got.digest)
    if lost:
        return None
    if _shown(expected.error) != _shown(got.error):
        errors = f"the reference ends with {_error_text(expected.error)}, the run with {_error_text(got.error)}"
        return Failure("another error", errors)
    return _compared_late(expected.late, got.late)


def _compared_late(expected: Sequence[Late], got: Sequence[Late]) -> Failure | None:
    """The first late item that differs."""
    left, right = ([(*each[::2], each.heartbeat, form_of(each.payload)) for each in late] for late in (expected, got))
    if left == right:
        return None
    at = next((at for at, pair in enumerate(zip(left, right)) if pair[0] != pair[1]), min(len(left), len(right)))
    texts = [repr(late[at]) if at < len(late) else "none" for late in (expected, got)]
    return Failure("other late items", f"late item {at} is {texts[1]}, and with the reference {texts[0]}")


def _compared_merges(case: Case, handed: Sequence[tuple[str, Arrived]] | None, expected: Output) -> Failure | None:
    """The first item that hangs on how an aggregate's parts are merged by a function of the user's."""
    dataflow = unmerged(case.dataflow)
    if dataflow is None or expected.error is not None:
        return None
    one_by_one = reference(replace(case, dataflow=dataflow), handed)
    for at, (got, without) in enumerate(zip(expected.rows, one_by_one.rows)):
        if not are_close(got.payload, without.payload):
            message = (
                "a function that merges parts of windows does not give what adding their payloads one by one gives, so "
                "the output hangs on how windows share slices: leave merge= out, or mend it (it gets the accumulators "
                "of two parts, one after the other)"
            )
            return Failure("a wrong merge", message, at, without, got)
    return None


def equal_rows(left: Sequence[ComparedItem], right: Sequence[ComparedItem]) -> bool:
    return [(row.meta, row.sink) for row in left] == [(row.meta, row.sink) for row in right] and canonical_each(
        [row.payload for row in left]
    ) == canonical_each([row.payload for row in right])


def _first_difference(expected: Sequence[ComparedItem], got: Sequence[ComparedItem], digests_differ: bool) -> Failure:
    for at in range(max(len(expected), len(got))):
        left = expected[at] if at < len(expected) else None
        right = got[at] if at < len(got) else None
        if left is None or right is None or not equal_rows([left], [right]):
            return Failure("another output", f"item {at} of the output differs", at, left, right)
    return Failure("another output", "the items are equal, and the digests are not" if digests_differ else "")


_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


def _shown(error: Exception | None) -> tuple[str, str, bytes, str] | None:
    if error is None:
        return None
    step, meta = (error.step, error.meta) if isinstance(error, StepError) else ("", b"")
    return type(error).__name__, step, meta, _ADDRESS.sub("0x", str(error))  # of objects that are shown


def _error_text(error: Exception | None) -> str:
    return "no error" if error is None else f"{type(error).__name__}: {error}"
