"""Delivery guarantees of sources and sinks, as data, and of a whole run, for runs that are repeated or resumed.

Invariant: if `guarantee` is "exactly once", every item of the output is in every sink once after runs that were aborted
at any moment and repeated.

Why: equal input gives equal output, item by item. So the guarantee depends on whether each source, or its log, gives
the same input again, on whether the answers of calls are logged, which are input too, and on whether each sink knows
what it has stored: no item is lost with such sources, and none is stored twice with such sinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from drift_graph.policies import TimePolicy

Rereads = Literal["from a position", "from the start", "not at all"]
Delivers = Literal["exactly once", "at least once"]
Level = Literal["exactly once", "at least once", "at most once", "none"]

_LEVELS: dict[tuple[bool, bool], Level] = {  # whether sources can be read again, and sinks know what they have stored
    (True, True): "exactly once",
    (True, False): "at least once",
    (False, True): "at most once",
    (False, False): "none",
}

_TWICE = "if its process dies between an answer and its log"
_UNLOGGED = "without state= its answers are not logged, and a repeated run may get others"


class SourceGuarantee(NamedTuple):
    """Attributes:
    rereads: from where a later run can read the same items again.
    because: the reason.
    """

    rereads: Rereads
    because: str


class SinkGuarantee(NamedTuple):
    """Attributes:
    delivers: how often an item is in the sink after runs that were aborted and repeated.
    because: the reason.
    """

    delivers: Delivers
    because: str


class Guarantee(NamedTuple):
    """The guarantee of a run for each item of its output, whatever dies and however often the run is repeated.

    Attributes:
        level: "exactly once"; "at least once": some items twice; "at most once": some lost; "none": both can happen.
        because: each source, call or sink that limits it, with the reason; empty for "exactly once".
        asks: how often calls ask about an item; "" for a graph without calls.
    """

    level: Level
    because: tuple[str, ...]
    asks: str = ""

    def __str__(self) -> str:
        said = self.level if not self.because else f"{self.level}, because of {'; of '.join(self.because)}"
        return f"{said}; {self.asks}" if self.asks else said


def guarantee(
    sources: Mapping[str, tuple[Any, TimePolicy]],
    sinks: Mapping[str, Any],
    *,
    with_state: bool,
    calls: Sequence[str] = (),
) -> Guarantee:
    """The guarantee of a run of these sources, with their time policies, into these sinks.

    Args:
        calls: the names of those that ask, or compute what cannot be repeated.
        with_state: whether the run keeps its state, with logs of sources that cannot be read again; otherwise it is
            repeated from the start.
    """
    losing = [] if with_state else [(name, why_not_reread(*each)) for name, each in sources.items()]
    limits_in = [f"source {name!r}: {why}" for name, why in losing if why]
    limits_in += [] if with_state else [f"call {name!r}: {_UNLOGGED}" for name in calls]
    limits_out = [f"sink {name!r}: {why}" for name, sink in sinks.items() if (why := _why_twice(sink))]
    if not sinks:
        again = "the item in hand and those before it, back to the last checkpoint" if with_state else "all items"
        limits_out = [f"the caller, who takes the output: a repeated run yields {again} once more"]
    asks = f"{_named(calls)} about each item once, or twice with one key, {_TWICE}" if calls else ""
    return Guarantee(_LEVELS[not limits_in, not limits_out], (*limits_in, *limits_out), asks)


def _named(calls: Sequence[str]) -> str:
    return f"call {calls[0]!r} asks" if len(calls) == 1 else f"calls {', '.join(map(repr, calls))} ask"


def gives_once(source: Any) -> bool:
    """Whether a source says that nobody can read again what it has given."""
    stated = getattr(source, "guarantee", None)
    return isinstance(stated, SourceGuarantee) and stated.rereads == "not at all"


def why_not_reread(source: Any, policy: TimePolicy) -> str:
    """Why a later run could not read the source from the start to the same effect; "" if it can."""
    stated = getattr(source, "guarantee", None)
    if not isinstance(stated, SourceGuarantee):
        return "it does not state that it can be read again"
    return stated.because if gives_once(source) else why_effect_differs(source, policy)


def why_effect_differs(source: Any, policy: TimePolicy) -> str:
    """Why the same items could have another effect when they are read again; "" if they have the same."""
    if not source.live:
        return ""
    if policy.clock_decides:
        return policy.clock_decides
    return "" if getattr(source, "same_order", True) else "it returns its items in another order each time"


def _why_twice(sink: Any) -> str:
    stated = getattr(sink, "guarantee", None)
    if not isinstance(stated, SinkGuarantee):
        return "it does not state what it has stored"
    return "" if stated.delivers == "exactly once" else stated.because
