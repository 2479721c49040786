"""Steps that divert the items which make them raise: the functions that `on_error="divert"` and `late=` put into maps.

Invariant: for an item that the user's function accepts, these maps give the same as maps with the function itself.

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
from drift_graph.payloads import AtMostOne, Rows, have_fields, joined

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
        return PartlyDiverted(joined(good) if good else [], bytes(flags), apart)

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


class PartlyDiverted(Rows):
    """Rows, some of which are diverted.

    Args:
        flags: a byte for each row, 1 for those of `good`.
        apart: what is in place of those that are diverted.
    """

    __slots__ = ("good", "flags", "apart", "_values")
    has_fields = False

    def __init__(self, good: Any, flags: bytes, apart: list[Any]) -> None:
        self.good, self.flags, self.apart = good, flags, apart
        self._values: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.flags)

    def __getitem__(self, at: Any) -> Any:
        return self.values[at]

    def chosen(self, wanted: Sequence[int]) -> Any:
        return self.good if wanted == self.flags else super().chosen(wanted)

    @property
    def reports(self) -> AtMostOne:
        return AtMostOne(self.flags.translate(_OTHERS), list(map(report, self.apart)))

    @property
    def values(self) -> list[Any]:
        if self._values is None:
            good, apart = iter(self.good), iter(self.apart)
            self._values = [next(good if flag else apart) for flag in self.flags]
        return self._values


_OTHERS = bytes(not value for value in range(0x100))


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
        if isinstance(payloads, PartlyDiverted):
            return payloads.flags
        return b"\1" * len(payloads) if have_fields(payloads) else bytes(map(self, payloads))


class ErrorsOnly(MapsEach, _ByValue, frozen=True):
    """The diverted items only, as reports."""

    def __call__(self, payload: Any) -> tuple[dict[str, Any], ...]:
        return (report(payload),) if is_diverted(payload) and not is_late(payload) else ()

    def each(self, payloads: Any) -> Any:
        if isinstance(payloads, PartlyDiverted):
            return payloads.reports
        return AtMostOne(bytes(len(payloads)), []) if have_fields(payloads) else list(map(self, payloads))


def late_sinks(dataflow: Dataflow) -> list[str]:
    """The sinks that get late items, from sources with `late=` their name."""
    apart = {each.name for each in dataflow.operators if isinstance(each, Map) and isinstance(each.function, LateOnly)}
    return sorted({edge.target for edge in dataflow.edges if edge.origin in apart})


class LateOnly(_ByValue, frozen=True):
    """The late items only, as reports."""

    def __call__(self, payload: Any) -> tuple[dict[str, Any], ...]:
        return (report(payload),) if is_late(payload) else ()
