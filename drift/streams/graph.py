"""A graph being written.

Invariant: operators are only added to its draft by its methods or those of its streams.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, TypeVar, overload

from drift.diverting import OnError, diverts
from drift.flow.joins import before_every_time
from drift.streams.adding import check_name
from drift.streams.stream import Feedback, Stream
from drift_graph.errors import GraphError, SettingsError
from drift_graph.functions import caller
from drift_graph.graph import Dataflow, Draft
from drift_graph.operators import Source
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy

U = TypeVar("U")


class Graph:
    """A graph being written. `build` returns the finished value; `drift.run`, `print` and `draw` call it themselves.

    Args:
        name: for messages and pictures.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"a graph's name is a text, not {name!r}")
        self.name = name
        self._draft = Draft(name)
        self._has_errors = False
        # for each loop being written, from the outside in: steps with timers in front of it
        self._loops: list[int] = []

    @overload
    def source(
        self, name: str, *, type: type[U], time: TimePolicy | None = ..., on_error: OnError = ...
    ) -> Stream[U]: ...

    @overload
    def source(self, name: str, *, time: TimePolicy | None = ..., on_error: OnError = ...) -> Stream[Any]: ...

    def source(
        self, name: str, *, type: Any = None, time: TimePolicy | None = None, on_error: OnError = "error"
    ) -> Stream[Any]:
        """An input of the graph; a run gets its data by name (`sources=`).

        Args:
            name: the run refers to it.
            type: of its payloads, for type checkers; nothing is checked while a graph runs.
            time: the time policy, unless the run sets another; arrival time if None.
            on_error: "error" ends the run at a line that cannot be read or an item without a time; "divert" sends it to
                the sink "errors": {"location": source and line, "error": what is wrong, "payload": what was read}. A
                row of a DataFrame on Spark without a time is always an error: rows have no order of arrival.
        """
        where = caller()
        check_name("source", name, where)
        if time is not None and not isinstance(time, (ArrivalTime, EventTime)):
            raise GraphError(
                f"source {name!r} (at {where}) has time={time!r:.80}, which is no time policy; for a function of the "
                f"payload pass drift.EventTime(function, lateness=...)"
            )
        diverting = diverts(on_error, f"source {name!r}", where)
        self._draft.add(Source(name, name, where, time or ArrivalTime(), diverting))
        stream: Stream[Any] = Stream(self, (name,))
        return stream._without_errors(name, where) if diverting else stream

    def table(self, name: str) -> Stream[Any]:
        """A source whose items come before every time: `join_table` finds all of them.

        A run reads it to its end before it releases anything. The order of its rows depends on their bytes alone.

        Args:
            name: the run refers to it.
        """
        return self.source(name, time=EventTime(time=before_every_time))

    def feedback(self, name: str) -> Feedback[Any]:
        """A stream whose items come from a later step: use it first, and close it with `stream.feed(it)`."""
        return Feedback(self, (self._draft.open_loop(name, caller()),), 0, len(self._loops))

    def build(self) -> Dataflow:
        """The graph as an immutable value.

        Raises:
            GraphError: for the first problem, with the step and the line.
        """
        return self._draft.build()

    def draw(self, path: str | Path) -> None:
        """Write a picture, .svg or .png; needs the extra `picture`."""
        from drift.show import write_picture

        write_picture(self.build(), path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.build() == other.build()

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        from drift.show import as_text

        return as_text(self.build())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from drift.show import as_mermaid, as_svg

        dataflow = self.build()
        bundle = {"text/vnd.mermaid": as_mermaid(dataflow), "text/plain": str(self)}
        with contextlib.suppress(SettingsError):  # the extra that draws is not installed
            bundle["image/svg+xml"] = as_svg(dataflow)
        return bundle
