"""Where items go."""

from drift.sinks.base import Sink, as_sink

__all__ = ["Sink", "as_sink"]
