"""The output of a run as a table, in one call.

Invariant: the table has what the run releases from the call on, in order; nothing is converted twice; and nothing of
it counts as taken before the table is complete, in the form that the caller asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from drift.batches import Batches
from drift.engines.feed import Feed
from drift.extras import need
from drift.running.checks import check_names
from drift_graph.called import called
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.policies import TimePolicy

if TYPE_CHECKING:
    import duckdb
    import matplotlib.axes
    import pandas
    import polars
    import pyarrow

T = TypeVar("T")


@called
class Exports:
    """A run whose output can be exported as a table."""

    dataflow: Dataflow
    _policies: Mapping[str, TimePolicy]
    _feed: Feed
    _batches: Batches

    def to_arrow(
        self, *, of: str | None = None, columns: Sequence[str] | Mapping[str, Any] | None = None
    ) -> pyarrow.Table:
        """Run to the end, and return the output as a pyarrow.Table, with a typed column for each field of the payloads.

        Fields are those of dicts, dataclasses, msgspec Structs and named tuples; those of a tuple are called "0", "1"
        ..., and a payload without fields is in `value`. In front of them are `position`, `sink` and `time` (of the
        source, as a number); a field with such a name becomes `payload.NAME`. Items that were taken from the run before
        are not included.

        A column holds the values of its field, equal and of the same kind, or it is an error that names the value: 1
        may be 1.0 beside 1.5, but True is no number, and a text no bytes. Objects are structs, tuples and sets are
        lists, an Enum is its value, and a dict that lacks a field has None there. A column of moments has one zone; if
        it is declared with one, as `pa.timestamp("us", "UTC")`, it takes those of all zones, and numbers of its unit.

        Args:
            of: the sink whose items are exported, those of others are dropped; None for all sinks.
            columns: names of the fields, for tuples in their order; or their Arrow types by name.

        Raises:
            PayloadError: payloads do not have these fields, or no one type holds the values of a field.
            SettingsError: the run has ended; its output was taken before.
        """
        return self._exported(of, columns, "to_arrow", lambda table: table)

    def _exported(
        self,
        of: str | None,
        columns: Sequence[str] | Mapping[str, Any] | None,
        what: str,
        convert: Callable[[pyarrow.Table], T],
    ) -> T:
        need("tables", what)
        from drift.tables import table_of

        if of is not None:
            check_names("sink", {sink.name for sink in self.dataflow.sinks}, {of: None}, self.dataflow)
        if self._batches.ended:
            raise SettingsError(
                f"this run of graph {self.dataflow.name!r} has ended, and its output was taken, or dropped, before; a "
                f"run gives each item once: make the table of a run that has not begun. For several sinks of one run, "
                f"give all but one of them a list: drift.run(..., sinks={{NAME: []}})"
            )
        loop = self._batches.loop
        exported = convert(table_of(iter(loop.batch_kept, None), of, columns))
        loop.batch()  # the run may end now: a checkpoint with state= is not above what the caller has taken
        return exported

    def to_pandas(
        self, *, of: str | None = None, columns: Sequence[str] | Mapping[str, Any] | None = None
    ) -> pandas.DataFrame:
        """As `to_arrow`, as a DataFrame of pandas, where a None beside numbers or moments is NaN or NaT."""
        need("pandas", "to_pandas")
        from drift.frames import in_pandas

        return self._exported(of, columns, "to_pandas", in_pandas)

    def to_polars(
        self, *, of: str | None = None, columns: Sequence[str] | Mapping[str, Any] | None = None
    ) -> polars.DataFrame:
        """As `to_arrow`, as a DataFrame of Polars."""
        need("polars", "to_polars")
        from drift.frames import in_polars

        return self._exported(of, columns, "to_polars", in_polars)

    def plot(self, *, of: str | None = None, value: str | None = None, by: str | None = None) -> matplotlib.axes.Axes:
        """Run to the end, and plot a number of the output over time, with matplotlib.

        Times are dates in UTC where they are known to be moments: numbers with a `unit`, and what the time function
        gives as moments or texts; and numbers that are milliseconds since 1970 from 2001 to 2286.

        Args:
            of: as for `to_arrow`.
            value: the field that is plotted; not needed if "value" is one, or only one is a number.
            by: a field for whose values there is a line each; not needed for "key".

        Raises:
            PayloadError: as `to_arrow`.
            SettingsError: there is no such field; or it is no number, or several are; or the run has ended.
        """
        need("plot", "plot")
        from drift.running.plotting import has_moments, plotted

        firsts = self._feed.firsts = {}

        def plot(table: Any) -> matplotlib.axes.Axes:
            dated = any(has_moments(each, self._policies[each.name], firsts) for each in self.dataflow.sources)
            return plotted(table, of or self.dataflow.name, value, by, dated=dated)

        return self._exported(of, None, "plot", plot)

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        *,
        of: str | None = None,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """As `to_arrow`, as a relation of DuckDB, for queries: `run.to_duckdb().filter("n > 3")`.

        DuckDB has moments without their zones, and shows them in that of its session.

        Args:
            connection: of the relation; DuckDB's default connection if None.
        """
        need("duckdb", "to_duckdb")
        import duckdb

        from drift.frames import in_duckdb

        relation = duckdb.from_arrow if connection is None else connection.from_arrow
        return self._exported(of, columns, "to_duckdb", lambda table: in_duckdb(table, relation))
