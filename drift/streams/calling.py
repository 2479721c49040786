"""Asking the outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from drift.calling.asks import Asks, Call
from drift.diverting import OnError, diverts
from drift.streams.adding import Steps
from drift_graph.called import called
from drift_graph.functions import caller

if TYPE_CHECKING:
    from drift.streams.stream import Stream

T = TypeVar("T")
U = TypeVar("U")


class _Options(TypedDict, total=False):
    concurrency: int
    timeout_s: float | None
    retries: int
    rate_per_s: float | None
    on_error: OnError
    stub: Callable[..., Any] | None
    name: str | None


@called
class Calling(Steps[T]):
    """The method of a stream that asks."""

    # fmt: off
    @overload
    def call(
        self, ask: Callable[[list[T]], Awaitable[Sequence[U]]] | Callable[[list[T], Call], Awaitable[Sequence[U]]], *,
        batch: int, **more: Unpack[_Options],
    ) -> Stream[U]: ...
    @overload
    def call(
        self, ask: Callable[[list[T]], Sequence[U]] | Callable[[list[T], Call], Sequence[U]], *,
        batch: int, **more: Unpack[_Options],
    ) -> Stream[U]: ...
    @overload
    def call(
        self, ask: Callable[[T], Awaitable[U]] | Callable[[T, Call], Awaitable[U]], *,
        batch: None = ..., **more: Unpack[_Options],
    ) -> Stream[U]: ...
    @overload
    def call(
        self, ask: Callable[[T], U] | Callable[[T, Call], U], *,
        batch: None = ..., **more: Unpack[_Options],
    ) -> Stream[U]: ...
    # fmt: on
    def call(
        self,
        ask: Callable[..., Any],
        *,
        concurrency: int = 64,
        timeout_s: float | None = 10,
        retries: int = 3,
        rate_per_s: float | None = None,
        batch: int | None = None,
        on_error: OnError = "error",
        stub: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Stream[Any]:
        """Each payload becomes the answer of something that may give another one each time: a model, a service, a
        database, a person.

        It is asked once, when the payload is final, and the answer is logged before it is used: whoever resumes the
        run, replays it or audits it takes the answer from there. Only if the process dies between an answer and its log
        is the item asked about again, with the same key. Answers go on in the order of their payloads.

        >>> import drift
        >>> graph = drift.Graph("scored")
        >>> graph.source("texts").call(len, name="score").sink("scores")
        >>> [item.payload for item in drift.run(graph, {"texts": ["to be", "or not"]})]
        [5, 6]

        Args:
            ask: a plain function, which threads call, or a coroutine function, for one event loop. It takes the
                payload, or `(payload, call)`: `call.key`, `call.attempt`, `call.deadline` (`drift.Call`).
            concurrency: most calls in flight.
            timeout_s: how long an attempt may take; None for as long as it takes. The thread of a plain function is not
                interrupted: its answer is dropped.
            retries: further attempts of a call that has failed, after waits that double from 0.1 s to 30 s.
            rate_per_s: most attempts per second; None for no limit.
            batch: most payloads that are asked about together: `ask` takes a list, and returns a list of as many
                answers.
            on_error: "error" ends the run at the item whose last attempt failed; "divert": see `flat_map`.
            stub: asked in place of `ask` in a run with `calls="stub"`.
        """
        where, named = caller(), self._name(name, "call", ask)
        asks = Asks(
            ask, stub, concurrency, timeout_s, retries, rate_per_s, 0 if batch is None else batch,
            diverts(on_error, f"call {named!r}", where),
        )  # fmt: skip
        return self._asking(asks, named, where)
