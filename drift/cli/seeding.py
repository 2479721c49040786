"""A process that runs seeds of a graph, for `drift simulate`.

Invariant: the result of a seed depends on the seed, the graph and the input, and not on this process: the parent fixes
its hash seed, and the seeds that are checked for purity are chosen by their numbers.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exc
from typing import TYPE_CHECKING, Any

from drift import load
from drift.calling.asks import calls_of
from drift.cli.specs import by_name, source_of
from drift.engines.surroundings import Surroundings
from drift.parent import Parent
from drift.purity import PurityCheck
from drift.sources.base import as_rows
from drift.testing.calls import answered
from drift.testing.case import as_json, case_lines, check_case, load_case, not_failing, write_report
from drift.testing.check import OF_TEST, Case, Result, in_order, reference
from drift.testing.purity import check_purity, impure_result, smallest, together
from drift.testing.schedule import Schedule
from drift.testing.seeds import ITEMS_MAX, Seeds, counts, drawn
from drift.testing.shrink import shrunk
from drift.urls import without_secrets
from drift_graph.errors import DriftBug, DriftError, ImpureStep, InputError, SettingsError, StepError
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.payloads import AsRows

if TYPE_CHECKING:
    from drift.testing.law import Tested

#: Which seeds are also checked for purity: the first ones, and every so many-th.
_PURITY_FIRST = 200
_PURITY_EVERY = 10
#: Of how many seeds from one on the calls are checked together.
_PURITY_TOGETHER = 4
_TALLY_INTERVAL_S = 0.2


@dataclass(frozen=True)
class Setup:
    """The first message to a process.

    Attributes:
        environment: the environment of the calling process.
        target: FILE:NAME of a graph, or of a test under `deterministic`; "" for a case that names its own.
        sources: where payloads come from, [NAME=]SPEC; those of other sources are generated.
        calls: what calls are asked, [NAME=]FILE:FUNCTION; others are asked what the test says, or their `stub`.
    """

    environment: Surroundings
    target: str
    sources: tuple[str, ...]
    items_max: int
    losses: bool
    purity: bool
    cases: str | None
    deaths: bool = False
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ready:
    """The answer to a Setup: the graph's name, and a description of each source's input."""

    graph: str
    inputs: dict[str, str]
    is_drawn: bool


@dataclass
class Tally:
    """Counts of the work since the last Tally."""

    seeds: int = 0
    items: int = 0
    checked_calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    step_errors: int = 0
    first_step_error: tuple[int, str] | None = None

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.items += other.items
        self.checked_calls += other.checked_calls
        self.faults += other.faults
        self.step_errors += other.step_errors
        if other.first_step_error and (not self.first_step_error or other.first_step_error < self.first_step_error):
            self.first_step_error = other.first_step_error


@dataclass(frozen=True)
class Failed:
    """A seed whose run differs from the reference, or whose steps are not pure; with the first finding."""

    seed: int
    found: str


@dataclass(frozen=True)
class SeedReport:
    """One run, in words.

    Attributes:
        what: of the failure; "" where there is none, "an impure step" for an ImpureStep.
        text: the report, or what the run was like.
        path: of the case file.
        case: as it is in that file.
        step_error: an ImpureStep's step and location.
    """

    what: str
    text: str
    path: str | None = None
    case: dict[str, Any] | None = None
    step_error: tuple[str, str] | None = None


class Work:
    """Answers the requests: ("run", start, stop), with tallies, and then either the number of the seed after them or a
    Failed; ("seed", number) and ("case", path), with a SeedReport.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        dataflow, test, target = _loaded(setup.target)
        specs = by_name("--source", setup.sources, "source", [source.name for source in dataflow.sources])
        calls, errors = _calls(dataflow, test, setup.calls), test is not None and test.errors
        strategies_of_test = test.strategies if test is not None else {}
        strategies, self.described = _inputs(_sampled(dataflow, calls), strategies_of_test, specs)
        self.seeds = Seeds(
            dataflow, strategies, losses=setup.losses, deaths=setup.deaths, items_max=setup.items_max, calls=calls,
            errors=errors, target=target,
        )  # fmt: skip
        self.is_drawn = any(hasattr(each, "flatmap") for each in strategies.values())
        self._purity = PurityCheck(dataflow) if setup.purity else None

    def check(self, seed: int, *, purity: bool) -> Result:
        """The run of a seed. Raises ImpureStep: a step is not pure, if that is checked."""
        if purity and self._purity is not None:
            check_purity(self._purity, *self._cases(seed))
        return self.seeds.run(seed)

    def _cases(self, seed: int) -> list[Case]:
        """The cases of a seed and the next ones, whose calls are checked together: one alone may have one payload."""
        return [self.seeds.case(seed + more) for more in range(_PURITY_TOGETHER)]

    def run(self, start: int, stop: int, caller: Parent) -> None:
        tally, sent_s = Tally(), time.monotonic()
        for seed in range(start, stop):
            purity = seed < _PURITY_FIRST or seed % _PURITY_EVERY == 0
            before = self._purity.checked if self._purity is not None else 0
            try:
                result = self.check(seed, purity=purity)
                found = result.failure.message if result.failure is not None else ""
            except ImpureStep as error:
                found = str(error)
            if found:
                caller.send(tally)
                caller.send(Failed(seed, found))
                return
            tally.seeds += 1
            tally.items += result.case.item_count
            tally.checked_calls += self._purity.checked - before if self._purity is not None else 0
            tally.faults += counts(result)
            if isinstance(result.expected.error, (StepError, InputError)):
                tally.step_errors += 1
                tally.first_step_error = tally.first_step_error or (seed, str(result.expected.error))
            if time.monotonic() - sent_s > _TALLY_INTERVAL_S:
                caller.send(tally)
                tally, sent_s = Tally(), time.monotonic()
        caller.send(tally)
        caller.send(stop)

    def run_seed(self, seed: int) -> SeedReport:
        try:
            result = self.check(seed, purity=True)
        except ImpureStep as error:
            return self._smallest_impure(together(self._cases(seed)), error)
        return _seed_report(result, self.setup.cases)

    def _smallest_impure(self, case: Case, error: ImpureStep) -> SeedReport:
        """Take items away as long as the same step is found impure."""
        assert self._purity is not None
        case, error = smallest(self._purity, case, error)
        return _impure_report(case, error, self.setup.cases)


def _seed_report(result: Result, cases: str | None) -> SeedReport:
    if result.failure is None:
        case = result.case
        made = ", ".join(f"{count} {name}" for name, count in sorted(counts(result).items())) or "nothing"
        ended = f"; it ends with {result.output.error}" if result.output.error is not None else ""
        return SeedReport("", f"{case.item_count} items, {case.schedule!r}; not in order: {made}{ended}")
    small = shrunk(result)
    return _reported(small, *write_report(small, cases))


def _reported(result: Result, text: str, path: Path | None, step_error: tuple[str, str] | None = None) -> SeedReport:
    assert result.failure is not None
    has_file = path is not None
    return SeedReport(
        result.failure.what, text, str(path) if has_file else None, as_json(result) if has_file else None, step_error
    )


def _impure_report(case: Case, error: ImpureStep, cases: str | None) -> SeedReport:
    lines = [str(error), "", "the smallest input found"]
    for name, payloads in case.inputs.items():
        lines += [f"  {name}  {safe_text(repr, payload, 300)}" for payload in payloads] or [f"  {name}  (empty)"]
    result = impure_result(case, error)
    path, again = case_lines(result, cases)
    return _reported(result, "\n".join([*lines, "", *again]), path, (error.step, error.where))


def _run_case(setup: Setup, path: str) -> SeedReport:
    case = load_case(path, _loaded(setup.target)[0] if setup.target else None)
    if setup.purity:
        with PurityCheck(case.dataflow) as purity:
            try:
                check_purity(purity, case)
            except ImpureStep as error:
                return _impure_report(*smallest(purity, case, error), setup.cases)
    result = check_case(case)
    if result.failure is None:
        return SeedReport("", not_failing(case))
    if result.failure.what == OF_TEST:
        return SeedReport(OF_TEST, f"{case.test}: {result.failure.message}", path, as_json(result))
    small = shrunk(result, items=False)
    assert small.failure is not None
    text, again = write_report(small, setup.cases)
    return SeedReport(small.failure.what, text, str(again) if again else path, as_json(small) if again else None)


# What there is to run.


def _loaded(target: str) -> tuple[Dataflow, Tested | None, str]:
    """A graph, the test that a target names, and the target that names the graph."""
    test: Tested | None = getattr(load.load_object(target), "drift_test", None)
    if test is None:
        return load.load_dataflow(target), None, target
    return test.dataflow, test, test.target()


def _calls(dataflow: Dataflow, test: Tested | None, specs: tuple[str, ...]) -> dict[str, Any]:
    """For each call a function, or a strategy for its answers. Raises SettingsError: a call has neither."""
    known = calls_of(dataflow)
    found: dict[str, Any] = {name: asks.stub for name, asks in known.items() if asks.stub is not None}
    found |= test.calls if test is not None else {}
    for name, spec in by_name("--calls", specs, "call", list(known)).items():
        found[name] = load.load_object(spec)
        if not callable(found[name]):
            raise SettingsError(f"--calls {name}={spec} is {found[name]!r:.80}, no function; name one, FILE:FUNCTION")
    for name in known:
        if name not in found:
            raise SettingsError(
                f"graph {dataflow.name!r} has a call {name!r}, and a simulation asks nothing outside: say what is "
                f"asked in its place, --calls {name}=FILE:FUNCTION, declare call(..., stub=), or name a test under "
                f"@drift.testing.deterministic, whose calls= has its answers"
            )
    return found


def _sampled(dataflow: Dataflow, calls: Mapping[str, Any]) -> Dataflow:
    """The graph with some of the answers, to see which payloads suit it."""
    if not calls:
        return dataflow
    from drift.testing.hypothesis import st
    from drift.testing.strategies import answers_of

    (some,) = drawn(st.fixed_dictionaries(answers_of(dataflow, calls, errors=False)), 0, 1)
    return answered(dataflow, some)


def _inputs(
    dataflow: Dataflow, strategies_of_test: Mapping[str, Any], specs: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """For each source payloads or a strategy, and that in words."""
    inputs: dict[str, Any] = {}
    described: dict[str, str] = {}
    for source in dataflow.sources:
        name = source.name
        if name in specs:
            inputs[name] = _all_payloads(specs[name], source.rows)
            described[name] = f"chunks of {without_secrets(specs[name])} ({len(inputs[name]):,} items)"
        elif name in strategies_of_test:
            inputs[name] = strategies_of_test[name]
            described[name] = "the test's strategy"
        else:
            kind, inputs[name] = _generated(dataflow, name)
            described[name] = f"generated, {kind}"
    return inputs, described


def _all_payloads(spec: str, rows: AsRows | None) -> list[Any]:
    source = as_rows(source_of(spec), rows)
    if source.live:
        raise SettingsError(f"--source {without_secrets(spec)} is live; seeds need a finite input, as a file")
    reader = source.open()
    payloads: list[Any] = []
    try:
        while (read := reader.read(65536)) is not None:
            payloads += read
    finally:
        reader.close()
    return payloads


_WORDS = ("to", "be", "or", "not", "b", "Be", "", "\u00e9")
#: Lines of no to four words.
_LINES = [
    " ".join(_WORDS[(start * (count + 1) + at) % len(_WORDS)] for at in range(count))
    for count in range(5)
    for start in range(len(_WORDS))
]


def _generated(dataflow: Dataflow, name: str) -> tuple[str, Any]:
    """The first kind of generated payloads for which no step raises and there is output."""
    from drift.testing.hypothesis import st

    text, number = st.sampled_from(_LINES), st.integers(-3, 12)
    kinds = {
        "lines of text": text,
        "ints": number,
        "floats": st.floats(allow_nan=False, allow_infinity=False, width=16),
        "(int, text)": st.tuples(number, text),
        "(text, int)": st.tuples(text, number),
        "(int, int)": st.tuples(number, number),
    }
    fitting: list[tuple[str, Any]] = []
    first_error: DriftError | None = None
    for kind, strategy in kinds.items():
        payloads = st.integers(0, ITEMS_MAX).flatmap(_lists_of(strategy))
        has_output = False
        for sample in drawn(payloads, 0, 20):
            inputs = in_order(dataflow, {source.name: [] for source in dataflow.sources} | {name: sample})
            output = reference(Case(dataflow, inputs, Schedule()))
            if output.error is not None:
                if first_error is None and isinstance(output.error, DriftError):
                    first_error = output.error
                break
            has_output = has_output or bool(output.rows)
        else:
            fitting.append((kind, payloads))
            if has_output:
                return kind, payloads
    if fitting:
        return fitting[0]
    raise SettingsError(
        f"no generated payloads suit source {name!r}: of {', '.join(kinds)} each makes a step raise. Say where they "
        f"come from: --source {name}=PATH, or name a test under @drift.testing.deterministic, which has strategies. "
        f"With lines of text\n{first_error}"
    )


def _lists_of(strategy: Any) -> Callable[[int], Any]:
    """Lists of a length: left to itself Hypothesis draws short ones."""
    from drift.testing.hypothesis import st

    return lambda length: st.lists(strategy, min_size=length, max_size=length)


def main() -> None:
    """Answer until the pipe ends."""
    caller = Parent(int(sys.argv[1]))
    setup: Setup = caller.receive()
    setup.environment.enter()
    try:
        work = Work(setup) if setup.target else None
    except BaseException as error:
        caller.send(error if isinstance(error, DriftError) else _unforeseen(error))
        return
    caller.send(Ready(work.seeds.dataflow.name, work.described, work.is_drawn) if work else Ready("", {}, False))
    while True:
        kind, *about = caller.receive()
        try:
            if kind == "case":
                caller.send(_run_case(setup, *about))
            elif work is not None and kind == "run":
                start, stop = about
                work.run(start, stop, caller)
            elif work is not None:
                caller.send(work.run_seed(*about))
        except DriftError as error:
            caller.send(error)
        except BaseException as error:
            caller.send(_unforeseen(error))


def _unforeseen(error: BaseException) -> DriftBug:
    """An unexpected error as a DriftBug, with its full traceback."""
    return DriftBug(f"{type(error).__name__}: {error}\nIn a process of drift simulate:\n{format_exc()}")
