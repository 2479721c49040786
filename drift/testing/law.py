"""`deterministic`: a Hypothesis test that runs a dataflow under drawn schedules and compares it with the reference.

Invariant: the result is a Hypothesis test like any other: settings, profiles, seeds, explicit examples, the database
and `reproduce_failure` work as usual.

Why: `given` makes the test proper, from a function with one argument for each source and one for the schedule. A thin
function with the same signature and marks calls it, because two things follow the last example: the failed case is
shrunk and reported, and required states are checked.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

from drift.calling.asks import calls_of
from drift.machines.plan import Plan
from drift.purity import PurityCheck
from drift.streams import Graph
from drift.testing.calls import TestAnswers, answered
from drift.testing.case import case_lines, short_path, target_of_graph, write_report
from drift.testing.check import (
    OF_TEST,
    Case,
    Failure,
    NotDeterministic,
    Output,
    Result,
    check,
    in_order,
    may_idle,
    policies_of,
    reference,
)
from drift.testing.hypothesis import (
    Phase,
    complete_examples,
    example,
    given,
    hand_on,
    know_by,
    settings,
    settings_of,
    st,
    use_settings,
)
from drift.testing.purity import check_purity, impure_result, together
from drift.testing.schedule import Schedule
from drift.testing.seeds import Seeds, drawn
from drift.testing.shrink import shrunk
from drift.testing.sometimes import reaching
from drift.testing.strategies import answers_of, schedules
from drift_graph.errors import ImpureStep, InputError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.item import Item
from drift_graph.lateness import Late

#: Each example's input is run under several schedules, more for smaller inputs, so that shrinking does not depend on
#: one of them. Their number depends on the input alone: an example that failed fails when Hypothesis tries it again.
_SCHEDULES_MIN, _SCHEDULES_MAX, _ITEMS_RUN = 3, 16, 48
#: How many cases are drawn whose calls are checked together, before the first example.
_FIRST_CASES = 8
_SCHEDULE = "schedule"
_CALLS = "calls"


class Checked:
    """A run that agrees with the reference, for a test's own assertions.

    Attributes:
        output: the released items, as `drift.run` gives them.
        inputs: by source, in the order of their times.
        schedule: of the run.
        error: the error that ended the run; only if the test allows errors.
        late: items that a time policy diverted.
        tombstones: how many items were taken back before release.
        digest: of the output.
    """

    def __init__(self, result: Result) -> None:
        assert result.outcome is not None
        self.result = result
        self.output: list[Item[Any]] = result.output.items()
        self.inputs = result.case.inputs
        self.schedule = in_full(result)
        self.error = result.output.error
        self.late: list[Late] = result.outcome.late
        self.tombstones = result.outcome.tombstones
        self.digest = result.output.digest

    @property
    def payloads(self) -> list[Any]:
        """The payloads of the output, all sinks together."""
        return [item.payload for item in self.output]

    def __repr__(self) -> str:
        return f"<run of {self.result.case.dataflow.name!r}: {len(self.output)} items, {self.schedule!r}>"


def deterministic(
    graph: Graph | Dataflow,
    /,
    *,
    inputs: Mapping[str, st.SearchStrategy[Any]] | None = None,
    schedule: st.SearchStrategy[Schedule] | None = None,
    live: Collection[str] | None = None,
    errors: bool = False,
    check_purity: bool = True,
    calls: Mapping[str, st.SearchStrategy[Any] | Callable[..., Any]] | None = None,
    **sources: st.SearchStrategy[Any],
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test: for any input and any schedule, the output is the reference's, byte for byte.

    The decorated function may take `run`, a `Checked`, for its own assertions, and any fixtures and parameters of its
    test runner.

    Args:
        graph: the dataflow.
        sources: for each source, by its name, a strategy for a list of payloads. The payloads of a source in event time
            are sorted by time, and arrive in any order that its lateness allows.
        inputs: the same for sources whose names are no identifiers, or are names of options.
        schedule: a strategy that replaces `schedules()`.
        live: sources that are live in production: in some runs they have a clock, and no items for a while. By default
            the sources whose time policy has `idle_after_ms`.
        errors: whether a run may end with an error that the reference has, too; otherwise that error is raised.
        check_purity: whether each step is called again in two processes with other hash seeds; a different result is an
            ImpureStep.
        calls: for each call of the graph a strategy for its answers, or a function that is asked in its place. Answers
            come in any order, late, and when the caller dies; if errors are allowed or diverted, drawn calls fail too.

    Raises:
        SettingsError: a call has no answers; a source is missing, or there is no such source.
    """
    dataflow = graph.build() if isinstance(graph, Graph) else graph
    if not isinstance(dataflow, Dataflow):
        raise SettingsError(f"deterministic takes a drift.Graph, not {dataflow!r:.80}")
    strategies = {**sources, **(inputs or {})}
    in_order(dataflow, dict.fromkeys(strategies, ()))  # refuses what does not fit
    for name, strategy in strategies.items():
        if not isinstance(strategy, st.SearchStrategy):
            raise SettingsError(f"source {name!r} is given {strategy!r:.80}, which is no Hypothesis strategy")
    if live is None:
        live = [name for name, policy in policies_of(dataflow).items() if may_idle(policy)]
    names = sys._getframe(1).f_globals
    maker = _Test(
        dataflow,
        strategies,
        schedules(live=tuple(live)) if schedule is None else schedule,
        errors,
        check_purity,
        lambda: target_of_graph(graph, names),
        calls or {},
    )
    return maker.made


class Tested(NamedTuple):
    """The content of a decorated test, for `drift simulate` and for case files.

    Attributes:
        strategies: of each source.
        calls: what is asked in place of each call: a strategy for answers, or a function.
        errors: whether a run may end with an error, as when a call fails.
        target: of the graph.
        assertions: runs those of the test on a run that agrees with the reference; None if only a test runner can.
    """

    dataflow: Dataflow
    strategies: Mapping[str, st.SearchStrategy[Any]]
    calls: Mapping[str, st.SearchStrategy[Any] | Callable[..., Any]]
    errors: bool
    target: Callable[[], str]
    assertions: Callable[[Result], Failure | None] | None


class _Test:
    """Makes the Hypothesis test of a decorated function."""

    def __init__(
        self,
        dataflow: Dataflow,
        strategies: Mapping[str, st.SearchStrategy[Any]],
        schedule: st.SearchStrategy[Schedule],
        errors: bool,
        check_purity: bool,
        target: Callable[[], str],
        calls: Mapping[str, st.SearchStrategy[Any] | Callable[..., Any]],
    ) -> None:
        self._dataflow = dataflow
        drawn = answers_of(dataflow, calls, errors=errors)
        self._of_calls = calls
        self._calls = st.fixed_dictionaries(drawn) if drawn else None
        self._arguments = {name: _argument(name) for name in strategies}
        if _SCHEDULE in self._arguments.values():
            raise SettingsError(f"a source that is called {_SCHEDULE!r} goes into inputs={{...}} under another name")
        self._strategies = strategies
        self._schedule = schedule
        self._errors = errors
        self._check_purity = check_purity
        self._plans: dict[bool, Plan] = {}  # fused, and not
        self._purity: PurityCheck | None = None  # while the test runs
        self._impure: tuple[ImpureStep, Case] | None = None  # the last one found
        self._target = target

    def made(self, body: Callable[..., Any]) -> Callable[..., None]:
        """The test of a function."""
        _require_plain(body)
        signature = inspect.signature(body)
        takes_run = "run" in signature.parameters
        test_target = _target_of_test(body)
        own = [each for name, each in signature.parameters.items() if name != "run"]
        for each in own:
            if each.name in (*self._arguments.values(), _SCHEDULE):
                raise SettingsError(f"argument {each.name!r} of {body.__name__} is a source's name, or {_SCHEDULE}")

        def checked(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            inputs_drawn = {name: kwargs.pop(argument) for name, argument in self._arguments.items()}
            for name, payloads in inputs_drawn.items():
                if not isinstance(payloads, Iterable):
                    raise SettingsError(
                        f"source {name!r} was given {payloads!r:.80}; its strategy is to draw lists of payloads: "
                        f"st.lists(...)"
                    )
            result = self._checked(inputs_drawn, kwargs.pop(_SCHEDULE), kwargs.pop(_CALLS, {}))
            try:
                run_assertions(result, *args, **kwargs)
            except Exception as error:
                error.drift_failed = result, test_target  # type: ignore[attr-defined]
                raise

        def run_assertions(result: Result, *args: Any, **kwargs: Any) -> None:
            """The test's own assertions on a run that agrees with the reference."""
            __tracebackhide__ = True
            self._allow(result)
            if takes_run:
                kwargs["run"] = Checked(result)
            body(*args, **kwargs)

        def assertions(result: Result) -> Failure | None:
            try:
                run_assertions(result)
            except Exception as error:
                return _failure(error)
            return None

        functools.update_wrapper(checked, body)
        know_by(checked, f"{body.__module__}.{body.__qualname__}")
        of_calls = {_CALLS: self._calls} if self._calls is not None else {}
        drawn = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            for name in (*self._arguments.values(), _SCHEDULE, *of_calls)
        ]
        ends = [each for each in own if each.kind is inspect.Parameter.VAR_KEYWORD]
        starts = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        del checked.__wrapped__  # type: ignore[attr-defined]
        checked.__signature__ = signature.replace(parameters=[*starts, *drawn, *ends])  # type: ignore[attr-defined]
        checked.__annotations__ = {}
        strategies = {self._arguments[name]: strategy for name, strategy in self._strategies.items()}
        shown = _as_if_in(body, checked)
        tested = Tested(
            self._dataflow, self._strategies, self._of_calls, self._errors, self._target, None if own else assertions
        )
        return self._called(given(**strategies, **{_SCHEDULE: self._schedule}, **of_calls)(shown), checked, tested)

    def _called(self, test: Callable[..., None], checked: Callable[..., None], tested: Tested) -> Callable[..., None]:
        """The function that test runners call: the Hypothesis test, and the steps after its last example."""

        @functools.wraps(test)
        def called(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            hand_on(called, test)
            complete_examples(test, _in_order)
            use_settings(test, _fitted(settings_of(called)))
            with reaching(), self._purity_checked():
                try:
                    found = self._first_impure() if Phase.generate in settings_of(called).phases else None
                    test(*args, **kwargs)  # its examples find a smaller case, if they find one
                    self._run_seeds(checked, args, kwargs)
                    if found is not None:
                        self._impure = found
                        raise found[0]
                except BaseException as error:
                    self._report(error)
                    raise

        called.hypothesis = test.hypothesis  # type: ignore[attr-defined]
        called.drift_test = tested  # type: ignore[attr-defined]
        return called

    def _run_seeds(self, checked: Callable[..., None], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Run the seeds that DRIFT_SEEDS names: a number of seeds from 0 on, or FIRST:END."""
        __tracebackhide__ = True
        requested = os.environ.get("DRIFT_SEEDS")
        if not requested:
            return
        try:
            numbers = range(*map(int, requested.split(":")))
        except (TypeError, ValueError):
            raise SettingsError(f"DRIFT_SEEDS={requested!r} is neither a number nor FIRST:END") from None
        seeds = Seeds(self._dataflow, self._strategies, calls=self._of_calls, errors=self._errors)
        for seed in numbers:
            case = seeds.case(seed)
            inputs: dict[str, Any] = {self._arguments[name]: payloads for name, payloads in case.inputs.items()}
            if self._calls is not None:
                inputs[_CALLS] = {name: asks.function for name, asks in calls_of(case.dataflow).items()}
            try:
                checked(*args, **kwargs, **inputs, **{_SCHEDULE: case.schedule})
            except BaseException as error:
                error.add_note(f"at seed {seed}: drift simulate FILE:TEST --seed {seed}")
                raise

    def _checked(
        self, inputs_drawn: Mapping[str, Sequence[Any]], schedule: Schedule, calls: Mapping[str, TestAnswers]
    ) -> Result:
        __tracebackhide__ = True
        dataflow = answered(self._dataflow, calls)
        ordered = in_order(self._dataflow, {name: list(payloads) for name, payloads in inputs_drawn.items()})
        case = Case(dataflow, ordered, schedule)
        self._purity_of(case, [case])
        expected: Output | None = None if schedule.live else reference(case)
        first: Result | None = None
        plan = self._plan(schedule.fused) if not calls else None
        several = min(max(_ITEMS_RUN // (case.item_count + 1), _SCHEDULES_MIN), _SCHEDULES_MAX)
        for more in range(several if schedule.noise else 1):
            noise = schedule.noise + more * 2**32 if schedule.noise else 0
            result = check(replace(case, schedule=replace(schedule, noise=noise)), expected, plan=plan)
            if result.failure is not None:
                raise NotDeterministic(f"{result.failure.what}: {result.failure.message}", result)
            first = first or result
        assert first is not None
        return first

    def _plan(self, fused: bool) -> Plan:
        """The plan, made once for all runs, since that takes a tenth of a small run."""
        if fused not in self._plans:
            self._plans[fused] = Plan(self._dataflow, fused=fused)
        return self._plans[fused]

    def _allow(self, result: Result) -> None:
        """Raises DriftError: the run ended with it, as the reference does, and the test does not allow errors."""
        error = result.output.error
        if error is not None and not self._errors and not (result.case.schedule.live and isinstance(error, InputError)):
            raise error

    @contextmanager
    def _purity_checked(self) -> Iterator[None]:
        """Run the processes that call steps again, for one run of the test."""
        if not self._check_purity:
            yield
            return
        with PurityCheck(self._dataflow) as purity:
            purity.start()  # or the first example would take longer than examples may
            self._purity = purity
            try:
                yield
            finally:
                self._purity = None

    def _first_impure(self) -> tuple[ImpureStep, Case] | None:
        """What is found where the purity of some cases is checked at once, before the examples, which begin with the
        smallest.

        If the processes got one small example after the other, a function that numbers what it sees would number it
        alike in all of them.
        """
        if self._purity is None:
            return None
        strategies = {**self._strategies, _CALLS: self._calls or st.just({})}
        cases = []
        for values in drawn(st.fixed_dictionaries(strategies), 0, _FIRST_CASES):
            calls = values.pop(_CALLS)
            if all(isinstance(payloads, Iterable) for payloads in values.values()):  # else an example says so
                inputs = in_order(self._dataflow, {name: list(payloads) for name, payloads in values.items()})
                cases.append(Case(answered(self._dataflow, calls), inputs, Schedule()))
        try:
            if cases:
                self._purity_of(together(cases), cases)
        except ImpureStep:
            return self._impure
        return None

    def _purity_of(self, case: Case, cases: Sequence[Case]) -> None:
        """
        Args:
            case: in which a step is reported that is not pure.
        """
        __tracebackhide__ = True
        if self._purity is not None:
            try:
                check_purity(self._purity, *cases)
            except ImpureStep as impure:
                self._impure = impure, case
                raise impure.with_traceback(None) from None

    def _report(self, error: BaseException) -> None:
        """Shrink the failed case, and replace the error's text by the report."""
        for each in getattr(error, "exceptions", (error,)):
            if isinstance(each, NotDeterministic) and each.path is None and each.result is not None:
                result = shrunk(each.result, payloads=False)
                result.case = replace(result.case, target=self._target())
                each.result = result
                message, each.path = write_report(result)
                each.args = (message,)
                each.drift_case = each.path  # type: ignore[attr-defined]
            elif isinstance(each, ImpureStep) and self._impure is not None and each is self._impure[0]:
                case = replace(self._impure[1], schedule=Schedule(), target=self._target())
                path, lines = case_lines(impure_result(case, each))
                each.add_note("\n".join(lines))
                each.drift_case = path  # type: ignore[attr-defined]
            elif hasattr(each, "drift_failed"):
                result, test = each.drift_failed
                case = replace(result.case, schedule=in_full(result), target=self._target(), test=test)
                path, lines = case_lines(replace(result, case=case, failure=_failure(each)))
                each.add_note("\n".join(lines))
                each.drift_case = path  # type: ignore[union-attr]
            elif hasattr(each, "exceptions"):
                self._report(each)


def in_full(result: Result) -> Schedule:
    """The schedule of a run as explicit deviations, without noise."""
    return replace(result.case.schedule, deviations=tuple(result.made.values()), noise=0)


def _failure(error: BaseException) -> Failure:
    text = str(error) or next((each.line or "" for each in reversed(extract_tb(error.__traceback__))), "")
    return Failure(OF_TEST, f"{type(error).__name__}: {text}")  # outside pytest an assert says nothing


def _target_of_test(body: Callable[..., Any]) -> str:
    """ "file.py:name" of a test; "" if it is not at the top of a module."""
    file = getattr(body, "__globals__", {}).get("__file__")
    name = getattr(body, "__qualname__", ".")
    return f"{short_path(Path(file))}:{name}" if file and name.isidentifier() else ""


def _require_plain(body: Callable[..., Any]) -> None:
    """Refuse any other kind of function: its body would not run, and the test would pass."""
    kind = (
        "a class; put the decorator on its tests"
        if inspect.isclass(body)
        else "async; write asyncio.run(...) in a plain test"
        if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)
        else "a generator; leave out its yield"
        if inspect.isgeneratorfunction(body)
        else ""
    )
    if kind:
        raise SettingsError(f"{body.__name__} under @deterministic is {kind}")


def _as_if_in(body: Callable[..., Any], checked: Callable[..., None]) -> Callable[..., None]:
    """A function that calls `checked`, with the file and line of `body`.

    Hypothesis gives its own frame the file and line of the function under test, and all other frames are hidden. So a
    test runner shows a failure at the line of the user's test, not at a line of this library.
    """

    def shown(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        checked(*args, **kwargs)

    functools.update_wrapper(shown, checked)
    shown.__signature__ = inspect.signature(checked)  # type: ignore[attr-defined]
    code = getattr(body, "__code__", None)
    if code is not None:
        shown.__code__ = shown.__code__.replace(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno)
    del shown.__wrapped__  # type: ignore[attr-defined]
    return shown


#: Of the examples that Hypothesis is set to draw.
_PROFILES = {"quick": 0.1, "usual": 1.0, "long": 20.0}


def _fitted(own: settings) -> settings:
    """The settings, with as many examples as DRIFT_PROFILE says, and no deadline unless the test sets one.

    An example is a dozen simulated runs: its duration depends on the computer more than on the graph.
    """
    profile = os.environ.get("DRIFT_PROFILE") or "usual"
    if profile not in _PROFILES:
        raise SettingsError(f"DRIFT_PROFILE={profile!r}; there are {', '.join(_PROFILES)}")
    many = max(round(own.max_examples * _PROFILES[profile]), 1)
    deadline = None if own.deadline == settings().deadline else own.deadline
    return settings(own, max_examples=many, deadline=deadline)


def _argument(name: str) -> str:
    """The argument's name for a source."""
    made = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
    return made if made.isidentifier() and not keyword.iskeyword(made) else f"source_{made}"


def _in_order(arguments: dict[str, Any]) -> dict[str, Any]:
    """An explicit example that names only inputs runs in order."""
    return {_SCHEDULE: Schedule()} if arguments and _SCHEDULE not in arguments else {}


__all__ = ["Checked", "NotDeterministic", "deterministic", "example"]
