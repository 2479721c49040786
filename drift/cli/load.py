"""FILE:NAME on the command line; see `drift.load`."""

from __future__ import annotations

from drift.load import load_dataflow, load_function, load_module, users_trace

__all__ = ["load_dataflow", "load_function", "load_module", "users_trace"]
