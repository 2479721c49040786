"""A graph that changes between two runs with one state: what becomes of each step, and whether the run can resume.

Invariant: a run that resumes with a changed graph releases what the unchanged one would have released to every sink
whose items pass no changed step, at the same metas; a step that stays has its own states, and a new one begins at the
checkpoint, empty or with the states of a backfill.

Why: a meta holds the ranks of operators, so those that stay keep the ranks of then, and new ones rank above
(`Dataflow.with_ranks_of`); the order of items that pass only old ones is what it was. States belong to the grouping of
their name, and have the form that its step gives them. Timers stand at phases that count the steps with timers in front
of a step, so a step with state stays only behind the same steps with state. A step that was renamed, or whose states
are converted, gets all its states written anew with the checkpoint of the change, which either exists or does not; so
no state is converted twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from drift.records.changes import (
    compare,
    content_of,
    has_state,
    is_given_name,
    is_known_by_name,
    matched,
    step_edges,
    steps_of,
)
from drift.records.code import print_of, with_step_names
from drift.records.fingerprint import Fingerprint, fingerprint
from drift.records.kinds import made_of, made_otherwise
from drift.state.checkpoint import DROPPED, Checkpoint
from drift_graph.errors import GraphError, SettingsError
from drift_graph.functions import name_of
from drift_graph.graph import Dataflow
from drift_graph.policies import TimePolicy
from drift_graph.ranks import reached

_ACCEPT = "pass changed_graph='accept' (--accept-changed-graph)"
_DROP = "to drop it, pass dropped="
_ANEW = "give it another name, and drop the old one"
_NUMBER = re.compile(r"-\d+$")
_Edges = dict[tuple[str, str, bool], None]
#: Forms of the states of steps that a user's function makes; the others are the library's own.
_USERS_FORMS = frozenset({"ScanStage", "StepStage", "ProcessStage"})


class Allowed(NamedTuple):
    """The changes that a user allows; see `Checkpoints`."""

    changed_code: bool = False
    changed_graph: bool = False
    dropped: Collection[str] = ()
    was: Mapping[str, str] = {}
    migrate: Mapping[str, Callable[[Any], Any]] = {}
    backfill: Any = None


class Move(NamedTuple):
    """A grouping whose states are written anew.

    Attributes:
        step: its step, for messages.
        name: its name now; "" if they are written to another store, and are no longer in this one.
        before: its name in the checkpoint.
        convert: gives the state of now for one of then; None if they stay as they are.
        is_timed: whether a stored state has timers beside it.
        origin: the segment of the state that has them, counted from 0; None for that of the store that is written.
    """

    step: str
    name: str
    before: str
    convert: Callable[[Any], Any] | None
    is_timed: bool
    origin: int | None = None


class Fate(NamedTuple):
    """What becomes of a step.

    Attributes:
        what: "kept", "new" or "dropped"; "gone", if it had neither state nor a sink.
        note: what is different about it; "" if nothing.
        refused: why the run cannot resume; "" if it can.
    """

    step: str
    what: Literal["kept", "new", "dropped", "gone"]
    note: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Growth:
    """A graph as it resumes from a checkpoint.

    Attributes:
        dataflow: the graph, with the ranks of the checkpoint's graph.
        steps: the form of each grouping with state, by name, and DROPPED for those that are gone.
        fates: of the steps: those of the graph in their order, then those that are gone.
        new_sinks: names of the sinks that the checkpoint's graph did not have.
        is_changed: whether the graph is another one, and not only functions of it.
        code: the functions that changed, in words.
        differences: all that changed, in words.
        moves: the groupings whose states are written anew.
        names: of operators that were renamed, by their names in the checkpoint.
        later: by segments of the state, as in `Move`: the operators to which later items for those of then go.
        segments: of the state, if there, or in the graph, are several: where each is stored, and its checkpoint.
    """

    checkpoint: Checkpoint
    dataflow: Dataflow
    graph: Fingerprint
    steps: Mapping[str, str]
    fates: tuple[Fate, ...]
    new_sinks: tuple[str, ...]
    is_changed: bool
    code: str
    differences: str
    allowed: Allowed
    moves: tuple[Move, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[int | None, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    segments: Sequence[tuple[str | os.PathLike[str], Checkpoint]] = ()

    @property
    def new_operators(self) -> list[str]:
        new = {fate.step for fate in self.fates if fate.what == "new"}
        return [each.name for each in self.dataflow.operators if each.step in new]

    @property
    def is_filled(self) -> bool:
        """Whether new steps begin with the states of a backfill."""
        return self.allowed.backfill is not None and bool(self.new_operators)

    @property
    def begins_at(self) -> Checkpoint:
        """The checkpoint, without the states of the steps that are dropped."""
        before = self.checkpoint.steps
        return replace(self.checkpoint, steps={name: self.steps[name] for name in before})

    @property
    def converted(self) -> Mapping[str, str]:
        found = {move.step: _code_of(move.convert) for move in self.moves if move.convert is not None}
        return {**self.checkpoint.converted, **found}

    @property
    def needs_code(self) -> bool:
        """Whether functions have changed, and that is not allowed."""
        return bool(self.code) and not self.allowed.changed_code

    def check_begun(self, algorithm: str, where: str) -> None:
        """Check whether a segment can resume, where the last one has no checkpoint yet.

        Raises:
            GraphError, SettingsError: as `check`, or the graph has changed.
        """
        if self.is_changed:
            raise GraphError(
                f"{where} is of another graph ({self.differences}), whose output has no checkpoint yet; resume with "
                f"the graph as it was until it has one, or start a new run with another state="
            )
        self.check(algorithm, where)

    def check(self, algorithm: str, where: str) -> None:
        """Check whether the run can resume.

        Args:
            where: the store, for messages.

        Raises:
            GraphError: the changes are not allowed, or states do not fit.
            SettingsError: the digest has another algorithm.
        """
        checkpoint, steps = self.checkpoint, self.steps
        refused = [each for each in self.fates if each.refused]
        if self.is_changed and not self.allowed.changed_graph and not any(_is_final(each) for each in refused):
            removed = ", ".join(repr(name) for name in checkpoint.steps if steps.get(name) == DROPPED)
            new = ", ".join(repr(name) for name in steps if name not in checkpoint.steps)
            names = f"; steps with state: removed {removed or 'none'}, new {new or 'none'}" if removed or new else ""
            gone = [each.step for each in refused if _DROP in each.refused]
            also = f", dropped={gone}" * bool(gone) + ", changed_code='accept'" * (self.needs_code)
            raise GraphError(
                f"checkpoint {checkpoint.number} in {where} is of another graph, and its states do not fit this one: "
                f"{self.differences or 'steps have other names'}{names}; start a new run with another state=, or "
                f"resume with changed_graph='accept'{also} (drift state plan says what would become of each step)"
            )
        if refused:
            final = [each for each in refused if _is_final(each)] or refused
            raise GraphError(
                f"the run in {where} cannot resume with this graph: "
                f"{'; '.join(f'{each.step!r} {each.refused}' for each in final)}"
            )
        if checkpoint.output.algorithm != algorithm:
            raise SettingsError(
                f"the digest of the run in {where} is {checkpoint.output.algorithm}, and digest={algorithm!r} was "
                f"asked for; it cannot change when a run resumes"
            )
        if self.needs_code:
            raise GraphError(
                f"the functions are not those that the run in {where} has run with: {self.code}. Its states and its "
                f"output come from the old ones, so no run over the whole input would give the same any more; start a "
                f"new run with another state=, or, if a function was only mended, resume with changed_code='accept'"
            )


def grown(
    checkpoint: Checkpoint,
    dataflow: Dataflow,
    times: Mapping[str, TimePolicy],
    forms: Callable[[Dataflow], Mapping[str, str]],
    allowed: Allowed,
    *,
    is_cut_so: bool = True,
) -> Growth:
    """What becomes of each step if a run resumes from a checkpoint with a graph, which may be another one.

    Args:
        forms: gives the form of each grouping with state of a graph.
        is_cut_so: whether the durable steps and calls that lead to further segments have the names of then.
    """
    old, new = checkpoint.graph, fingerprint(dataflow, times)
    live, steps = checkpoint.live_steps, forms(dataflow)
    dropped = {name: DROPPED for name in checkpoint.steps if name not in steps}
    is_moved = bool(allowed.was or allowed.migrate)
    changes = [change for change in compare(old, new) if change.matters]
    is_same = old["structure"] == new["structure"] and dict(live) == dict(steps)
    # Where two steps have each other's names, the structure is the same, and states go by the names.
    if is_same and not is_moved and all(change.kind != "structure" for change in changes):
        texts = {change.step: change.text for change in changes}
        refused = {name: f"{text}; {_instead(steps_of(new)[name])}" for name, text in _others(old, new).items()}
        fates = tuple(Fate(name, "kept", texts.get(name, ""), refused.get(name, "")) for name in steps_of(new))
        code = "; ".join(change.text for change in changes)
        return Growth(checkpoint, dataflow, new, {**dropped, **steps}, fates, (), False, code, code, allowed)
    growth = _Changed(checkpoint, dataflow, times, steps, allowed, new).growth({**dropped, **steps})
    if is_cut_so or growth.is_changed:
        return growth
    return replace(growth, is_changed=True, differences="calls or durable steps have other names")


class _Changed:
    """A graph that is another one than that of the checkpoint."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dataflow: Dataflow,
        times: Mapping[str, TimePolicy],
        forms: Mapping[str, str],
        allowed: Allowed,
        graph: Fingerprint,
    ) -> None:
        self._checkpoint = checkpoint
        self._dataflow = dataflow
        self._times = times
        self._forms = forms
        self._allowed = allowed
        self._graph = graph
        self._new = steps_of(graph)
        self._names = _renamed(_operators_of(checkpoint.graph), _operators_of(graph), allowed.was)
        self._then = _with_names(checkpoint.graph, self._names)
        #: The form of each grouping of then, by its name of now; renamed ones leave their states under the old name.
        self._stored = {
            **{name: DROPPED for name in checkpoint.steps if name in self._names},
            **{self._names.get(name, name): form for name, form in checkpoint.steps.items()},
        }
        self._old = steps_of(self._then)
        self._pairs = matched(self._then, graph, states_by_name=True)
        self._before = {new: old for old, new in self._pairs.items()}
        self._edges_old, self._edges_new = step_edges(self._then), step_edges(graph)

    def growth(self, steps: Mapping[str, str]) -> Growth:
        old, new = self._then, self._graph
        ranked, whole = self._ranked()
        renamed = {
            **self._names,
            **{
                one["name"]: other["name"]
                for before, name in self._pairs.items()
                for one, other in zip(self._old[before], self._new[name])
                if one["name"] != other["name"]
            },
        }
        changes = [change for change in compare(old, new, states_by_name=True) if change.matters]
        code = [change for change in changes if change.kind in ("function", "value")]
        texts = {change.step: change.text for change in code}
        moves = self._moves(texts)
        converted = {move.step for move in moves if move.convert is not None}
        code = [change for change in code if change.step not in converted]
        fates = [self._fate_of(name, texts.get(name, ""), is_converted=name in converted) for name in self._new]
        fates += [self._fate_of_old(name) for name in self._old if name not in self._pairs]
        is_changed = any(each.what != "kept" or each.refused or self._is_other(each.step) for each in fates)
        fates += self._refused_moves(converted)
        if whole:
            fates.append(Fate(self._dataflow.name, "kept", refused=whole))
        return Growth(
            self._checkpoint,
            ranked,
            fingerprint(ranked, self._times),
            steps,
            tuple(fates),
            tuple(name for name in self._new if name not in self._before and self._kind(name) == "sink"),
            is_changed or bool(whole) or bool(moves),
            "; ".join(change.text for change in code),
            "; ".join(change.text for change in changes),
            self._allowed,
            tuple(moves),
            renamed,
            {None: {before: [name] for before, name in renamed.items()}},
        )

    def _moves(self, code: Mapping[str, str]) -> list[Move]:
        """What is written anew: states of a renamed step, and those of a step whose functions are others, and which has
        a function that converts them.
        """
        stored, found = {now: then for then, now in self._names.items()}, []
        for name in self._before:
            is_other = name in code or self._has_other_parameters(name)
            convert = self._allowed.migrate.get(name) if is_other else None
            for each in self._new[name]:
                form, before = self._forms.get(each["name"]), str(stored.get(each["name"], each["name"]))
                if form is not None and (convert is not None or before != each["name"]):
                    found.append(Move(name, each["name"], before, convert, form == "ProcessStage"))
        return found

    def _refused_moves(self, converted: Collection[str]) -> list[Fate]:
        """What `was` and `migrate` say of steps that are not there, or cannot be moved."""
        then, refused = steps_of(self._checkpoint.graph), dict[str, str]()
        for name, before in self._allowed.was.items():
            if name not in self._new:
                refused[name] = f"is to have the states of {before!r}, and the graph has no such step"
            elif before not in then and name not in then:
                refused[name] = f"is to have the states of {before!r}, and the state has no such step"
            elif before in then and name in then:
                refused[name] = f"is to have the states of {before!r}, and the state has a step of that name"
            elif self._kind(name) in ("source", "sink"):
                refused[name] = f"is a {self._kind(name)}, whose name cannot change"
        for name, convert in self._allowed.migrate.items():
            forms = [self._forms[each["name"]] for each in self._new.get(name, ()) if each["name"] in self._forms]
            if not forms:
                refused[name] = "is to have its states converted, and the graph has no such step with state"
            elif not _USERS_FORMS.issuperset(forms):
                refused[name] = f"has states of drift's own ({', '.join(forms)}), which no function converts; {_ANEW}"
            elif name in converted and self._checkpoint.converted.get(name) == _code_of(convert):
                refused[name] = "was converted by this function before; take it out of migrate=, or pass another one"
        return [Fate(name, "kept", refused=text) for name, text in refused.items()]

    def _ranked(self) -> tuple[Dataflow, str]:
        """The graph with the ranks of then, and why it cannot resume as a whole."""
        dataflow = self._dataflow
        ranks = {
            other["name"]: one["rank"]
            for before, name in self._pairs.items()
            for one, other in zip(self._old[before], self._new[name])
            if one["kind"] != "source"
        }
        above = 1 + max(each["rank"] for step in self._old.values() for each in step if each["kind"] != "source")
        try:
            return dataflow.with_ranks_of(ranks, above), ""
        except GraphError as error:
            return dataflow, f"cannot keep the order of its items: {error}"

    def _kind(self, name: str) -> str:
        return str(self._new[name][0]["kind"])

    def _fate_of(self, name: str, code: str, *, is_converted: bool) -> Fate:
        """Of a step of the graph."""
        step, before = self._new[name], self._before.get(name)
        if before is None:
            notes = [self._after(name), self._filled() if has_state(step) else ""]
            return Fate(name, "new", "; ".join(filter(None, notes)), self._refused_new(name, step))
        if before == name:  # or the state's graph had it under another name, which the user says
            before = next((then for then, now in self._names.items() if now == step[0]["name"]), name)
        notes = [f"was named {before!r}"] if before != name else []
        if self._has_other_parameters(name):
            notes.append("has other parameters than before")
        if self._is_rewired(name):
            notes.append(f"gets its items from other steps than before: {self._after(name) or 'itself'}")
        if is_converted:
            notes.append(f"its states are converted by {name_of(self._allowed.migrate[name])}, since {code}")
        elif name in self._allowed.migrate:
            notes.append("nothing is to be converted: its states are of these functions")
        else:
            notes += [f"{code}; it needs changed_code='accept'"] if code and not self._allowed.changed_code else [code]
        refused = self._refused_kept(self._before[name], name, is_converted=is_converted)
        return Fate(name, "kept", "; ".join(filter(None, notes)), refused)

    def _refused_new(self, name: str, step: list[dict[str, Any]]) -> str:
        if self._checkpoint.is_last:
            return "is new, and the run has ended, so nothing comes to it any more; start a new run with another state="
        if step[0]["kind"] == "source":
            return "is a new source, whose items would be below the checkpoint; start a new run with another state="
        if name in self._old and has_state([*step, *self._old[name]]):
            return f"is another kind of step than before; {_ANEW}"
        for each in step:
            if self._stored.get(each["name"]) == DROPPED:
                return "has the name of a step that was dropped, whose states are still there; give it another name"
        if name in self._allowed.dropped:
            return "is to be dropped, and the graph has it; take it out of one of the two"
        return "" if self._allowed.changed_graph else f"is new; {_ACCEPT}, to begin it at the checkpoint"

    def _filled(self) -> str:
        backfill = self._allowed.backfill
        if backfill is None:
            return ""
        named = f"source {_listed(backfill)}" if isinstance(backfill, Mapping) else f"the record {backfill}"
        return f"filled from {named}"

    def _refused_kept(self, before: str, name: str, *, is_converted: bool) -> str:
        old, new = self._old[before], self._new[name]
        if name in self._allowed.dropped:
            return "is to be dropped, and the graph has it; take it out of one of the two"
        if new[0]["kind"] == "source":
            if other := _refused_states(old, new):
                return f"{other}; {_instead(new)}"
            if old[0]["rank"] != new[0]["rank"]:
                return "stands at another place among the sources; declare them in the order of then"
        inside_old, inside_new = _inside(self._then, old), _inside(self._graph, new)
        if inside_old != inside_new or _feedback(self._mapped(before), name) != _feedback(self._edges_new, name):
            return f"has another loop than before; {_ANEW}"
        if (likelier := self._likelier(before, name)) is not None:
            return f"was given no name, and {likelier}"
        if not has_state(new):
            return ""
        if self._has_other_parameters(name) and not is_converted:
            return f"has other parameters than before, which its states do not fit; {_ANEW}"
        if not is_converted and (refused := _refused_states(old, new)):
            return f"{refused}; {_ANEW}"
        for each in new:
            form, then = self._forms.get(each["name"]), self._stored.get(each["name"])
            if form != then:
                return f"has states of another form ({then} before, {form} now); {_ANEW}"
        then_behind, now_behind = (
            _states_before(self._edges_old, self._old, name),
            _states_before(self._edges_new, self._new, name),
        )
        if then_behind != now_behind:
            return (
                f"gets its items through other steps with state than before ({_listed(then_behind)}, now "
                f"{_listed(now_behind)}), and its states do not fit; {_ANEW}"
            )
        return ""

    def _likelier(self, before: str, name: str) -> str | None:
        """Of a step that was given no name: which step has its place in the other graph, if it is not this one, and
        how to say what it was; None if it is, or if it is named.
        """

        def is_certain(name: str) -> bool:
            both = [steps[name] for steps in (self._old, self._new) if name in steps]
            return name in self._allowed.was or (len(both) == 2 and all(map(is_given_name, both)))

        if before != name or is_certain(name) or not is_known_by_name(self._new[name]):
            return None

        def likeness(one: str, other: str) -> tuple[bool, int]:
            """Whether two steps do the same, and how many neighbours they share."""
            pairs = {**self._pairs, one: other}
            around = [(pairs.get(a), pairs.get(b), back) for a, b, back in self._edges_old if one in (a, b)]
            return content_of(self._old[one]) == content_of(self._new[other]), sum(
                edge in self._edges_new for edge in around
            )

        around = sum(name in (a, b) for a, b, _ in self._edges_old)
        has_all = likeness(before, name) == (True, around)

        def is_likelier(one: str, other: str) -> bool:
            """Or as likely, where the step has not all the neighbours that it had."""
            found, own = likeness(one, other), likeness(before, name)
            return (found > own or (found == own and not has_all)) and (found[0] or _base_of(one) == _base_of(other))

        def rivals(steps: Mapping[str, list[dict[str, Any]]]) -> list[str]:
            return [
                each for each, step in steps.items() if is_known_by_name(step) and not is_certain(each) and each != name
            ]

        for other in rivals(self._new):
            if is_likelier(before, other):
                named = other if is_given_name(self._new[other]) else f"my {name}"
                return f"{other!r} is now where it was{_told_by(named, name)}"
        for one in rivals(self._old):
            if is_likelier(one, name):
                return f"it is now where {one!r} was{_told_by(f'my {name}', one)}"
        return None

    def _fate_of_old(self, name: str) -> Fate:
        """Of a step that the graph does not have."""
        step = self._old[name]
        kind = step[0]["kind"]
        if kind == "source":
            return Fate(name, "gone", refused="is a source, and gone; start a new run with another state=")
        if not has_state(step) and kind != "sink":
            refused = "" if self._allowed.changed_graph else f"is gone; {_ACCEPT}"
            return Fate(name, "gone", refused=refused)
        what = "a sink" if kind == "sink" else "a step with state"
        refused = (
            "" if name in self._allowed.dropped else (f"is {what}, and gone; {_DROP}[{name!r}] (--drop-step {name!r})")
        )
        return Fate(name, "dropped", "" if refused else what, refused)

    def _mapped(self, before: str) -> _Edges:
        """The edges to a step of then, by the names of now; "" for steps that are gone."""
        pairs = self._pairs
        return {(pairs.get(a, ""), pairs[b], back): None for a, b, back in self._edges_old if b == before}

    def _is_rewired(self, name: str) -> bool:
        before = self._before.get(name)
        now = {edge for edge in self._edges_new if edge[1] == name}
        return before is not None and self._mapped(before).keys() != now

    def _is_other(self, name: str) -> bool:
        """Whether a step that stays has other origins or parameters."""
        return self._is_rewired(name) or self._has_other_parameters(name)

    def _has_other_parameters(self, name: str) -> bool:
        traits = [
            [(each["parameters"], sorted(each["functions"])) for each in step]
            for step in (self._old[self._before[name]], self._new[name])
        ]
        return traits[0] != traits[1]

    def _after(self, name: str) -> str:
        origins = [a for a, b, back in self._edges_new if b == name and not back]
        return f"after {_listed(origins)}" if origins else ""


def _is_final(fate: Fate) -> bool:
    """Whether nothing that a user may accept lets the run resume."""
    return bool(fate.refused) and _ACCEPT not in fate.refused and _DROP not in fate.refused


def _refused_states(then: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> str:
    """Why a step cannot go on with states that a step of then has made; "" if it can."""
    if now[0]["kind"] == "source":
        return "has another time policy than before" if _tells_otherwise(then[0], now[0]) else ""
    otherwise = made_otherwise(made_of(then), made_of(now)) if has_state([*now]) else ""
    unless = " unless migrate= converts them" if "initial of type" in otherwise else ""
    return f"is now of {otherwise}, which its states do not fit{unless}" if otherwise else ""


def _tells_otherwise(then: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a source has another time or tie than before, by which items around a checkpoint are known.

    A function that was mended tells of what was read what it told before; another field or expression does not.
    """
    one, other = then["functions"], now["functions"]
    if then["parameters"] != now["parameters"] or one.keys() != other.keys():
        return True
    changed = [role for role in one if one[role]["code"] != other[role]["code"]]
    return not all(_is_written(each[role]) for role in changed for each in (one, other))


def _is_written(function: dict[str, Any]) -> bool:
    """Whether a function is one of Python, or an object with such."""
    return any(part["kind"] == "function" for part in function["parts"])


def _instead(step: Sequence[dict[str, Any]]) -> str:
    """What to do where a step cannot go on."""
    return "start a new run with another state=" if step[0]["kind"] == "source" else _ANEW


def _others(then: Fingerprint, now: Fingerprint) -> dict[str, str]:
    """By the steps of a graph of the same structure: why they cannot go on with their states."""
    before, after = steps_of(then), steps_of(now)
    found = {other: _refused_states(before[one], after[other]) for one, other in matched(then, now).items()}
    return {name: text for name, text in found.items() if text}


def refused_states(then: Fingerprint, now: Fingerprint) -> str:
    """Why a graph of the same structure cannot go on with the states of then; "" if it can."""
    return "; ".join(f"{name!r} {refused}" for name, refused in _others(then, now).items())


def _operators_of(graph: Fingerprint) -> list[str]:
    return [each["name"] for each in graph["operators"]]


def _renamed(then: Collection[str], now: Collection[str], was: Mapping[str, str]) -> dict[str, str]:
    """Names of operators of then -> names of now, of those renamed; a step's name begins those of its parts."""
    found: dict[str, str] = {}
    for name, before in was.items():
        for each in then:
            new = name + each.removeprefix(before)
            if (each == before or each.startswith(f"{before}.")) and new in now and new not in then:
                found[each] = new
    return found


def _with_names(graph: Fingerprint, names: Mapping[str, str]) -> Fingerprint:
    """A graph whose operators, and their steps, have other names, also in functions that hold the name of a step."""

    def renamed(entry: dict[str, Any]) -> dict[str, Any]:
        functions = {role: with_step_names(each, names) for role, each in entry["functions"].items()}
        named = {each: names.get(entry[each], entry[each]) for each in ("name", "step")}
        kept = {key: value for key, value in entry.items() if key != "unnamed" or entry["step"] == named["step"]}
        return {**kept, **named, "functions": functions}

    ends = ("origin", "target")
    edges = [{**each, **{end: names.get(each[end], each[end]) for end in ends}} for each in graph["edges"]]
    return {**graph, "operators": list(map(renamed, graph["operators"])), "edges": edges} if names else graph


def _code_of(function: Callable[..., Any]) -> str:
    return str(print_of(function)["code"])


def _inside(graph: Fingerprint, step: list[dict[str, Any]]) -> set[tuple[int, int, bool]]:
    """The edges within a step, by the indices of its operators."""
    index = {each["name"]: at for at, each in enumerate(step)}
    return {
        (index[edge["origin"]], index[edge["target"]], edge["feedback"])
        for edge in graph["edges"]
        if edge["origin"] in index and edge["target"] in index
    }


def _feedback(edges: Collection[tuple[str, str, bool]], name: str) -> set[str]:
    return {a for a, b, back in edges if back and b == name}


def _states_before(edges: _Edges, steps: Mapping[str, list[dict[str, Any]]], name: str) -> set[str]:
    """The other steps with state that items pass on their way to a step."""
    origins: dict[str, list[str]] = {}
    for a, b, _ in edges:
        origins.setdefault(b, []).append(a)
    before = reached(origins.get(name, ()), lambda each: origins.get(each, ()))
    return {each for each in before if each != name and has_state(steps[each])}


def _told_by(name: str, before: str) -> str:
    return f": name steps with state, and say which they were, as was={{{name!r}: {before!r}}}"


def _base_of(name: str) -> str:
    """The name of a step without the number that those of one name get."""
    return _NUMBER.sub("", name)


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"
