"""Steps that divert the items which make them raise: the functions that `on_error="divert"` and `late=` put into maps.

Invariant: for an item that the user's function accepts, these maps give the same as maps with the function itself.

Why: the function is called once for each item, and its exception becomes a diverted item (`drift_graph.diverted`),
which one following map passes on and another drops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeGuard

from drift.operators import _ByValue, pair_of
from drift_graph.diverted import diverted_by, is_diverted, is_late, report
from drift_graph.errors import GraphError
from drift_graph.operators import Arity, as_sequence

OnError = Literal["error", "divert"]


def diverts(on_error: object, kind: str, where: str) -> TypeGuard[Literal["divert"]]:
    """Whether a step or source diverts errors.

    Raises:
        GraphError: `on_error` has another value.
    """
    if on_error not in ("error", "divert"):
        raise GraphError(
            f"{kind} (at {where}) has on_error={on_error!r:.80}, which is not valid; it is 'error' or 'divert'"
        )
    return on_error == "divert"


class Tried(_ByValue, frozen=True):
    """A user's function of a payload, or of a payload and its time; the map's arity is "one" for "one", else "many"."""

    step: str
    function: Callable[..., Any]
    of: Arity

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.function

    def __call__(self, payload: Any, *time: int) -> Any:
        try:
            result = self.function(payload, *time)
            if self.of == "one":
                return result
            if self.of == "keep":
                return (payload,) if result else ()
            return as_sequence(result)
        except Exception as error:
            apart = diverted_by(self.step, error, payload)
            return apart if self.of == "one" else (apart,)


class TriedStep(_ByValue, frozen=True):
    """A user's step of a scan; if it raises, the state stays the same."""

    name: str
    step: Callable[[Any, Any], tuple[Any, Any]]

    @property
    def user_function(self) -> Callable[[Any, Any], tuple[Any, Any]]:
        return self.step

    def __call__(self, state: Any, payload: Any) -> tuple[Any, Any]:
        try:
            return pair_of(self.step(state, payload))
        except Exception as error:
            return state, diverted_by(self.name, error, payload)


class WithoutErrors(_ByValue, frozen=True):
    """A filter that drops diverted items."""

    def __call__(self, payload: Any) -> bool:
        return not is_diverted(payload)


class ErrorsOnly(_ByValue, frozen=True):
    """The diverted items only, as reports."""

    def __call__(self, payload: Any) -> tuple[dict[str, Any], ...]:
        return (report(payload),) if is_diverted(payload) and not is_late(payload) else ()


class LateOnly(_ByValue, frozen=True):
    """The late items only, as reports."""

    def __call__(self, payload: Any) -> tuple[dict[str, Any], ...]:
        return (report(payload),) if is_late(payload) else ()
