"""Callers that stop at any item, and come again with the same state.

Invariant: what a caller of `visited` processed is the output from where the run resumed, without a gap; nothing that it
had asked the next of lies above the checkpoint from which the next visit resumes, and no checkpoint lies above that.

Why a model of a caller: the loop over a run is a sink that says what it has stored by asking for more. So it can stop
with a part of a batch, raise, close the run, or die, and what it had in hand has to come again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from unittest import mock

import drift
from drift.running.runs import Run
from drift.state.settings import Checkpoints
from drift.state.store import Store
from drift.testing.hypothesis import st
from drift_graph.graph import Dataflow
from drift_graph.item import Item, items

Way = Literal["loop", "next", "batches", "loops"]
Stop = Literal["break", "raise", "close", "death"]


class Visit(NamedTuple):
    """One caller of a run.

    Attributes:
        way: how it takes the output: in a loop, by `next`, by batches, or in a loop for every three items.
        stop: what it does at the item at which it stops; "death" leaves the state as it is at that moment.
        items: how many items it asks for; it stops while it has the last one in hand.
        batch_items: of the run.
        every_items: of the run's checkpoints.
    """

    way: Way
    stop: Stop
    items: int
    batch_items: int
    every_items: int


def visits(items_max: int) -> st.SearchStrategy[list[Visit]]:
    """Callers, one after the other."""
    numbers = st.integers(1, 9)
    stops = st.sampled_from(get_args(Stop))
    return st.lists(
        st.builds(Visit, st.sampled_from(get_args(Way)), stops, st.integers(1, items_max + 1), numbers, numbers),
        max_size=4,
    )


class Visited(NamedTuple):
    """What a visit did.

    Attributes:
        begin: the position of the checkpoint that the run resumed from.
        given: the items in order; the last one may be in hand.
        is_complete: whether the output came to its end; else the last item was in hand.
    """

    begin: int
    given: list[Item[Any]]
    is_complete: bool


class _Stopped(Exception):
    """Raised in the body of a caller's loop."""


def visited(
    dataflow: Dataflow, sources: Mapping[str, Any], visit: Visit, checkpoints: Checkpoints, *, after: Path, **more: Any
) -> Visited:
    """Run a graph for a caller.

    Args:
        checkpoints: where the state of the run is, in a folder.
        after: the folder for the state as the caller leaves it, which is removed first.
    """
    given: list[Item[Any]] = []
    with written_at_once():
        checkpoints = replace(checkpoints, every_items=visit.every_items, every_s=10**6)
        run = drift.run(dataflow, sources, state=checkpoints, batch_items=visit.batch_items, **more)
        begin = 0 if run.resumed_from is None else run.resumed_from.output.position
        is_complete = True
        try:
            for item in _taken(run, visit.way):
                given.append(item)
                if len(given) == visit.items:
                    is_complete = False
                    if visit.stop == "raise":
                        raise _Stopped
                    if visit.stop == "close":
                        run.close()
                    break
        except _Stopped:
            pass
        if visit.stop == "death":  # what is on the disk now is all that is left
            _copy(checkpoints, after)
        run.close()
        if visit.stop != "death":
            _copy(checkpoints, after)
    return Visited(begin, given, is_complete)


def check_visits(
    dataflow: Dataflow, sources: Mapping[str, Any], several: list[Visit], folder: Path, **more: Any
) -> list[Visited]:
    """Visit a run again and again, then to its end; check that no item is missed.

    Returns:
        What each visit did, the complete one last.

    Raises:
        AssertionError: an item is missed, or comes again though it lies below the checkpoint.
    """
    whole = list(drift.run(dataflow, sources, **more))
    last = Visit("loop", "break", len(whole) + 1, 7, 3)
    done: list[Visited] = []
    taken = 0  # all output below it was taken
    for number, visit in enumerate([*several, last]):
        visited_now = visited(
            dataflow, sources, visit, Checkpoints(folder / str(number)), after=folder / str(number + 1), **more
        )
        begin, given, is_complete = visited_now
        assert begin <= taken, f"visit {number} resumes at {begin}, and the caller has taken only what is below {taken}"
        assert given == whole[begin : begin + len(given)], f"visit {number} resumes at {begin}, and gets other items"
        taken = max(taken, begin + len(given) - (not is_complete))
        done.append(visited_now)
    assert taken == len(whole), f"the output has {len(whole)} items, and the caller got those below {taken}"
    return done


def _taken(run: Run, way: Way) -> Iterator[Item[Any]]:
    if way == "loop":
        yield from run
    elif way == "batches":
        for position, metas, payloads, sinks, _ in run.batches():
            yield from items(payloads, range(position, position + len(payloads)), sinks, metas)
    elif way == "next":
        while (item := next(run, None)) is not None:
            yield item
    else:
        more = True
        while more:
            more = False
            for number, item in enumerate(run):
                yield item
                if number == 2:
                    more = True
                    break


def _copy(checkpoints: Checkpoints, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    if Path(checkpoints.where).exists():
        shutil.copytree(checkpoints.where, to)


@contextmanager
def written_at_once() -> Iterator[None]:
    """A context in which a checkpoint is on the disk when it was taken, so that a caller's death finds as many as it
    can.
    """
    commit = Store.commit

    def at_once(self: Store, *arguments: Any) -> None:
        commit(self, *arguments)
        self.wait()

    with mock.patch.object(Store, "commit", at_once):
        yield
