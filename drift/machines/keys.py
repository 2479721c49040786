"""The identity of a key, and the worker that owns it.

Invariant: two keys have one identity exactly when they have equal canonical bytes.

Why: text, exact ints and None of different value or type are never equal in Python, so they stand for themselves, and
so does a tuple of nothing but these; everything else (1.0 and True, which equal 1, among them) is replaced by its
canonical bytes, and bytes are neither text nor a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xxhash

from drift.machines.differences import Difference
from drift.machines.maps import Ports, called
from drift.operators import MapsEach
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import canonical, hash64, identity
from drift_graph.errors import ImpureStep
from drift_graph.failures import check_lengths, failed_step
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns
from drift_graph.operators import Group
from drift_graph.restore import CannotRestore, restored
from drift_graph.unchanged import Sampler, are_unchangeable, changed_later, check_unchanged, difference_of
from drift_kernel import kernel

_OWNERS_MAX = 100_000
_RECENT = 8


def identities(keys: Sequence[Any]) -> Sequence[Any]:
    """A hashable identity for each key. Raises NoCanonicalForm: for a key without one."""
    if kernel is not None and kernel.are_identities(keys):
        return keys
    return list(map(identity, keys))


def form_of_identity(identity: Any) -> bytes:
    """The canonical bytes of a key, from its identity."""
    return identity if type(identity) is bytes else canonical(identity)


def identity_of(form: bytes) -> Any:
    """The identity of a key, from its canonical bytes."""
    try:
        return identity(restored(form))
    except CannotRestore:  # of a class, which is identified by its bytes
        return form


def keyed(
    group: Group, rank: bytes, columns: Columns, ports: Ports, sampler: Sampler, *, endless: bool = False
) -> tuple[Columns, Sequence[Any]]:
    """A batch and the identities of its keys; items whose key function fails leave as failures.

    So do, if the grouping is on a cycle that may be `endless`, items that have passed it too often.

    Raises:
        ImpureStep: the key function has changed a payload, or a key that it had returned before.
    """
    try:
        samples = sampler.sample(columns.payloads)
        if endless:
            check_lengths(group, columns.metas)
        keys: Any = [] if sampler.kept else called(group.key, columns.payloads)
        if not sampler.kept and (isinstance(group.key, MapsEach) or are_unchangeable(keys)):
            keys = identities(keys)
        else:
            keys = _one_by_one(group, columns.payloads, sampler)
        check_unchanged(group, samples)
        return columns, keys
    except ImpureStep:
        raise
    except BaseException as raised:
        pass_interrupts(raised)
        good, failures = Difference(), Difference()
        keys = []
        for meta, payload, diff in zip(columns.metas, columns.payloads, columns.diffs or [1] * len(columns.metas)):
            into = good
            try:
                check_lengths(group, (meta,))
                keys += identities([group.key(payload)])
            except BaseException as error:
                pass_interrupts(error)
                into, meta, payload = failures, meta + rank, failed_step(group, error, payload)
            into.metas.append(meta)
            into.payloads.append(payload)
            into.diffs.append(diff)
        ports.setdefault(FAILURES, []).append(failures.columns())
        return good.columns(), keys


def _one_by_one(group: Group, payloads: Sequence[Any], sampler: Sampler) -> list[Any]:
    """The identities of keys that may change, each taken before the next call: one object may be refilled. The last
    ones are compared again with the next.

    Raises:
        ImpureStep: it is.
    """
    found: list[Any] = []
    given: dict[int, tuple[Any, Any]] = {id(key): (key, then) for key, then in sampler.kept}
    for payload in payloads:
        key = group.key(payload)
        now = identity(key)
        _, then = given.setdefault(id(key), (key, now))
        if then != now:
            raise changed_later(group, difference_of(form_of_identity(then), key))
        found.append(now)
    for key, then in given.values():
        if identity(key) != then:
            raise changed_later(group, difference_of(form_of_identity(then), key))
    sampler.kept = [*given.values()][-_RECENT:]
    return found


class _Owners(dict[Any, int]):
    """Owners by the identities of keys, computed on first use and cached."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers = workers

    def __missing__(self, identity: Any) -> int:
        if len(self) >= _OWNERS_MAX:
            self.clear()
        owner = self[identity] = xxhash.xxh64_intdigest(form_of_identity(identity)) % self._workers
        return owner


class Partitioner:
    """The owner of a key: xxh64 of its canonical bytes, modulo the number of workers."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._owners = _Owners(workers)

    def owner(self, key: Any) -> int:
        return hash64(key) % self.workers

    def owners(self, identities: Sequence[Any]) -> list[int]:
        return list(map(self._owners.__getitem__, identities))
