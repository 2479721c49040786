"""Limits of the machines, as small as they can be: what is taken, made, kept or searched at once.

Invariant: each of `LIMITS` is there, and changes no output.

Why: a limit decides where a batch is cut, how long it waits and when something is forgotten. With the usual ones that
happens behind thousands of items, so that the few of a drawn case never meet it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from unittest import mock

from drift.engines import overflow
from drift.engines.overflow import Overflow
from drift.machines.nodes.worker import WorkerNode

#: By name of a limit, its value.
Limits = Mapping[str, int]

_BYTES, _ITEMS = (1, 60, 300), (1, 2)
_LOG = {"_SMALL_ITEMS_MAX": 1, "_ROWS_RETAINED_MIN": 0, "_HISTORIES_RETAINED_MIN": 0, "_ABOVE_ITEMS_MIN": 0}

#: Of the log of a stage that corrects itself: it keeps no more than it must.
LEAST_MEMORY: Limits = {f"drift.machines.log.{name}": value for name, value in _LOG.items()}

#: By name of a limit, small values of it.
LIMITS: Mapping[str, tuple[int, ...]] = {
    **{name: (value,) for name, value in LEAST_MEMORY.items()},
    "drift.columns.joined.UNUSED_MIN": (0, -99),
    "drift.columns.slices.UNUSED_MIN": (0, -99),
    "drift.machines.checkpoints._ROWS_RETAINED_MIN": (0,),
    "drift.machines.checkpoints._SETTLED_ROWS_MIN": (0,),
    "drift.machines.keyed._APART_MAX": _ITEMS,
    "drift.machines.keyed._APART_MIN": (1,),
    "drift.machines.keyed._SWEPT_MIN": (0,),
    "drift.machines.keys._OWNERS_MAX": (1,),
    "drift.machines.maps.ROOM_BYTES": _BYTES,
    "drift.machines.nodes.acker._FEW_ITEMS": (0,),
    "drift.machines.nodes.batching.GROWTH": (2,),
    "drift.machines.nodes.batching.MADE_MAX": _BYTES,
    "drift.machines.nodes.feeding._BATCHES_AHEAD_MAX": (1,),
    "drift.machines.nodes.links.BATCH_BYTES": _BYTES,
    "drift.machines.nodes.links._JOINED_ITEMS": _ITEMS,
    "drift.machines.nodes.snapshots._ALONE_BYTES": (1,),
    "drift.machines.nodes.snapshots._MERGED": (2,),
    "drift.machines.nodes.snapshots._TABLE_ENTRIES": (1,),
    "drift.machines.nodes.snapshots._TIER_BYTES": _BYTES,
    "drift.machines.nodes.worker._AHEAD_BYTES_MAX": _BYTES,
    "drift.machines.nodes.worker._JUDGED_ITEMS": _ITEMS,
    "drift.machines.nodes.worker._MADE_MAX": _BYTES,
    "drift.machines.nodes.worker._PATIENT_ITEMS_MIN": _ITEMS,
    "drift.machines.room.BATCH_BYTES": _BYTES,
    "drift.machines.room._AT_ONCE": _ITEMS,
    "drift.machines.sent._RETAINED_MIN": (0,),
    "drift.machines.unmapped.BATCH_BYTES": _BYTES,
    "drift.machines.unmapped.FIRST": _ITEMS,
    "drift.machines.unmapped.GROWTH": (2,),
    "drift.machines.unmapped._MADE_MAX": _BYTES,
    "drift.machines.windowing.ROOM_BYTES": _BYTES,
    "drift.machines.windowing._FIRST": _ITEMS,
    "drift.machines.worker.BATCH_BYTES": _BYTES,
    "drift.machines.worker.FIRST": _ITEMS,
    "drift.machines.worker.GROWTH": (2,),
}


def drawn(chosen: Random) -> Limits:
    """All limits, or some of them, each with a small value."""
    share = chosen.choice([1.0, 1.0, 0.5, 0.1])
    return {name: chosen.choice(values) for name, values in LIMITS.items() if chosen.random() < share}


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Machines that are made within it have these limits, and for all others the usual ones."""
    with ExitStack() as patches:
        for name, value in limits.items():
            patches.enter_context(mock.patch(name, value))
        yield


@contextmanager
def dropped_states() -> Iterator[None]:
    """Workers drop all states that they may, after each turn."""
    dropping = partial(WorkerNode, relief=partial(Overflow, 1))
    with mock.patch("drift.engines.simulated.nodes.WorkerNode", dropping), mock.patch.object(overflow, "_TURNS", 1):
        yield
