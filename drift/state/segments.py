"""The segments of a graph in a state: where each stores its own, and how they join, and divide, when the graph changes.

Invariant: a run that goes on with a changed graph has each key's state of each step that stays once, and gives
everything that the last segment had not taken.

Why: the state of the last segment says where those of the others are, and is written last. So a change is there as a
whole or not at all: the others begin in stores of their own, with states copied from where these were. A segment begins
again at its newest checkpoint at or below that of the segment behind it, without which the change is refused, and gives
what is between again. So no log is needed, and none is kept; answers are found by the items that were asked about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from drift.records.fingerprint import Fingerprint, fingerprint
from drift.state.backend import named
from drift.state.checkpoint import DROPPED, Checkpoint, Output
from drift.state.growth import Fate, Growth, Move
from drift.state.settings import Checkpoints
from drift_graph.graph import Dataflow
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of
from drift_graph.operators import Border
from drift_graph.policies import TimePolicy
from drift_graph.segments import segments_of

Forms = Callable[[Dataflow], Mapping[str, str]]
_FROM, _SINCE, _BEGUN = "from", "segments", "begun"


def checkpoints_of(checkpoints: Checkpoints, number: int, since: int = 0) -> Checkpoints:
    """Where a segment other than the last keeps its state.

    Args:
        number: of the segment, counted from 1.
        since: the checkpoint at which the graph was changed last; 0 if it never was.
    """
    where, folder = os.fspath(checkpoints.where), f"segments-{since}" if since else "segments"
    if "://" in where:
        server, name = named(where)
        where = f"{server}#{name}-{folder.replace('segments', 'segment')}-{number}"
    else:
        where = str(Path(where.removeprefix("files:")) / folder / str(number))
    return replace(checkpoints, where=where, keep=max(checkpoints.keep, 2), from_checkpoint=None)


class Begun(NamedTuple):
    """What a segment is that has no checkpoint yet: the form of each grouping with state is by its name."""

    graph: Fingerprint
    steps: Mapping[str, str]


def position_of(checkpoint: bytes, items_in: int, since: int, begun: Mapping[int, Begun]) -> dict[str, Any]:
    """The position of a segment in the output of the one before it.

    Args:
        begun: by number, the segments before it that have no checkpoint yet; those of a change have one.
    """
    without = {str(number): [each.graph, dict(each.steps)] for number, each in begun.items()}
    return {_FROM: checkpoint.hex(), "items_in": items_in, _BEGUN: without, **({_SINCE: since} if since else {})}


def position_shown(position: Mapping[str, Any]) -> dict[str, Any]:
    """The position of a source, or of a segment, for people: of segments without a checkpoint their numbers."""
    return {**position, _BEGUN: sorted(map(int, position[_BEGUN]))} if _is_behind(position) else dict(position)


def _is_behind(position: Mapping[str, Any]) -> bool:
    """Whether a position is in the output of a segment, and not in sources."""
    return isinstance(position.get(_FROM), str)


@dataclass(frozen=True)
class InState:
    """The segments that a state is of.

    Attributes:
        since: see `checkpoints_of`.
        stores: of each, the last is that of the last segment.
        checkpoints: from which each would begin again if the graph changed; with the number 0, that of a segment that
            has none yet.
        known: gives the checkpoints that a store retains.
    """

    since: int
    stores: Sequence[Checkpoints]
    checkpoints: Sequence[Checkpoint]
    known: Callable[[Checkpoints], list[Checkpoint]]

    @classmethod
    def behind(
        cls, last: Checkpoint, checkpoints: Checkpoints, known: Callable[[Checkpoints], list[Checkpoint]]
    ) -> InState:
        """
        Args:
            last: the checkpoint of the last segment.
        """
        if not _is_behind(last.sources):  # it is the only one
            return cls(0, [checkpoints], [last], known)
        since = int(last.sources.get(_SINCE, 0))
        begun = {int(number): Begun(*each) for number, each in last.sources.get(_BEGUN, {}).items()}
        stores: list[Checkpoints] = []
        retained: list[list[Checkpoint]] = []
        for number in count(1):
            store = checkpoints_of(checkpoints, number, since)
            found = known(store)
            if not found and number in begun:
                found = [_before_the_first(begun[number], last)]
            if not found:
                break
            stores.append(store)
            retained.append(found)
        chosen = [last]
        for found in retained[::-1]:
            newest, after = found[-1], chosen[0].at
            fitting = [each for each in found if each.at <= after and each.graph == newest.graph]
            chosen.insert(0, fitting[-1] if fitting else newest)
        return cls(since, [*stores, checkpoints], chosen, known)

    @property
    def is_complete(self) -> bool:
        """Whether each segment has a checkpoint."""
        return all(each.number for each in self.checkpoints) and not _is_behind(self.checkpoints[0].sources)

    def is_cut_as(self, dataflow: Dataflow) -> bool:
        """Whether a graph leaves its segments by borders of the same names, by which logs have what passes them."""
        then = [{each["name"] for each in found.graph["operators"] if each["kind"] == "border"}
                for found in self.checkpoints]  # fmt: skip
        return then == [{each.name for each in found.operators if isinstance(each, Border)}
                        for found in segments_of(dataflow)]  # fmt: skip

    @cached_property
    def unused(self) -> int:
        """A number for the stores of a graph that changes now."""
        last = self.checkpoints[-1].number
        return next(number for number in count(last) if not self.known(checkpoints_of(self.stores[-1], 1, number)))

    def joined(self, dataflow: Dataflow, times: Mapping[str, TimePolicy]) -> Checkpoint:
        """The checkpoint of all of them, as of a graph in one piece."""
        first, last = self.checkpoints[0], self.checkpoints[-1]
        now = segments_of(dataflow)
        if len(self.checkpoints) == 1 and len(now) == 1:
            return last
        prints = [fingerprint(each, {} if at else times) for at, each in enumerate(now)]
        is_same = [each["structure"] for each in prints] == [each.graph["structure"] for each in self.checkpoints]
        graph = _whole([each.graph for each in self.checkpoints])
        if is_same:
            graph["structure"] = fingerprint(dataflow, times)["structure"]
        steps: dict[str, str] = {}
        for each in self.checkpoints:
            steps |= {name: form for name, form in each.steps.items() if form != DROPPED or name not in steps}
        converted = {name: code for each in self.checkpoints for name, code in each.converted.items()}
        return replace(last, graph=graph, steps=steps, sources=first.sources, converted=converted)


def _before_the_first(begun: Begun, last: Checkpoint) -> Checkpoint:
    return Checkpoint(0, BEGINNING, begun.graph, begun.steps, Output(0, b"", 0, last.output.algorithm), sources={})


def _whole(graphs: Sequence[Fingerprint]) -> Fingerprint:
    """The fingerprint of a graph whose segments have these; `structure` is empty: the order of the operators, which is
    hashed, is that of the segments.
    """
    operators = [
        _as_call(each) if "asked" not in each and _is_question(each) else each
        for at, graph in enumerate(graphs)
        for each in graph["operators"]
        if each["kind"] != "border" and not (at and each["kind"] == "source")
    ]
    names = {each["name"] for each in operators}
    edges = [edge for graph in graphs for edge in graph["edges"] if edge["target"] in names]
    return {
        **graphs[-1],
        "operators": operators,
        "edges": edges,
        "structure": "" if len(graphs) > 1 else graphs[0]["structure"],
    }


def _is_question(operator: Mapping[str, Any]) -> bool:
    """Whether it is a call, as segments described them before they said who is asked."""
    function = operator["functions"].get("function")
    return function is not None and function["name"] == "_question"


def _as_call(operator: dict[str, Any]) -> dict[str, Any]:
    return {**operator, "functions": {}, "asked": {}, "parameters": {**operator["parameters"], "asks": True}}


@dataclass(frozen=True)
class Divided:
    """The changed graph of a run in its segments.

    Args:
        whole: what becomes of the graph.
        before: what the state has.
        segments: of the graph.
    """

    whole: Growth
    before: InState
    segments: Sequence[Dataflow]

    @property
    def since(self) -> int:
        """The number of the stores of each segment, as `checkpoints_of` takes it."""
        return self.before.unused if self.whole.is_changed else self.before.since

    def checked(self) -> Divided:
        """This growth with why the graph cannot be in these segments, if it cannot; it has changed where they have."""
        if not self._is_in_several:
            return self
        places = {name: at for at, own in enumerate(self._own) for name in own}
        is_other = len(self.segments) != len(self.before.checkpoints) or any(
            places.get(name, at) != at for name, at in self._then.items()
        )
        if is_other and not self.whole.is_changed:
            whole = replace(self.whole, is_changed=True, differences="other steps are durable, or calls")
            return replace(self, whole=whole).checked()
        if not self.whole.is_changed:
            return self
        refused = self._cuts[1]
        if not self.before.is_complete:
            refused = (
                "has durable steps or calls, in front of which no checkpoint was taken yet; resume with the graph as "
                "it was, and change it later"
            )
        elif self.whole.is_filled:
            refused = "has durable steps or calls, and with these no new step is filled; leave out backfill="
        if not refused:
            return self
        fate = Fate(self.whole.dataflow.name, "kept", refused=refused)
        return replace(self, whole=replace(self.whole, fates=(fate, *self.whole.fates)))

    @property
    def _is_in_several(self) -> bool:
        return len(self.segments) > 1 or len(self.before.checkpoints) > 1

    @cached_property
    def _then(self) -> dict[str, int]:
        """The segment of the state in which each operator of the graph was, if it was in one."""
        found: dict[str, int] = {}
        for at, checkpoint in enumerate(self.before.checkpoints):
            for each in checkpoint.graph["operators"]:
                if each["kind"] != "border":
                    found.setdefault(self.whole.names.get(each["name"], each["name"]), at)
        return found

    @cached_property
    def _own(self) -> list[list[str]]:
        """The operators of each segment, without what arrives there and leaves."""
        found: list[list[str]] = []
        seen: set[str] = set()
        names = {each.name for each in self.whole.dataflow.operators}
        for segment in self.segments:
            own = [each.name for each in segment.operators if each.name in names and each.name not in seen]
            seen.update(own)
            found.append(own)
        return found

    @cached_property
    def _cuts(self) -> tuple[list[bytes], str]:
        """The time at which each segment begins; and why they cannot, "" if they can."""
        checkpoints, then = self.before.checkpoints, self._then
        holds = [any(each["kind"] == "group" or each["parameters"].get("later") for each in found.graph["operators"])
                 for found in checkpoints]  # fmt: skip
        cuts = [checkpoints[-1].at]
        for at in range(len(self.segments) - 1, -1, -1):
            origins = {then[name] for name in self._own[at] if name in then}
            times = {checkpoints[each].at for each in origins if holds[each]}
            is_last = at == len(self.segments) - 1
            if len(times) > 1 or (times and is_last and times != {cuts[0]}):
                return [], _apart(sorted({*times, cuts[0]}))
            if times and max(times) > cuts[0]:
                return [], _without_checkpoint(max(times), cuts[0])
            if not is_last:
                cuts.insert(0, max(times, default=cuts[0]))
        if checkpoints[0].at > cuts[0]:  # where its sources would be read on
            return [], _ahead(checkpoints[0].at, cuts[0])
        return cuts, ""

    def of_segment(
        self, number: int, times: Mapping[str, TimePolicy], forms: Forms, checkpoint: Checkpoint | None = None
    ) -> Growth:
        """What becomes of one segment of a graph that has changed, or of the graph, if it is, and was, in one piece.

        Args:
            number: from 0.
            checkpoint: that it goes on from, if nothing has changed.
        """
        if not self._is_in_several:
            return self.whole
        segment, is_last = self.segments[number], number == len(self.segments) - 1
        checkpoints, now = self.before.checkpoints, forms(segment)
        graph = fingerprint(segment, {} if number else times)
        if not self.whole.is_changed:
            assert checkpoint is not None
            gone = {name: DROPPED for name in checkpoint.steps if name not in now}
            return replace(
                self.whole, checkpoint=checkpoint, dataflow=segment, graph=graph, steps={**gone, **now}, moves=()
            )
        cut, last = self._cuts[0][number], checkpoints[-1]
        sources: Mapping[str, Any] = checkpoints[0].sources
        if number:
            items_in = checkpoints[-1].items_in if is_last and len(checkpoints) > 1 else 0
            sources = position_of(cut, items_in, self.since, {})
        if is_last:
            here = {name: form for name, form in last.steps.items() if self._place_of(name, now) is not False}
            base = replace(last, steps=here, sources=sources)
        else:
            base = Checkpoint(0, cut, graph, {}, Output(0, b"", 0, last.output.algorithm), sources=sources)
            base = replace(base, items_in=checkpoints[0].items_in if not number else 0)
        gone = {name: DROPPED for name in base.steps if name not in now}
        moves = tuple(self._moves(now, len(checkpoints) - 1 if is_last else -1))
        new_sinks = self.whole.new_sinks if is_last else ()
        return replace(
            self.whole,
            checkpoint=base,
            dataflow=segment,
            graph=graph,
            steps={**gone, **now},
            moves=moves,
            new_sinks=new_sinks,
            later=self._later(number, is_last),
            segments=tuple((store.where, each) for store, each in zip(self.before.stores, checkpoints)),
        )

    def _place_of(self, name: str, now: Mapping[str, str]) -> bool | None:
        """Whether a grouping of then is in this segment, False if it is in another one; None if it is nowhere."""
        name = self.whole.names.get(name, name)
        return True if name in now else (False if self.whole.steps.get(name, DROPPED) != DROPPED else None)

    def _moves(self, now: Mapping[str, str], own: int) -> Iterator[Move]:
        """
        Args:
            now: the groupings of the segment, with their forms.
            own: the segment of the state whose store it goes on with; -1 for none.
        """
        known, names = {move.name: move for move in self.whole.moves}, self.whole.names
        step_of = {each["name"]: each["step"] for each in self.whole.graph["operators"]}
        for at, checkpoint in enumerate(self.before.checkpoints):
            for before in checkpoint.live_steps:
                name = names.get(before, before)
                if name in now and (at != own or name in known):
                    move = known.get(name) or Move(step_of[name], name, before, None, False)
                    yield move._replace(origin=at if at != own else None)
                elif name not in now and at == own and self._place_of(before, now) is False:
                    yield Move(step_of[name], "", before, None, False)

    def _later(self, number: int, is_last: bool) -> Mapping[int | None, Mapping[str, Sequence[str]]]:
        """By segments of the state, None for that of the store that is gone on with: the operators of this segment to
        which later items for each operator of then go.
        """
        here, names, then = frozenset(self._own[number]), self.whole.names, self._then
        edges = self.whole.dataflow.edges
        found: dict[int | None, dict[str, Sequence[str]]] = {}
        for at, checkpoint in enumerate(self.before.checkpoints):
            is_own = is_last and at == len(self.before.checkpoints) - 1
            targets = found.setdefault(None if is_own else at, {})
            origins = {edge["target"]: edge["origin"] for edge in checkpoint.graph["edges"]}
            for each in checkpoint.graph["operators"]:
                name = each["name"]
                if each["kind"] == "border" and name in origins:  # what leaves there goes straight on
                    origin = names.get(origins[name], origins[name])
                    behind = [edge.target for edge in edges if edge.origin == origin and edge.target in here]
                    targets[name] = [to for to in behind if then.get(to, at + 1) > at]
                elif names.get(name, name) in here and not (is_own and name not in names):
                    targets[name] = [names.get(name, name)]
        return found


def _apart(times: Sequence[bytes]) -> str:
    return (
        f"would have steps in one piece that a call or durable step was between, and whose states are as of different "
        f"times, {_shown(times[0])} and {_shown(times[-1])}, since items wait in front of it; {_FIRST_AS_IT_WAS}"
    )


def _without_checkpoint(now: bytes, cut: bytes) -> str:
    return (
        f"has no checkpoint at or below {_shown(cut)} of the steps in front of a call or durable step: they are at "
        f"{_shown(now)}, since items wait there, and the older ones are gone (keep= says how many are retained); "
        f"{_FIRST_AS_IT_WAS}"
    )


def _ahead(read: bytes, cut: bytes) -> str:
    is_over = read == END_OF_TIME
    advice = (
        "let it end with the graph as it was, or start a new run with another state=" if is_over else _FIRST_AS_IT_WAS
    )
    return (
        f"has read its sources up to {'their end' if is_over else _shown(read)}, and what is from {_shown(cut)} on "
        f"waits in front of a call or durable step, with no checkpoint before it; {advice}"
    )


_FIRST_AS_IT_WAS = (
    "resume with the graph as it was and complete=False, until its sources have nothing more, and then change it"
)


def _shown(time: bytes) -> str:
    return str(time_of(time)) if len(time) >= 8 else "the beginning"
