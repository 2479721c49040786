"""The purity check: repeats calls of a graph's functions in other processes and reports differences.

Invariant: a call is impure if, on arguments with equal canonical bytes, its results have different canonical bytes in
some process. A call found impure stays so. (That it leaves its arguments as they are, every run looks at.)

Why: arguments travel as pickles, so a set among them is rebuilt under the other hash seed. Findings are stored by
arguments, since what depends on a clock or on random numbers need not differ every time. The second replica makes the
calls in reverse order, which reveals a function that numbers its calls.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import closing
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import cloudpickle

from drift.engines import shipping
from drift.purity import trials
from drift.purity.cause import cause_of, impure
from drift.purity.replica import Replica
from drift.purity.watch import Watched, Watching, shaped
from drift_graph.canonical import NoCanonicalForm, stored
from drift_graph.errors import DriftError, GraphError, ImpureStep
from drift_graph.functions import pass_interrupts
from drift_graph.graph import Dataflow
from drift_graph.policies import TimePolicy

#: The replicas' hash seeds are fixed, so that findings are repeatable. In five cases of six, the order of a set of two
#: of the words "a" to "z" differs in some of two such processes and a third.
_HASH_SEEDS = (1, 2)
_REMEMBERED_MAX = 200_000
#: If calls are checked at once, the second replica gets a function's calls in groups of two, four, eight, up to this
#: many.
_TURNED_MAX = 64


#: What replicas give of a call: the forms of two results, or None if the arguments cannot be made again.
_Answers = tuple["tuple[bytes | None, bytes | None] | None", ...]


class _Call(NamedTuple):
    """A call to be repeated."""

    watched: Watched
    packed: bytes
    arguments: bytes  # stored
    form: bytes | None
    result: Any  # or the exception


class PurityCheck:
    """Watches the functions of a graph.

    Two processes repeat calls; they start with the first call, and the second repeats them in reverse order.

    Args:
        dataflow: the graph.
        times: time policies by source, in place of those of the graph.
        first, every: the first calls and every n-th call of each function are checked.
        at_once: check each call when it is made, and by the second replica after some more; otherwise when `check` is
            called.

    Attributes:
        dataflow, times: the same, with watched functions; run these.
        checked, unchecked: calls that were compared, and those that could not be: their payloads cannot be pickled or
            have no canonical form.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        times: Mapping[str, TimePolicy] | None = None,
        *,
        first: int = 1,
        every: int = 1,
        at_once: bool = False,
    ) -> None:
        if shipping.importing:
            raise GraphError(
                "a module checks the purity of a graph while it is imported, and the processes of that check import it "
                "again; put the run under if __name__ == '__main__': or into a function"
            )
        self._at_once = at_once
        watching = Watching(dataflow, times or {}, self, first=first, every=every)
        self.dataflow, self.times = watching.dataflow, watching.times
        self._work = shipping.packed(dataflow, [each.subject for each in watching.functions])
        self._replicas: list[Replica] = []
        self._calls: list[_Call] = []
        # by function: the size of the second replica's next group, and its calls
        self._reversed: dict[int, tuple[int, list[_Call]]] = {}
        self._forms: dict[tuple[int, bytes], bytes | None] = {}
        self._found: dict[tuple[int, bytes], ImpureStep] = {}
        self.checked = 0
        self.unchecked = 0

    def __getstate__(self) -> dict[str, Any]:
        """For the processes of a run: each has replicas of its own."""
        return {**self.__dict__, "_replicas": [], "_calls": [], "_forms": {}, "_reversed": {}}

    def __enter__(self) -> PurityCheck:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the replicas now, and wait until they have loaded the functions.

        Raises:
            GraphError: they cannot load them.
        """
        replicas = self._started()
        for replica in replicas:
            replica.ask(("check", []))
        for replica in replicas:
            replica.answer()

    def close(self) -> None:
        """End the replicas; may be called twice."""
        replicas, self._replicas = self._replicas, []
        for replica in replicas:
            replica.close()

    def call(self, watched: Watched, arguments: tuple[Any, ...]) -> Any:
        """Call the function, and note the call to be repeated.

        Raises:
            ImpureStep: the function was found impure, now or before.
        """
        if watched.finding is not None:
            raise watched.finding
        packed, before = _packed(arguments), _form(arguments)
        if packed is None or before is None:
            self.unchecked += 1
            return watched.subject.function(*arguments)
        error: BaseException | None = None
        result: Any = None
        try:
            result = shaped(watched.subject.shape, watched.subject.function(*arguments))
        except BaseException as raised:
            pass_interrupts(raised)
            error = raised
        form = trials.form_of_error(error) if error else trials.form_of_result(watched.subject.shape, result)
        self._remember(_Call(watched, packed, before, form, error or result))
        if error is not None:
            raise error
        return result

    def check(self) -> None:
        """Repeat the calls since the last check.

        Raises:
            ImpureStep: the first of them that is not pure.
        """
        if not self._calls:
            return
        first, second = self._started()
        if not self._at_once:
            self._judge(self._calls, self._answers(self._calls, first, second))
        else:
            answers = self._answers(self._calls, first)
            self._judge(self._calls, answers)
            for call, (answer,) in zip(self._calls, answers):
                if answer is not None and call.form is not None:
                    self._turn(call, second)
        self._calls = []

    def _turn(self, call: _Call, second: Replica) -> None:
        """Collect calls of a function for the second replica, which gets them in groups, the last one first."""
        index = call.watched.index
        size, group = self._reversed.setdefault(index, (2, []))
        group.insert(0, call)
        if len(group) >= size:
            self._reversed[index] = min(2 * size, _TURNED_MAX), []
            self._judge(group, self._answers(group, second), counted=False)

    def _answers(self, calls: list[_Call], forward: Replica, backward: Replica | None = None) -> list[_Answers]:
        """Of each call what the replicas give; the second one begins at the end."""
        request = [(call.watched.index, call.packed) for call in calls]
        forward.ask(("check", request))
        if backward is None:
            return [(each,) for each in forward.answer()]
        backward.ask(("check", request[::-1]))
        return list(zip(forward.answer(), backward.answer()[::-1]))

    def _judge(self, calls: list[_Call], answers: list[_Answers], *, counted: bool = True) -> None:
        for call, found in zip(calls, answers):
            if None in found or call.form is None:
                self.unchecked += counted
                continue
            forms = {call.form, *chain.from_iterable(filter(None, found))} - {None}
            if len(forms) > 1 and _form(trials.rebuilt(call.packed)) != call.arguments:  # its pickle loses something
                self.unchecked += counted
                continue
            self.checked += counted
            if len(forms) > 1:
                self._fail(call.watched, call.arguments, self._explained(call))

    def _remember(self, call: _Call) -> None:
        key = call.watched.index, call.arguments
        if key in self._found:
            self._fail(call.watched, call.arguments, self._found[key])
        if key in self._forms:
            if self._forms[key] != call.form:
                self._fail(call.watched, call.arguments, self._explained(call))
            return
        if len(self._forms) >= _REMEMBERED_MAX:
            self._forms.clear()
        self._forms[key] = call.form
        self._calls.append(call)
        if not self._at_once:
            return
        try:
            self.check()
        except DriftError as error:
            error.ends_the_run = True  # and is no failure of the step, like a replica that died
            call.watched.finding = error
            raise

    def _explained(self, call: _Call) -> ImpureStep:
        subject, request = call.watched.subject, ("explain", (call.watched.index, call.packed))
        replicas = self._started()
        for replica in replicas:
            replica.ask(request)
        facts: list[trials.Facts] = [replica.answer() for replica in replicas]
        cause = cause_of(subject, call.result, facts)
        if not cause.likely:  # these have made the call before, as where each payload is taken once
            with closing(Replica(self._work, _HASH_SEEDS[0])) as fresh:
                fresh.ask(request)
                cause = cause_of(subject, call.result, [fresh.answer(), *facts])
        return impure(subject, call.packed, cause)

    def _fail(self, watched: Watched, arguments: bytes, error: ImpureStep) -> NoReturn:
        """The only place that raises: test tools identify failures by their lines."""
        self._found[watched.index, arguments] = error
        watched.finding = error if self._at_once else None
        for call in self._calls:  # have not been compared, or not all of them
            self._forms.pop((call.watched.index, call.arguments), None)
        self._calls = []
        raise error.with_traceback(None)

    def _started(self) -> list[Replica]:
        if not self._replicas:
            try:
                for seed in _HASH_SEEDS:
                    self._replicas.append(Replica(self._work, seed, is_later=seed == _HASH_SEEDS[1]))
            except BaseException:
                self.close()
                raise
        return self._replicas


def _packed(arguments: tuple[Any, ...]) -> bytes | None:
    """None if they cannot be pickled; `__reduce__` of a user's class may raise anything."""
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            packed: bytes = dumps(arguments)
            return packed
        except Exception:
            continue
    return None


def _form(arguments: tuple[Any, ...]) -> bytes | None:
    try:
        return stored(arguments)  # a source's dicts keep their order
    except NoCanonicalForm:
        return None
