"""What a graph costs on Spark for rows that outgrow one machine: a model of its shuffles.

Assumptions, each a constant below: machines of 16 cores, of which tasks keep 0.8 busy, as fast as the measured one; a
disk and a network of 1 GB/s each; a task takes 2,000,000 rows, and 0.05 s beside them; of each shuffle a task reads a
block of every task before it, 20 microseconds each (those of one machine in one request after another), on all cores;
all rows go through a shuffle for each level and one for the output, are written, sent and read once, and none spills;
the driver keeps 16 bytes and a Python object, 57 bytes, for each block of 4,096 items of the digest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.scale.measured import Measured

CORES, BUSY, DISK, NETWORK, TASK_ROWS, TASK_S, BLOCK_S, HASH_BYTES = 16, 0.8, 1e9, 1e9, 2_000_000, 0.05, 20e-6, 16 + 57


@dataclass(frozen=True)
class Cost:
    """Hours of a cluster, core-hours of the rows alone, bytes through shuffles, and bytes on the driver."""

    hours: float
    core_hours: float
    shuffled: float
    driver: float
    bound: str


def cost(costs: Measured, rows: float, levels: int, machines: int) -> Cost:
    """A run over so many rows, on so many machines."""
    cores = machines * CORES
    tasks = max(math.ceil(rows / TASK_ROWS), cores)
    shuffled = rows * costs.shuffle_bytes * (levels + 1)
    seconds = {
        "rows": rows * (costs.row + levels * costs.level_row) / (cores * BUSY),
        "tasks": tasks * TASK_S * (levels + 2) / cores,
        "blocks": tasks**2 * BLOCK_S * (levels + 1) / cores,
        "disks": 2 * shuffled / (DISK * machines),
        "network": shuffled * (machines - 1) / machines / (NETWORK * machines),
    }
    hours = sum(seconds.values()) / 3600
    core_hours = rows * (costs.row + levels * costs.level_row) / 3600
    bound = max(seconds, key=lambda name: seconds[name])
    return Cost(hours, core_hours, shuffled, rows / 4096 * HASH_BYTES, bound)
