"""Steps that take expressions over the fields of rows: maps that Polars computes a batch at a time (extra `columns`).

Invariant: a stream knows the fields of its rows, or takes no expression.

Why: a source says them (`graph.source(name, schema=...)`), each of these steps follows from the fields before it what
fields it gives, and every other step gives payloads of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from drift.diverting import OnError, TriedRows, diverts
from drift.extras import need
from drift.flow.fields import bound, check_fields, named_field
from drift.operators import MapsEach
from drift.streams.adding import Steps
from drift_graph.called import called
from drift_graph.errors import GraphError
from drift_graph.functions import caller, is_expression
from drift_graph.operators import Map

if TYPE_CHECKING:
    import polars as pl

    from drift.columns.expressions import Fields, Schema
    from drift.streams.stream import Stream

T = TypeVar("T")
Row = dict[str, Any]
Expression: TypeAlias = "pl.Expr | str"


@called
class Columnar(Steps[T]):
    """The steps of streams that take expressions."""

    _known: Fields | None = None

    @property
    def schema(self) -> dict[str, Any] | None:
        """Names and types (of Polars) of the fields of the rows; None if they are not known.

        They are known behind `graph.source(name, schema=...)`, behind steps that take expressions or keep rows as they
        are (`filter`, `dedup`, `limit`, `inspect`, `route`, `split`, `running`, `map_batches`), behind a `merge` of
        streams with the same, behind joins with `flat=True`, and behind `rows` of windows by one field, or none;
        printing a graph, and `drift show`, list them.

        Example:
            >>> import drift
            >>> trips = drift.Graph("fares").source("trips", schema={"km": float, "fare": float})
            >>> trips.select("km", dear="fare > 3 * km").schema
            {'km': Float64, 'dear': Boolean}
        """
        return None if self._fields is None else dict(self._fields)

    @property
    def _fields(self) -> Fields | None:
        return self._known

    @_fields.setter
    def _fields(self, fields: Fields | None) -> None:
        self._known = fields
        for origin in self._origins if fields is not None else ():
            self._graph._draft.schemas[origin] = ", ".join(f"{name}: {kind}" for name, kind in fields or ())

    def select(
        self, *expressions: Any, name: str | None = None, on_error: OnError = "error", **named: Any
    ) -> Stream[Row]:
        """Rows of these fields only: a core map with one child.

        Args:
            expressions: of Polars, or SQL texts of such, over the fields of one row.
            name: of the step.
            on_error: "error" ends the run at a row of which an expression cannot be computed; "divert" sends the row to
                the sink "errors", and the others stay columns.
            named: expressions by the names of their results.

        Raises:
            GraphError: the stream's fields are not known, or an expression does not fit them or needs other rows.

        Example:
            >>> import polars as pl
            >>> import drift
            >>> graph = drift.Graph("fares")
            >>> trips = graph.source("trips", schema={"km": float, "fare": float})
            >>> trips.select("km", per_km=pl.col("fare") / pl.col("km")).sink("out")
            >>> next(drift.run(graph, {"trips": [{"km": 2.0, "fare": 5.0}]})).payload
            {'km': 2.0, 'per_km': 2.5}
        """
        return self._computed("select", expressions, name, on_error, named)

    def with_columns(
        self, *expressions: Any, name: str | None = None, on_error: OnError = "error", **named: Any
    ) -> Stream[Row]:
        """Rows with further fields, or with other values in some: a core map with one child.

        Args:
            expressions: of Polars, or SQL texts of such, over the fields of one row.
            name: of the step.
            on_error: "error" ends the run at a row of which an expression cannot be computed; "divert" sends the row to
                the sink "errors", and the others stay columns.
            named: expressions by the names of their results.

        Raises:
            GraphError: the stream's fields are not known, or an expression does not fit them or needs other rows.

        Example:
            >>> import drift
            >>> graph = drift.Graph("fares")
            >>> trips = graph.source("trips", schema={"km": float, "fare": float})
            >>> trips.with_columns(dear="fare > 3 * km").sink("out")
            >>> next(drift.run(graph, {"trips": [{"km": 2.0, "fare": 5.0}]})).payload
            {'km': 2.0, 'fare': 5.0, 'dear': False}
        """
        return self._computed("with_columns", expressions, name, on_error, named)

    def map_batches(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        *,
        schema: Schema,
        name: str | None = None,
        on_error: OnError = "error",
        durable: bool = False,
    ) -> Stream[Row]:
        """Rows that a function makes of many at once, such as a model that predicts: a core map with one child.

        The function gets a polars.DataFrame and returns one with a row for each, in their order. How rows come in
        batches must not matter: of each batch the first row and the last two are computed by themselves as well, and
        have to come out the same.

        Args:
            function: pure; from a table with the fields of the stream to a table.
            schema: names and types of the fields of its result.
            name: of the step; by default that of the function.
            on_error: "error" ends the run if the function raises; "divert" sends the rows for which it does, each by
                itself, to the sink "errors".
            durable: whether a run with state logs the output of the step, so that later steps resume from the log.

        Raises:
            GraphError: the stream's fields are not known, or `schema` is none.

        Example:
            >>> import polars as pl
            >>> import drift
            >>> def predicted(trips: pl.DataFrame) -> pl.DataFrame:
            ...     return trips.with_columns(guess=3 + 2.5 * trips["km"])
            >>> graph = drift.Graph("fares")
            >>> trips = graph.source("trips", schema={"km": float})
            >>> trips.map_batches(predicted, schema={"km": float, "guess": float}).sink("out")
            >>> next(drift.run(graph, {"trips": [{"km": 2.0}]})).payload
            {'km': 2.0, 'guess': 8.0}
        """
        fields = self._known_fields("map_batches")
        from drift.columns.expressions import fields_of
        from drift.columns.table_functions import OnTables

        where = caller()
        made = fields_of(schema, where)
        step = self._name(name, "map_batches", function)
        stream = self._on_rows(OnTables(fields, made, function), step, on_error, where, made)
        return stream._durable_if(durable)

    def _computed(
        self,
        kind: Literal["select", "with_columns"],
        given: tuple[Any, ...],
        name: str | None,
        on_error: OnError,
        named: dict[str, Any],
    ) -> Stream[Row]:
        fields = self._known_fields(kind)
        from drift.columns.expressions import expressions

        where = caller()
        function, made = expressions(fields, given, named, kind, where)
        return self._on_rows(function, self._named(name, kind), on_error, where, made)

    def _on_rows(self, function: MapsEach, step: str, on_error: OnError, where: str, made: Fields) -> Stream[Any]:
        if diverts(on_error, f"step {step!r}", where):
            tried = self._add(Map(step, "", where, TriedRows(step, function), "one"))
            stream: Stream[Any] = tried._without_errors(step, where)
        else:
            stream = self._add(Map(step, "", where, function, "one"))
        stream._fields = made
        return stream

    def _kept(self, condition: Any, name: str | None, on_error: OnError) -> Stream[T]:
        """The rows for which an expression is true."""
        fields = self._known_fields("filter by an expression")
        from drift.columns.expressions import predicate

        where = caller()
        step, function, stream = self._named(name, "filter"), predicate(fields, condition, where), self
        if diverts(on_error, f"filter {step!r}", where):
            tried = TriedRows(step, function, keeps=True)
            stream = self._add(Map(f"{step}.tried", "", where, tried, "one"))._without_errors(step, where)
        return self._with_these_fields(stream._add(Map(step, "", where, function, "keep")))

    def _with_keys(self, given: Sequence[Any]) -> tuple[Stream[T], list[Any]]:
        """The rows with expressions that are keys as fields, and their names in place of the expressions."""
        if not any(map(is_expression, given)):
            return self, list(given)  # type: ignore[return-value]
        fields = dict(self._known_fields("key_by with an expression"))
        new = [each for each in given if is_expression(each) and not each.meta.is_column()]
        names = [each.meta.output_name() if is_expression(each) else each for each in given]
        for each in new:
            if (name := each.meta.output_name()) in fields:
                raise GraphError(
                    f"key_by({each}) (at {caller()}) is a key of the name {name!r}, which is a field of the rows; give "
                    f"it a name of its own, with .alias(...)"
                )
        return self.with_columns(*new) if new else self, names  # type: ignore[return-value]

    def _reading(self, what: str, key: Callable[[Any], Any] | str) -> Callable[[Any], Any]:
        """A key or another function of payloads, of the name of a field the one that reads it.

        Raises:
            GraphError: the rows of this stream are known, and it reads a field that they do not have.
        """
        function = named_field(key)
        check_fields(self._fields, function, what, caller)
        return function

    def _bound(self, aggregate: Any) -> Any:
        """An aggregate, with functions of this stream's rows in place of the expressions in it."""

        def bind(given: Any, where: str) -> Any:
            if not where:
                return self._reading("an aggregate", given)
            fields = self._known_fields("an aggregate")
            from drift.columns.computed import computed

            return computed(fields, given, where)

        return bound(aggregate, bind)

    def _durable_if(self, durable: bool) -> Stream[Any]:
        return self._with_these_fields(super()._durable_if(durable))

    def _with_these_fields(self, rows: Stream[Any]) -> Stream[Any]:
        rows._fields = self._fields
        return rows

    def _known_fields(self, kind: str) -> Fields:
        need("columns", f"stream.{kind}")
        if self._fields is None:
            raise GraphError(
                f"{kind} (at {caller()}) goes by the fields of rows, and those of {self!r} are not known: say them "
                f"at the source, graph.source(name, schema={{'fare': float, ...}}); behind steps whose functions of "
                f"Python make the rows, and aggregates whose types are not known, they are not known any more"
            )
        return self._fields
