"""A graph being written.

Invariant: operators are only added to its draft by its methods or those of its streams.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from drift.diverting import OnError, diverts
from drift.extras import need
from drift.flow.fields import policy_of_fields
from drift.flow.joins import before_every_time
from drift.streams.adding import ERRORS, check_name
from drift.streams.stream import Feedback, Stream
from drift_graph.called import called
from drift_graph.errors import GraphError, SettingsError
from drift_graph.functions import caller
from drift_graph.graph import Dataflow, Draft
from drift_graph.operators import Source
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

U = TypeVar("U")


@called
class Graph:
    """A graph being written. `build` returns the finished value; `drift.run`, `print` and `draw` call it themselves.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").filter(lambda fare: fare > 20).sink("dear")
    >>> [item.payload for item in drift.run(graph, {"fares": [30.5, 9.0]})]
    [30.5]

    Args:
        name: for messages and pictures.

    Raises:
        GraphError: the name is no text, or empty.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"a graph's name is a text, not {name!r}")
        self.name = name
        self._draft = Draft(name)
        self._diverts_to: set[str] = set()  # sinks of errors and late items
        # for each loop being written, from the outside in: steps with timers in front of it
        self._loops: list[int] = []

    @overload
    def source(
        self, name: str, *, type: type[U], time: TimePolicy | None = ..., on_error: OnError = ..., late: str = ...
    ) -> Stream[U]: ...

    @overload
    def source(
        self,
        name: str,
        *,
        schema: Mapping[str, Any] | type[DataclassInstance],
        time: TimePolicy | None = ...,
        on_error: OnError = ...,
        late: str = ...,
    ) -> Stream[dict[str, Any]]: ...

    @overload
    def source(
        self,
        name: str,
        *,
        schema: type[U],
        time: TimePolicy | None = ...,
        on_error: OnError = ...,
        late: str = ...,
    ) -> Stream[U]: ...

    @overload
    def source(
        self, name: str, *, time: TimePolicy | None = ..., on_error: OnError = ..., late: str = ...
    ) -> Stream[Any]: ...

    def source(
        self,
        name: str,
        *,
        type: Any = None,
        schema: Mapping[str, Any] | builtins.type[Any] | None = None,
        time: TimePolicy | None = None,
        on_error: OnError = "error",
        late: str = "",
    ) -> Stream[Any]:
        """An input of the graph; a run gets its data by name (`sources=`).

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> graph.source("words", time=drift.EventTime(time=len)).sink("all words")
        >>> [item.payload for item in drift.run(graph, {"words": ["be", "not"]})]
        ['be', 'not']

        Args:
            name: the run refers to it.
            type: of its payloads, for type checkers; nothing is checked while a graph runs.
            schema: of payloads that are dicts: names and types (of Polars or Python) of their fields, or a TypedDict,
                by which type checkers know the payloads, or a dataclass that has the fields; for steps that
                take expressions, such as `select`; needs the extra `columns`. Files of CSV and JSON are read as such
                rows, and a payload that is none is as a line that cannot be read.
            time: the time policy, unless the run sets another; arrival time if None.
            on_error: "error" ends the run at a line that cannot be read or an item without a time; "divert" sends it to
                the sink "errors": {"location": source and line, "error": what is wrong, "payload": what was read}. A
                row of a DataFrame on Spark without a time is always an error: rows have no order of arrival.
            late: the name of a sink that gets the late items, and those beyond `future_max`, whatever the time policy
                does with them: payloads as of "errors", in the order of the output and with the guarantee of the sink.

        Raises:
            GraphError: the name is taken or no name, or another argument is none of these.
        """
        where = caller()
        check_name("source", name, where)
        if time is not None and not isinstance(time, TimePolicy):
            raise GraphError(
                f"source {name!r} (at {where}) has time={time!r:.80}, which is no time policy; for a function of the "
                f"payload pass drift.EventTime(function, lateness=...)"
            )
        diverting = diverts(on_error, f"source {name!r}", where)
        if late != "":
            check_name("sink", late, where)
        if late == ERRORS:
            raise GraphError(
                f"source {name!r} (at {where}) has late={late!r}, which is the sink of what cannot be read"
            )
        fields = rows = None
        if schema is not None:
            need("columns", f"source {name!r} with a schema")
            from drift.columns.expressions import fields_of
            from drift.columns.schema_rows import SchemaRows

            fields = fields_of(schema, where)
            rows = SchemaRows(fields)
        policy = policy_of_fields(time or ArrivalTime(), fields, f"source {name!r}", where)
        self._draft.add(Source(name, name, where, policy, diverting, bool(late), rows=rows))
        stream: Stream[Any] = Stream(self, (name,))
        if diverting or late:
            stream = stream._without_errors(name, where, errors=diverting, late=late)
        if fields is not None:
            stream._fields = fields
        return stream

    @overload
    def table(self, name: str, *, schema: type[DataclassInstance]) -> Stream[dict[str, Any]]: ...
    @overload
    def table(self, name: str, *, schema: type[U]) -> Stream[U]: ...
    @overload
    def table(self, name: str, *, schema: Mapping[str, Any] | None = ...) -> Stream[Any]: ...
    def table(self, name: str, *, schema: Mapping[str, Any] | type[Any] | None = None) -> Stream[Any]:
        """A source whose items come before every time: `join_table` finds all of them.

        A run reads it to its end before it releases anything. The order of its rows depends on their bytes alone.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> names = graph.table("names")
        >>> graph.source("ids").join_table(names, lambda number: number, table_key=lambda row: row[0]).sink("named")
        >>> [item.payload for item in drift.run(graph, {"names": [(1, "Al")], "ids": [1, 2]})]
        [(1, (1, 'Al')), (2, None)]

        Args:
            name: the run refers to it.
            schema: see `source`.
        """
        time = EventTime(time=before_every_time)
        given: Any = schema
        return self.source(name, time=time) if schema is None else self.source(name, schema=given, time=time)

    def feedback(self, name: str) -> Feedback[Any]:
        """A stream whose items come from a later step: use it first, and close it with `stream.feed(it)`.

        >>> import drift
        >>> graph = drift.Graph("example")
        >>> halves = graph.feedback("halves")
        >>> numbers = graph.source("numbers").merge(halves).group(lambda number: None, 1).flatten()
        >>> numbers.flat_map(lambda number: [number // 2] if number > 1 else []).feed(halves)
        >>> numbers.sink("all")
        >>> [item.payload for item in drift.run(graph, {"numbers": [5, 3]})]
        [1, 2, 5, 1, 3]
        """
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
        try:
            drawn = {"image/svg+xml": as_svg(dataflow)}
        except (
            SettingsError
        ):  # the extra that draws is not installed; beside the picture, notebooks may prefer this one
            drawn = {"text/vnd.mermaid": as_mermaid(dataflow)}
        return {**drawn, "text/plain": str(self)}
