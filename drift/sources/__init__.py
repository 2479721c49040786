"""Sources. Any iterable is a source; the functions here read files and live connections."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from drift.guarantees import SourceGuarantee
from drift.schemas import registry_decoder
from drift.sources import files as _files
from drift.sources.arguments import as_source
from drift.sources.base import Reader, Source
from drift.sources.changes import postgres_changes
from drift.sources.delta import delta
from drift.sources.iceberg import iceberg
from drift.sources.iterables import IterableSource
from drift.sources.kafka import kafka
from drift.sources.parquet import parquet
from drift.sources.paths import of_paths as _of_paths
from drift.sources.query import postgres, sqlite
from drift.sources.redis import redis
from drift.sources.sockets import tcp_lines
from drift.sources.tables import table
from drift.sources.threads import live
from drift.sources.zeromq import zmq_pull
from drift_graph.called import called_in as _called_in
from drift_graph.called import no_attribute as _no_attribute

#: A file, a folder, or a pattern such as "logs/*.txt", whose files are read in the order of their names.
text, jsonl, csv = _of_paths(_files.text), _of_paths(_files.jsonl), _of_paths(_files.csv)

__all__ = [
    "IterableSource",
    "Reader",
    "Source",
    "SourceGuarantee",
    "as_source",
    "csv",
    "delta",
    "iceberg",
    "jsonl",
    "kafka",
    "live",
    "parquet",
    "postgres",
    "postgres_changes",
    "redis",
    "registry_decoder",
    "sqlite",
    "table",
    "tcp_lines",
    "text",
    "zmq_pull",
]


def __dir__() -> list[str]:
    return __all__


#: What others call sources, by what is written here.
_ELSEWHERE = {
    "text": ("read_text", "lines", "file", "textFile"), "csv": ("read_csv", "scan_csv"),
    "jsonl": ("json", "read_json", "ndjson", "read_ndjson", "scan_ndjson", "json_lines"),
    "parquet": ("read_parquet", "scan_parquet"), "delta": ("deltalake", "read_delta", "scan_delta"),
    "iceberg": ("scan_iceberg",), "table": ("dataframe", "frame", "arrow", "polars", "pandas", "duckdb"),
    "postgres": ("postgresql", "sql", "read_sql", "read_database", "jdbc"), "postgres_changes": ("cdc", "debezium"),
    "live": ("generator", "queue", "from_iterable"), "tcp_lines": ("socket", "tcp", "socketTextStream"),
    "zmq_pull": ("zmq", "zeromq"),
}  # fmt: skip

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise _no_attribute("drift.sources", name, _ELSEWHERE)


_called_in(globals(), __all__)
