"""The worker gang, on the driver's side: the settings of its tasks, and whether the cluster can run them.

Invariant: a gang either starts at once or is refused at once, with an error that says what to do.

Why: a barrier stage gets all its slots or none. If there are too few, Spark checks every 15 seconds and gives up
after ten minutes; so the driver makes the same check beforehand.

With `settings.gang` a gang runs the levels whose cycles change keys: see `gang_task`. A shuffle follows the barrier
stage, so Spark restarts the whole stage when a task or an executor dies; a result stage is never retried.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import zmq

from drift_graph.errors import SettingsError

#: How long executors may take to register after the session has started.
_EXECUTORS_WAIT_S = 15.0
_EXECUTORS_POLL_S = 0.25


@dataclass(frozen=True)
class Keys:
    """The CURVE pair of a run, which every task of its gangs uses for both sides.

    Attributes:
        silence_max_s: after so long without a sign of life a task counts as lost.
    """

    public_key: bytes
    secret_key: bytes = field(repr=False)
    silence_max_s: float = 5.0


def new_keys(silence_max_s: float = 5.0) -> Keys:
    """Keys for one run."""
    if not zmq.has("curve"):
        raise SettingsError("this build of pyzmq has no CURVE, which a gang needs; install pyzmq as a wheel, from PyPI")
    return Keys(*zmq.curve_keypair(), silence_max_s)


def check_slots(spark: Any, tasks: int) -> None:
    """Whether the cluster can run so many tasks at once.

    Raises:
        SettingsError: it cannot, or has no fixed number of them.
    """
    if _setting(spark, "spark.dynamicAllocation.enabled") == "true":
        raise SettingsError(
            "a worker gang needs all its tasks at once, which Spark refuses where it allocates executors on demand; "
            "set spark.dynamicAllocation.enabled=false, or leave out gang=True"
        )
    master = _setting(spark, "spark.master")
    waits = master != "local" and not master.startswith("local[")  # in local mode the only executor is there at once
    deadline = time.monotonic() + (_EXECUTORS_WAIT_S if waits else 0)
    slots = slots_of(spark)
    while slots is not None and slots < tasks and time.monotonic() < deadline:
        time.sleep(_EXECUTORS_POLL_S)
        slots = slots_of(spark)
    if slots is not None and slots < tasks:
        raise SettingsError(
            f"a worker gang of {tasks} needs {tasks} tasks at once, and Spark ({master}) has room for {slots}; use "
            f"partitions={max(slots, 1)}, or more executors or cores (local[{tasks}], spark.executor.instances, "
            f"spark.executor.cores), or leave out gang=True"
        )


def slots_of(spark: Any) -> int | None:
    """How many tasks can run at once; None if that cannot be known beforehand (Connect with a set parallelism)."""
    if hasattr(spark, "_jsparkSession"):
        context = spark.sparkContext._jsc.sc()  # as Spark's own check does
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))
    if any(_setting(spark, name) for name in ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")):
        return None
    return int(spark.range(1 << 16).selectExpr("spark_partition_id() AS part").distinct().count())


def _setting(spark: Any, name: str) -> str:
    return str(spark.conf.get(name, None) or "")
