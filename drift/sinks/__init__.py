"""Sinks. A list or any callable is a sink; the functions here write files, tables and streams."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from drift.guarantees import SinkGuarantee
from drift.schemas import registry_encoder
from drift.sinks.base import Sink, as_sink
from drift.sinks.csv import csv
from drift.sinks.delta import delta
from drift.sinks.iceberg import iceberg
from drift.sinks.kafka import kafka
from drift.sinks.lines import jsonl, stdout
from drift.sinks.parquet import parquet
from drift.sinks.postgres import postgres
from drift.sinks.redis import redis
from drift.sinks.resuming import Found, Last, ResumingSink
from drift.sinks.sqlite import sqlite
from drift_graph.called import called_in as _called_in
from drift_graph.called import no_attribute as _no_attribute

__all__ = [
    "Found",
    "Last",
    "ResumingSink",
    "Sink",
    "SinkGuarantee",
    "as_sink",
    "csv",
    "delta",
    "iceberg",
    "jsonl",
    "kafka",
    "parquet",
    "postgres",
    "redis",
    "registry_encoder",
    "sqlite",
    "stdout",
]


def __dir__() -> list[str]:
    return __all__


#: What others call sinks, by what is written here.
_ELSEWHERE = {
    "jsonl": ("json", "write_json", "ndjson", "write_ndjson", "json_lines", "file"), "csv": ("write_csv", "to_csv"),
    "parquet": ("write_parquet", "to_parquet"), "delta": ("deltalake", "write_delta"), "iceberg": ("write_iceberg",),
    "postgres": ("postgresql", "sql", "write_database", "jdbc"), "stdout": ("print", "console"),
}  # fmt: skip

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise _no_attribute("drift.sinks", name, _ELSEWHERE)


_called_in(globals(), __all__)
