"""Time policies: what the items of a source are ordered by, and how late they may be.

Invariant: a policy that exists is valid: anything that is not a time function, a duration or a zone is refused when the
policy is made, in the user's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift_graph.called import called
from drift_graph.errors import SettingsError
from drift_graph.functions import has_inside, is_expression, same_function
from drift_graph.moments import AMBIGUOUS, UNITS, Ambiguous, Field, Span, Unit, span_from, time_from, zone_from

if TYPE_CHECKING:
    import polars as pl

#: The lateness of items of which none can be late: more than two times of 64 bits can be apart.
WHOLE = 2**64


@called
@dataclass(frozen=True)
class ArrivalTime:
    """Items are ordered as they come: item n of a finite source has time n; a live source's items are stamped by the
    clock.

    A live source's stamps are milliseconds since 1970 and never decrease.

    >>> import drift
    >>> graph = drift.Graph("lines")
    >>> graph.source("lines", time=drift.ArrivalTime()).sink("out")
    >>> [item.time for item in drift.run(graph, {"lines": ["to be", "or not"]})]
    [0, 1]
    """

    reads_payloads: ClassVar[Literal[False]] = False
    is_whole: ClassVar[Literal[False]] = False
    tie: ClassVar[None] = None
    idle_after_ms: ClassVar[None] = None
    unit: ClassVar[None] = None
    lateness: ClassVar[int] = 0
    may_reorder: ClassVar[bool] = False
    #: What the clock decides about a live source.
    clock_decides: ClassVar[str] = "the clock stamps its items"

    @property
    def label(self) -> str:
        return "arrival time"

    @property
    def functions(self) -> dict[str, Callable[[Any], Any]]:
        """The user's functions by role."""
        return {}

    @property
    def parameters(self) -> dict[str, Any]:
        """What else items are ordered by, for descriptions and fingerprints."""
        return {"time policy": "arrival time"}

    def with_functions(self, functions: Mapping[str, Callable[[Any], Any]]) -> ArrivalTime:
        """This policy with other functions."""
        return self

    def recorded(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """The description of the policy in a record; `texts` describe its functions."""
        return {"time": "arrival"}


@called
@dataclass(frozen=True, eq=False, init=False)
class EventTime:
    """Items are ordered by a time in their payload; they may arrive in any order within `lateness`.

    Times are ints; the unit is yours, usually milliseconds. A datetime with a zone, or ISO text with one, is a time in
    milliseconds since 1970; so is a number, with a fraction or without, whose `unit` is given. Durations are ints in
    the unit of the times, or, if that is milliseconds, a timedelta or text such as "10s" or "1h 30m". Over times in
    seconds "10s" would be 10,000 of them: name their unit.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> clicks = graph.source("clicks", time=drift.EventTime("at", unit="s"))
    >>> clicks.window(drift.windows.tumbling("10s")).rows(n=drift.agg.count()).sink("out")
    >>> [item.payload for item in drift.run(graph, {"clicks": [{"at": 1700000001.25}, {"at": 1700000009}]})]
    [{'start': 1700000000000, 'end': 1700000010000, 'n': 2}]

    Args:
        time: returns a payload's time; or the name of the field that holds it: "at", "trip.at", for tuples "0"; or, for
            a source with a schema, an expression of Polars.
        lateness: how far an item may be behind the greatest time before it, 0 or more. "all": however far, for input
            that ends; all of it is read and sorted before the first item is released, on disk beyond the run's
            `memory_max`.
        allowed: how far beyond `lateness` an item may be behind and still count, 0 or more. Such an item is *belated*:
            its time in the order is the heartbeat of its source at its place, the least time that is not late, and it
            is no late item. `stream.window(..., allowed=...)` corrects the result of the window that it belongs to;
            every other step sees it at that time. Of two items of one time and tie the first to come is the first.
        tie: orders items of one time, among which it must be unique; as for `time`. An int, 0 <= n < 2**64, orders
            them; anything else is hashed. Without it they are ordered by the hash of their payload, and reading takes
            two to three times as long: the hash is computed for every item.
        late: what happens to an item further below the heartbeat, or one that `future_max` sets apart: "error" ends
            the run with a LateItem, "divert" adds it to the run's late items and counts it.
        idle_after_ms: if a live source is silent for so long, its heartbeat moves past its items so far and up to that
            of the other sources that are not, so that these are released; an item from below is late then. None: they
            wait.
        future_max: how far an item may be ahead of the greatest time before it. The first item, and one that is
            further ahead, waits for up to eight items behind it: once four that wait lie within `future_max` of each
            other, as behind a gap in the data, they are accepted; it is late if items go on below it, or if it stands
            alone. Without `future_max` one wrong timestamp makes all items after it late. No clock is asked: live items
            and the same from a file are judged alike. Choose it greater than what usually lies between two items of
            the source. None: no limit.
        zone: for datetimes and texts without one, as a tzinfo or "Europe/Berlin"; None: these are refused. A time that
            the clocks of the zone never show, where they are put forward, is refused.
        unit: of times that are numbers: "s", "ms", "us" or "ns" since 1970. They become milliseconds, rounded down; a
            float, or a Decimal, is rounded to microseconds first. None: ints, in a unit of yours.
        ambiguous: of a time that they show twice, where they are put back: "error" refuses it, unless its `fold` is 1;
            "earliest" and "latest" take one of the two; "fold" takes that of the datetime, which is the earlier one
            for a text.

    Raises:
        SettingsError: an argument is none of these.
    """

    #: Whether times come from payloads.
    reads_payloads: ClassVar[Literal[True]] = True

    time: Callable[[Any], Any]
    lateness: int
    tie: Callable[[Any], Any] | None
    late: Literal["error", "divert"]
    idle_after_ms: int | None
    future_max: int | None
    zone: tzinfo | None
    ambiguous: Ambiguous
    unit: Unit | None
    allowed: int

    def __init__(
        self,
        time: Callable[[Any], Any] | str | pl.Expr,
        lateness: Span | Literal["all"] = 0,
        tie: Callable[[Any], Any] | str | pl.Expr | None = None,
        late: Literal["error", "divert"] = "error",
        idle_after_ms: Span | None = None,
        future_max: Span | None = None,
        zone: tzinfo | str | None = None,
        ambiguous: Ambiguous = "error",
        unit: Unit | None = None,
        allowed: Span = 0,
    ) -> None:
        functions = {"time": time, "tie": tie}
        for name, function in functions.items():
            if isinstance(function, str) and function:
                functions[name] = Field(function)
            elif not callable(function) and not is_expression(function) and not (name == "tie" and function is None):
                raise SettingsError(
                    f"{name}={function!r:.80} is not a function of the payload, nor the name of a field"
                )
            elif has_inside(function, "only_in_maps"):
                raise SettingsError(
                    f"{name}= takes no drift.recorded(...): in event time it is a function of the payload alone; "
                    f"without time= items have the time at which they came, which a record keeps"
                )
        spans: dict[str, int | None] = {}
        lengths = {"lateness": lateness, "allowed": allowed, "idle_after_ms": idle_after_ms, "future_max": future_max}
        for name, argument in lengths.items():
            span = WHOLE if name == "lateness" and argument == "all" else span_from(argument)
            if (argument is not None or name in ("lateness", "allowed")) and (span is None or span < 0):
                raise SettingsError(
                    f"{name}={argument!r:.80} is not an int of 0 or more, a timedelta or a text such as '10s', in "
                    f"whole milliseconds"
                )
            is_given = span is not None and (span > 0 or name != "allowed")
            if is_given and name != "lateness" and spans["lateness"] == WHOLE:
                raise SettingsError(
                    f"{name}= is for items as they come, and lateness='all' sorts all of them first: leave one out"
                )
            spans[name] = span
        if late not in ("error", "divert"):
            raise SettingsError(f"late={late!r} is not valid; it is 'error' or 'divert'")
        if ambiguous not in AMBIGUOUS:
            raise SettingsError(
                f"ambiguous={ambiguous!r:.80} is not valid; it is one of {', '.join(map(repr, AMBIGUOUS))}"
            )
        if unit is not None and unit not in UNITS:
            raise SettingsError(f"unit={unit!r:.80} is not valid; it is one of {', '.join(map(repr, UNITS))}")
        known = zone_from(zone)
        if zone is not None and known is None:
            raise SettingsError(f"zone={zone!r:.80} is not a tzinfo, nor the name of a time zone that is known here")
        others = {"late": late, "zone": known, "ambiguous": ambiguous, "unit": unit}
        for name, value in {**functions, **spans, **others}.items():
            object.__setattr__(self, name, value)

    def beyond(self, *read: str) -> list[str]:
        """The names of the arguments that are given, apart from those that are read."""
        plain = EventTime(**{name: getattr(self, name) for name in read})
        names = [each.name for each in fields(self)]
        return [name for name in names if not same_function(getattr(self, name), getattr(plain, name))]

    def time_of(self, value: Any) -> int | None:
        """The result of the time function as an int of 64 bits; None if it is not a time."""
        return time_from(value, self.zone, self.ambiguous, self.unit)

    @property
    def label(self) -> str:
        allowed = f", allowed {self.allowed}" if self.allowed else ""
        return f"event time, lateness {self._lateness}{allowed}, late {self.late}"

    @property
    def _lateness(self) -> int | str:
        return "all" if self.is_whole else self.lateness

    @property
    def clock_decides(self) -> str:
        """What the clock decides about a live source; "" for nothing."""
        return "the clock decides when it is idle" if self.idle_after_ms is not None else ""

    @property
    def may_reorder(self) -> bool:
        """Whether items may arrive in another order: not if the order decides which are late, belated or ahead."""
        return self.late == "error" and self.future_max is None and not self.allowed

    @property
    def has_unique_ties(self) -> bool:
        """Whether two payloads of one time and tie are an error: a belated item has its time by when it comes."""
        return self.tie is not None and not self.allowed

    @property
    def functions(self) -> dict[str, Callable[[Any], Any]]:
        """The user's functions by role."""
        return {"time": self.time} | ({"tie": self.tie} if self.tie is not None else {})

    @property
    def parameters(self) -> dict[str, Any]:
        """What else items are ordered by, for descriptions and fingerprints."""
        return {
            "time policy": "event time",
            "lateness": self._lateness,
            "late": self.late,
            "idle_after_ms": self.idle_after_ms,
            **({"future_max": self.future_max} if self.future_max is not None else {}),
            **({"zone": str(self.zone)} if self.zone is not None else {}),
            **({"ambiguous": self.ambiguous} if self.ambiguous != "error" else {}),
            **({"unit": self.unit} if self.unit is not None else {}),
            **({"allowed": self.allowed} if self.allowed else {}),
        }

    def with_functions(self, functions: Mapping[str, Callable[[Any], Any]]) -> EventTime:
        """This policy with other functions."""
        return replace(self, **functions)  # type: ignore[arg-type]

    @property
    def is_whole(self) -> bool:
        """Whether the input is sorted as a whole: `lateness="all"`."""
        return self.lateness >= WHOLE

    def in_order(self) -> EventTime:
        """This policy for items that come in the order of their times."""
        return replace(self, lateness=0)

    def recorded(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """The description of the policy in a record; `texts` describe its functions."""
        first = {"time": f"event, by {texts['time']}", "lateness": self._lateness, "late": self.late}
        parameters = {name: value for name, value in self.parameters.items() if name != "time policy"}
        return {**first, "tie": texts.get("tie"), **parameters}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, EventTime)
            and (self.lateness, self.late, self.idle_after_ms) == (other.lateness, other.late, other.idle_after_ms)
            and (self.future_max, self.zone, self.ambiguous) == (other.future_max, other.zone, other.ambiguous)
            and (self.unit, self.allowed) == (other.unit, other.allowed)
            and same_function(self.time, other.time)
            and same_function(self.tie, other.tie)
        )

    def __hash__(self) -> int:
        return hash((self.lateness, self.late, self.idle_after_ms))


TimePolicy = ArrivalTime | EventTime
