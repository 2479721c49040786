"""The states of steps that were renamed, or whose states are converted, as the snapshots of a change of the graph.

Invariant: together the snapshots have every key of each grouping that moves, once, with its state in the form of now,
its timers as they were, and nothing of it under a name that it no longer has.

Why: all keys that the store has are read, part by part; what a user's function gives is checked as any state is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from drift.state.growth import Growth, Move
from drift.state.restored import RestoredStates
from drift.state.snapshots import Form, Forms, StoredSnapshot, encoded_snapshot, states_of
from drift_graph.errors import StepError
from drift_graph.functions import line_of, name_of, safe_text

_KEYS_IN_PART = 1 << 16


def moved(before: Mapping[int | None, RestoredStates], growth: Growth, at: bytes, forms: Forms) -> Iterator[bytes]:
    """Snapshots of the states that move.

    Args:
        before: the states of the checkpoint, by `Move.origin`.
        at: its minimal time.

    Raises:
        StepError: a function raised.
        PayloadError: a state that a function gave cannot be stored.
    """
    later = [
        each._replace(target=name)
        for origin, targets in growth.later.items()
        if origin in before
        for each in before[origin].later(at)
        for name in targets.get(each.target, ())
    ]
    if later:
        yield encoded_snapshot(StoredSnapshot({}, later))
    for move in growth.moves:
        rows, timed = before[move.origin].all_of(move.before)
        while part := list(islice(rows, _KEYS_IN_PART)):
            of_steps = {}
            if move.origin is None and move.before != move.name:
                of_steps[move.before] = states_of([(key, None) for key, _ in part], ())
            if move.name:
                of_steps[move.name] = states_of([(key, _converted(move, form, forms)) for key, form in part], timed)
            yield encoded_snapshot(StoredSnapshot(of_steps, ()))


def _converted(move: Move, form: Form, forms: Forms) -> bytes:
    """The stored form of a key's state, with its timers."""
    if move.convert is None:
        return bytes(form)
    stored = forms.value(bytes(form))
    state, timers = stored if move.is_timed else (stored, None)
    state = _called(move, move.convert, state)
    return forms.form(move.name, (state, timers) if move.is_timed else state)


def _called(move: Move, convert: Callable[[Any], Any], state: Any) -> Any:
    try:
        return convert(state)
    except Exception as error:
        raise StepError(
            f"the function {name_of(convert)} that converts the states of step {move.step!r} raised "
            f"{type(error).__name__}: {safe_text(str, error, 200)}, for the state {safe_text(repr, state, 200)}; no "
            f"state was changed",
            step=move.step,
            where=line_of(convert) or "",
        ) from error
