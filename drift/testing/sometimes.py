"""States that some run of a test must reach: `sometimes` marks them, and the end of the test checks them.

Invariant: a mark that was executed, but whose condition never held while the test searched for failures, fails the
test.

Why marks are checked only if all runs have passed: replays of a known failure and shrinking make few runs, and only if
the test fails anyway; then it reports that failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from drift_graph.errors import SettingsError


class Unreached(AssertionError):
    """No run of a test reached a state that it marks with `sometimes`."""


_marks: ContextVar[dict[str, list[int]] | None] = ContextVar("drift_sometimes", default=None)


def sometimes(condition: object, name: str) -> bool:
    """Mark a state that some run of this test must reach.

    Args:
        condition: whether this run has reached the state.
        name: what the state is; unique in the test.

    Returns:
        Whether the condition holds.

    Raises:
        SettingsError: outside of a test that counts: one made by `deterministic`, or a block under `reaching`.
    """
    marks = _marks.get()
    if marks is None:
        raise SettingsError(
            f"sometimes(..., {name!r}) is called where nobody counts; use it in a test under "
            f"@drift.testing.deterministic, or in a block: with drift.testing.reaching(): ..."
        )
    met = marks.setdefault(name, [0, 0])
    met[0] += 1
    met[1] += bool(condition)
    return bool(condition)


@contextmanager
def reaching() -> Iterator[dict[str, list[int]]]:
    """Count the marks of a block, and check them at its end, unless it raises.

    Yields:
        For each mark how often it was executed, and how often its condition held.

    Raises:
        Unreached: a condition never held.
    """
    __tracebackhide__ = True
    marks: dict[str, list[int]] = {}
    token = _marks.set(marks)
    try:
        yield marks
    finally:
        _marks.reset(token)
    ask(marks)


def ask(marks: dict[str, list[int]]) -> None:
    """Raise for the marks whose condition never held. Raises Unreached: see there."""
    __tracebackhide__ = True
    never = [(name, met) for name, (met, held) in marks.items() if not held]
    if never:
        missed = "; ".join(f"{name!r} (looked for {met} times)" for name, met in never)
        raise Unreached(
            f"no run came to {missed}: the test does not exercise what it means to; give it inputs or schedules that "
            f"lead there, more examples, or take the mark out"
        )
