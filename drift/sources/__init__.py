"""Where items come from. Any iterable is a source as it is; these read files and live connections."""

from drift.sources.base import IterableSource, Reader, Source, as_source
from drift.sources.files import csv, jsonl, text
from drift.sources.kafka import kafka
from drift.sources.parquet import parquet
from drift.sources.redis import redis
from drift.sources.sockets import tcp_lines
from drift.sources.tables import table
from drift.sources.threads import live
from drift.sources.zeromq import zmq_pull

__all__ = [
    "IterableSource",
    "Reader",
    "Source",
    "as_source",
    "csv",
    "jsonl",
    "kafka",
    "live",
    "parquet",
    "redis",
    "table",
    "tcp_lines",
    "text",
    "zmq_pull",
]
