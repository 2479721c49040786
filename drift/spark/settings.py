"""The settings of the engine on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drift.engines.settings import Settings, anything, optional, setting
from drift_graph.numbers import why_no_int


@dataclass(frozen=True)
class SparkSettings(Settings):
    """Settings of engine "spark", in addition to those of all engines.

    Attributes:
        spark: a session to run in; None takes the active one, or starts one that ends with the run.
        master: where a session that is started runs, "local[*]" if None.
        partitions: tasks that share the keys, and the output; None for as many as run at once.
        answers: where tasks log answers of calls, a folder that all of them can reach; None where they share a disk.
    """

    spark: Any = setting(None, anything)
    master: str | None = setting(
        None, anything, "Where Spark runs: local[4], spark://HOST:PORT, yarn; else local[*] (spark)."
    )
    partitions: int | None = setting(
        None, optional(why_no_int), "Tasks that share the keys, and the output (spark).", kind=int
    )
    answers: str | None = setting(
        None, anything, "Where tasks on several machines log answers of calls: a folder all can reach (spark)."
    )
