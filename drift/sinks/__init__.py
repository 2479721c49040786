"""Sinks. A list or any callable is a sink; the functions here write files, tables and streams."""

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
from drift.sinks.resuming import AppendingSink, Found, Last, ResumingSink
from drift.sinks.sqlite import sqlite

__all__ = [
    "AppendingSink",
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
