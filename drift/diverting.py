"""Steps that divert the items which make them raise: the functions that `on_error="divert"` and `late=` put into maps.

Invariant: for an item that the user's function accepts, these maps give the same as maps with the function itself; and
rows stay columns, however many items between them are diverted.

Why: the function is called once for each item, and its exception becomes a diverted item (`drift_graph.diverted`),
which one following map passes on and another drops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeGuard

from drift.operators import GivesRows, MapsEach, _ByValue, pair_of
from drift_graph.diverted import diverted_by, is_diverted, is_late, report
from drift_graph.errors import GraphError, ImpureStep
from drift_graph.graph import Dataflow
from drift_graph.operators import Arity, Map, as_sequence
from drift_graph.payloads import AtMostOne, Interleaved, Mixed, chosen, have_fields, joined

OnError = Literal["error", "divert"]


def diverts(on_error: object, kind: str, where: str) -> TypeGuard[Literal["divert"]]:
    """Whether a step or source diverts errors. Raises GraphError: `on_error` has another value."""
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

    gives_users: ClassVar = True

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


class TriedRows(GivesRows, _ByValue, frozen=True):
    """A function of rows, such as an expression; the rows that it can be computed of stay columns.

    Attributes:
        keeps: whether the result is the row itself.
    """

    step: str
    function: MapsEach
    keeps: bool = False

    def each(self, payloads: Sequence[Any]) -> Any:
        good: list[Any] = []
        flags = bytearray(b"\1") * len(payloads)
        apart: list[Any] = []
        self._try(payloads, 0, good, flags, apart)
        if not apart:
            return good[0] if len(good) == 1 else joined(good)
        return Mixed([apart, joined(good) if good else []], bytes(flags))

    def _try(self, payloads: Any, start: int, good: list[Any], flags: bytearray, apart: list[Any]) -> None:
        """Compute the payloads; where that raises, each half of them."""
        try:
            found = self.function.each(payloads)
        except ImpureStep:
            raise
        except Exception as error:
            if len(payloads) == 1:
                flags[start] = 0
                apart.append(diverted_by(self.step, error, payloads[0]))
                return
            half = len(payloads) // 2
            self._try(payloads[:half], start, good, flags, apart)
            self._try(payloads[half:], start + half, good, flags, apart)
        else:
            good.append(payloads if self.keeps else found)


class TriedStep(_ByValue, frozen=True):
    """A user's step of a scan; if it raises, the state stays the same."""

    hands_state: ClassVar = True
    gives_users: ClassVar = True

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


class WithoutErrors(MapsEach, _ByValue, frozen=True):
    """A filter that drops diverted items."""

    def __call__(self, payload: Any) -> bool:
        return not is_diverted(payload)

    def gives_rows(self, given: bool) -> bool:
        return given

    def each(self, payloads: Any) -> Any:
        """A byte for each payload, 1 for those to keep."""
        return _flags(self, payloads)


def _flags(test: Callable[[Any], bool], payloads: Any) -> bytes:
    """Of each payload whether a test of diverted items holds; it is not called with rows, none of which is one."""
    if isinstance(payloads, Interleaved):
        return bytes(payloads.of_parts(lambda part: _flags(test, part)))
    return bytes([test(None)]) * len(payloads) if have_fields(payloads) else bytes(map(test, payloads))


class _Reports(MapsEach, _ByValue, frozen=True):
    """The diverted items of one kind only, as reports."""

    def __call__(self, payload: Any) -> tuple[dict[str, Any], ...]:
        return (report(payload),) if self.wants(payload) else ()

    def each(self, payloads: Any) -> Any:
        flags = _flags(self.wants, payloads)
        return AtMostOne(flags, list(map(report, chosen(payloads, flags))))

    @staticmethod
    def wants(payload: Any) -> bool:
        """Whether it is a diverted item of this kind."""
        raise NotImplementedError


class ErrorsOnly(_Reports, frozen=True):
    """What could not be processed."""

    @staticmethod
    def wants(payload: Any) -> bool:
        return is_diverted(payload) and not is_late(payload)


class LateOnly(_Reports, frozen=True):
    """The late items."""

    @staticmethod
    def wants(payload: Any) -> bool:
        return is_late(payload)


def late_sinks(dataflow: Dataflow) -> list[str]:
    """The sinks that get late items, from sources with `late=` their name."""
    apart = {each.name for each in dataflow.operators if isinstance(each, Map) and isinstance(each.function, LateOnly)}
    return sorted({edge.target for edge in dataflow.edges if edge.origin in apart})
