"""Types of Spark as types of Arrow.

Invariant: a timestamp has the zone UTC, in which rows come from tasks and go to them, whatever the zone of the session.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa


def arrow_schema(schema: Any) -> pa.Schema:
    """The schema of Arrow for one of Spark.

    Raises:
        PySparkTypeError: Arrow has no such type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    in_utc: dict[str, Any] = {}
    if "timezone" in inspect.signature(to_arrow_schema).parameters:  # without, it is UTC
        in_utc = {"timezone": "UTC"}
    return to_arrow_schema(schema, **in_utc)
