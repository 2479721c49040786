"""Sources. Any iterable is a source; the functions here read files and live connections."""

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
