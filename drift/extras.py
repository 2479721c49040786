"""Optional packages, and how to install them.

Invariant: a feature whose libraries are not installed names the extra that installs them, before it does anything.
"""

from __future__ import annotations

from importlib.util import find_spec

from drift_graph.errors import SettingsError

#: What each extra of the distribution brings that is looked for here.
_MODULES = {
    "spark": ("pyspark", "pandas", "pyarrow", "numpy"),
    "records": ("numpy", "pyarrow"),
    "tables": ("numpy", "pyarrow"),
    "pandas": ("pandas", "pyarrow"),
    "polars": ("polars", "pyarrow"),
    "columns": ("polars", "numpy", "pyarrow"),
    "duckdb": ("duckdb", "pyarrow"),
    "parquet": ("numpy", "pyarrow"),
    "delta": ("deltalake", "numpy", "pyarrow"),
    "iceberg": ("pyiceberg", "numpy", "pyarrow"),
    "cloud": ("fsspec",),
    "postgres": ("psycopg",),
    "redis": ("redis",),
    "kafka": ("confluent_kafka",),
    "registry": ("confluent_kafka", "fastavro", "jsonschema"),
    "web": ("starlette", "uvicorn", "prometheus_client", "pygraphviz"),
    "otel": ("opentelemetry",),
    "plot": ("matplotlib", "numpy", "pyarrow"),
}


def need(extra: str, feature: str) -> None:
    """
    Raises:
        SettingsError: a library of this extra is not installed.
    """
    missing = [module for module in _MODULES[extra] if not _is_there(module)]
    if missing:
        names = " and ".join(missing)
        raise SettingsError(
            f"{feature} needs {names}, which {'are' if len(missing) > 1 else 'is'} not installed: pip install "
            f"'drifting-state[{extra}]'"
        )


def is_installed(extra: str) -> bool:
    """Whether all libraries of an extra are there."""
    return all(map(_is_there, _MODULES[extra]))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # something on the path that refuses, or a module without a spec
        return False
