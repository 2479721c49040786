"""drift on Spark: the same graph where data outgrow one machine.

Nothing here imports pyspark before it is used.
"""

from __future__ import annotations

from typing import Any, Literal

from drift.spark.session import session

__all__ = ["session", "source"]


def source(
    frame: Any, *, payload: Literal["dict", "tuple", "value"] = "dict", time: Any = None, order_by: Any = ()
) -> Any:
    """A DataFrame as a source of engine='spark'; a DataFrame by itself is one with these defaults.

    Args:
        frame: each row is a payload. It is read twice, the first time a hundredth of it: persist what is dear.
        payload: "dict" of column names and values, in the order of columns (what `drift.sources.csv` gives of a file
            whose columns are all text), a "tuple" of the values, or the "value" of the only column.
        time: a column, or an expression as text, of whole numbers or timestamps (then in milliseconds since 1970): the
            time of each row, in place of the time function of the source's policy. Nothing is late in a DataFrame.
        order_by: columns by which the rows are numbered, for a source in arrival time. What is equal in them comes in
            an order that depends on the rows alone.
    """
    from drift.spark.frames import FrameSource

    by = tuple(order_by) if isinstance(order_by, (list, tuple)) else (order_by,)
    return FrameSource(frame, payload, time, by)
