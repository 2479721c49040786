"""What is declared of a call, and what its function is told.

Invariant: the key of a call depends on the graph's name, the step and the item's meta alone, so it is the same for each
attempt, restart and replay on any engine, and no other call has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import xxhash

from drift.operators import _ByValue
from drift_graph.canonical import canonical
from drift_graph.errors import DriftBug, GraphError, SettingsError
from drift_graph.functions import caller, check_function, name_of
from drift_graph.graph import Dataflow
from drift_graph.numbers import why_no_int, why_no_seconds
from drift_graph.operators import Map


@dataclass(frozen=True, slots=True)
class Call:
    """What a function that takes `(payload, call)` is told.

    Attributes:
        key: of idempotency, 32 hexadecimal digits: the same for each attempt, restart and replay of this item, and of
            no other. With `batch=`, of the items that are asked about together.
        keys: with `batch=`, the key of each item; otherwise the key alone.
        attempt: 1, and one more for each retry in this process.
        deadline: when the attempt counts as failed, on `time.monotonic`; None without `timeout_s`.
    """

    key: str
    keys: tuple[str, ...]
    attempt: int
    deadline: float | None


class Asks(_ByValue, frozen=True):
    """The function of a call's map; its output is asked for where a segment ends (`drift_graph.segments`).

    Attributes:
        function: of a payload, or of a payload and its `Call`; with `batch`, of a list of payloads.
        stub: asked in its place with `calls="stub"`.
        batch: most payloads that are asked about together; 0 for one, that is no list.
        diverts: whether an item whose call fails is diverted.
        at_once: whether it is called where its answer is needed, and not in a thread: it takes no time.
    """

    function: Callable[..., Any]
    stub: Callable[..., Any] | None = None
    concurrency: int = 64
    timeout_s: float | None = 10
    retries: int = 3
    rate_per_s: float | None = None
    batch: int = 0
    diverts: bool = False
    at_once: bool = False

    asks: ClassVar[bool] = True

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.function

    def __call__(self, payload: Any) -> Any:
        raise DriftBug(f"a call was computed like a map, with {payload!r:.80}; its answer comes from outside")


class Recorded(_ByValue, frozen=True):
    """A function whose results are recorded; see `recorded`. A map takes the function out of it."""

    function: Callable[..., Any]

    only_in_maps: ClassVar[bool] = True

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.function

    def __call__(self, *arguments: Any) -> Any:
        raise GraphError(
            f"drift.recorded({name_of(self.function)}) was called by another function, so its result would not be "
            f"recorded: give it to stream.map, and let the function read what that step gave"
        )


def recorded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A small function that gives another result each time, for `stream.map`: it reads a clock, a random number or the
    environment. Its results are logged and recorded like answers of calls, and taken from there.

    Such a map is a step of its own: it is computed for settled items, one after the other, in the calling process. It
    is not retried, and has no limit of time.

    >>> import drift, time
    >>> graph = drift.Graph("stamped")
    >>> graph.source("lines").map(drift.recorded(lambda line: (time.time(), line))).sink("out")
    >>> [item.payload[1] for item in drift.run(graph, {"lines": ["a", "b"]})]
    ['a', 'b']
    """
    check_function("recorded", function, "a function of a payload")
    return Recorded(function)


_COUNTS = {"concurrency": 1, "retries": 0, "batch": 0}  # the least of each


def checked(asks: Asks, step: str) -> Asks:
    """Check the settings of a call; returns the call. Raises GraphError: a setting is invalid."""
    whys = {name: why_no_int(getattr(asks, name), least) for name, least in _COUNTS.items()}
    for name in ("timeout_s", "rate_per_s"):
        if getattr(asks, name) is not None and why_no_seconds(getattr(asks, name)):
            whys[name] = "neither None nor a number above 0"
    wrong = next((f"{name}={getattr(asks, name)!r:.80} is {why}" for name, why in whys.items() if why), "")
    if wrong:
        raise GraphError(f"call {step!r} (at {caller()}): {wrong}")
    for function in (asks.function, asks.stub):
        if function is not None:
            check_function(f"call {step!r}", function, "a function of a payload, or of a payload and its call")
    return asks


def takes_call(function: Callable[..., Any]) -> bool:
    """Whether a function takes its `Call` after the payload."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [each for each in parameters if each.kind in kinds]
    return len(positional) > 1 and (positional[1].default is inspect.Parameter.empty or positional[1].name == "call")


def is_coroutine(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def key_of(graph: str, step: str, meta: bytes) -> str:
    """The key of idempotency of one item's call."""
    return xxhash.xxh3_128_hexdigest(canonical([graph, step, meta]))


def key_together(keys: Sequence[str]) -> str:
    """The key of a call about several items."""
    return keys[0] if len(keys) == 1 else xxhash.xxh3_128_hexdigest("".join(keys).encode())


def calls_of(dataflow: Dataflow) -> dict[str, Asks]:
    """The calls of a graph, by the names of their operators."""
    maps = [(each.name, each.function) for each in dataflow.operators if isinstance(each, Map)]
    return {name: function for name, function in maps if isinstance(function, Asks)}


#: What a run does at calls: ask, take answers that are there and ask nothing, or ask stubs; or what to ask, by call.
Calls = Literal["ask", "replay", "stub"] | Mapping[str, Callable[..., Any]]


def as_asked(dataflow: Dataflow, calls: Calls) -> Dataflow:
    """A graph whose calls ask what a run is told to.

    Raises:
        SettingsError: `calls` is invalid, or a call has no stub.
    """
    if isinstance(calls, Mapping):
        return with_functions(dataflow, calls)
    if calls not in ("ask", "replay", "stub"):
        raise SettingsError(
            f"calls={calls!r:.80} is none of 'ask', 'replay' and 'stub', nor a dict with a function for calls by name"
        )
    if calls != "stub":
        return dataflow
    stubs = {name: asks.stub for name, asks in calls_of(dataflow).items()}
    for name, stub in stubs.items():
        if stub is None:
            raise SettingsError(
                f"calls='stub': call {name!r} of graph {dataflow.name!r} has none; declare one, "
                f"call(..., stub=function), or pass calls={{{name!r}: function}}"
            )
    return with_functions(dataflow, {name: stub for name, stub in stubs.items() if stub is not None})


def with_functions(dataflow: Dataflow, functions: Mapping[str, Callable[..., Any]]) -> Dataflow:
    """A graph some of whose calls ask other functions, one payload at a time or several as the call does.

    Raises:
        SettingsError: a name is that of no call.
    """
    calls = calls_of(dataflow)
    for name, function in functions.items():
        if name not in calls:
            known = ", ".join(map(repr, calls)) or "none"
            raise SettingsError(f"calls={{{name!r}: ...}}: graph {dataflow.name!r} has no such call; it has {known}")
        if not callable(function):
            raise SettingsError(f"calls={{{name!r}: {function!r:.80}}} is no function")
    operators = tuple(
        replace(each, function=_replaced(each.function, functions[each.name])) if each.name in functions else each  # type: ignore[attr-defined, call-arg]
        for each in dataflow.operators
    )
    return replace(dataflow, operators=operators)


def _replaced(asks: Asks, function: Callable[..., Any]) -> Asks:
    fields = {name: getattr(asks, name) for name in asks.__struct_fields__}
    return Asks(**{**fields, "function": function})
