"""Where items go. A list or any callable is a sink as it is; these write lines."""

from drift.sinks.base import Sink, as_sink
from drift.sinks.lines import jsonl, stdout

__all__ = ["Sink", "as_sink", "jsonl", "stdout"]
