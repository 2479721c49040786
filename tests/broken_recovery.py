"""Breakages of the way back from deaths."""

from __future__ import annotations

from broken import Breakage, Edit, one

DEATHS = ("tests/engines/test_deaths.py",)
NO_DEATHS = "the harness lets processes die only where it is asked to"

_NODES = "drift/machines/nodes"
_ACKER, _BARRIER, _FEED = f"{_NODES}/acker.py", f"{_NODES}/barrier.py", f"{_NODES}/feeding.py"
_KEEPING, _LINKS, _NODE = f"{_NODES}/rewind_log.py", f"{_NODES}/links.py", f"{_NODES}/node.py"
_RECOVERY, _WORKER, _SNAPSHOTS = f"{_NODES}/recovery.py", f"{_NODES}/worker.py", f"{_NODES}/snapshots.py"
_NETWORK = "drift/engines/simulated/network.py"


_HOSTS = "tests/engines/test_hosts.py"
_SHELF = ("tests/machines/test_shelf.py",)


def broken(name: str, file: str, old: str, new: str) -> Breakage:
    return one(name, file, old, new, DEATHS, NO_DEATHS)


BREAKAGES = [
    broken(
        "messages of older generations are taken",
        _NETWORK,
        "        if event.generation != self._nodes[event.to].generation:\n",
        "        if False:\n",
    ),
    broken(
        "all go back to a time that minimal time has not reached",
        _ACKER,
        "        return Halted(order.generation, max(self.table.minimal_time, self._reached))\n",
        "        return Halted(order.generation, max(self.table.least_in_flight, self._reached))\n",
    ),
    broken(
        "all go back to the least minimal time that somebody heard of",
        _RECOVERY,
        "        checkpoint = max([self._feed.minimal_time,",
        "        checkpoint = min([self._feed.minimal_time,",
    ),
    broken(
        "an item at the checkpoint is not fed again",
        _KEEPING,
        "cut_columns(columns, order.checkpoint, ABOVE_ALL)",
        'cut_columns(columns, order.checkpoint + b"\\xff", ABOVE_ALL)',
    ),
    broken(
        "what was to be fed again is not, after another death",
        _KEEPING,
        "        for name, rank, arrived in chain([fed for _, fed in self._fed], unfed):\n            columns",
        "        for name, rank, arrived in [fed for _, fed in self._fed]:\n            columns",
    ),
    broken(
        "a snapshot has the latest states",
        "drift/machines/checkpoints.py",
        "        return self.as_of(checkpoint, keys)\n",
        "        return self.as_of(b'\\xff' * 9, keys)\n",
    ),
    broken(
        "a new table keeps the heartbeats",
        _ACKER,
        "        self.table = AckTable(range(self._sources + len(self._workers)), order.since)\n",
        "        before = {rank: beat for rank, beat in self.table._heartbeats.items() if rank < self._sources}\n"
        "        self.table = AckTable(range(self._sources + len(self._workers)), order.since)\n"
        "        self.table._heartbeats.update(before)\n",
    ),
    broken(
        "link logs keep what is sent anew",
        _LINKS,
        "        self._checkpoints.append((generation, checkpoint))\n",
        "",
    ),
    broken(
        "a batch that is cut to nothing is sent again",
        _LINKS,
        "            if not parts:\n                continue\n",
        "",
    ),
    broken(
        "who begins anew keeps no link logs",
        _WORKER,
        "                logged = self.links.log(receiver, parts) if self.links is not None else None\n",
        "                logged = None\n"
        "                if self.links is not None and self._order is None:\n"
        "                    logged = self.links.log(receiver, parts)\n",
    ),
    broken(
        "who begins anew sends what others have had",
        _WORKER,
        "        rest = cut_parts(parts, order.checkpoint, ABOVE_ALL)\n",
        "        rest = parts\n",
    ),
    broken(
        "the barrier keeps what will come again",
        _BARRIER,
        "            self.machine.rewind(order.checkpoint)\n",
        "",
    ),
    broken(
        "a barrier that begins anew releases again what was received",
        _BARRIER,
        "        self.machine.resume(position, last, digest_of(order.restart, self._digest, self._new_parts))\n",
        "        self.machine.resume(position, BEGINNING, digest_of(order.restart, self._digest, self._new_parts))\n"
        "        self._passes_over = BEGINNING\n"
        "        order = Rewind(order.generation, BEGINNING, order.since, order.replaced, order.restart)\n",
    ),
    broken(
        "the digest of a barrier that begins anew begins anew",
        _BARRIER,
        "    digest.resume(restart.blocks, restart.opened)\n",
        "    digest.resume(restart.blocks, ())\n",
    ),
    broken(
        "what was released is not waited for",
        _RECOVERY,
        "        if self._order is not None or self._starting or self._awaited or not self._has_all_released():\n",
        "        if self._order is not None or self._starting or self._awaited:\n",
    ),
    broken(
        "link logs go before the checkpoint is committed",
        _WORKER,
        "            self._take_snapshot(notice.time)\n",
        "            self._take_snapshot(notice.time)\n            assert self.links is not None\n"
        "            self.links.commit(notice.time)\n",
    ),
    one(
        "the next checkpoint does not wait by what the last one took",
        f"{_NODES}/checkpointing.py",
        "        return now_s >= max(self._next_s, self._taken_s + price * self._cost_s * share)\n",
        "        return now_s >= self._next_s\n",
        ("tests/machines/test_checkpointing.py",),
        NO_DEATHS,
    ),
    one(
        "link logs grow without end where checkpoints are dear",
        f"{_NODES}/checkpointing.py",
        "        if log_bytes > self._bytes_max:\n            return True\n",
        "",
        ("tests/machines/test_checkpointing.py",),
        NO_DEATHS,
    ),
    one(
        "link logs grow without end where there is no room for checkpoints",
        f"{_NODES}/rewind_log.py",
        " and self._log_bytes > LOG_BYTES_FULL\n",
        " and False\n",
        ("tests/machines/test_checkpointing.py",),
        NO_DEATHS,
    ),
    one(
        "keys that were settled last are in no checkpoint",
        "drift/machines/checkpoints.py",
        "        self._fold()\n        found, self._settled = self._settled, {}\n",
        "        found, self._settled = self._settled, {}\n",
        ("tests/state/test_checkpoints.py",),
        NO_DEATHS,
    ),
    broken(
        "snapshots that were not committed are not sent again",
        _WORKER,
        "            self._snapshots = [*self._snapshots, SnapshotName(checkpoint, *self._shelf.put(snapshot))]\n",
        "            self._snapshots = [SnapshotName(checkpoint, *self._shelf.put(snapshot))]\n",
    ),
    one(
        "a worker on another machine keeps all snapshots that it has sent",
        "drift/engines/zeromq/roles.py",
        "sorted(self._sent - names)",
        "()",
        _SHELF,
        NO_DEATHS,
    ),
    one(
        "an older snapshot hides a newer one",
        _SNAPSHOTS,
        "    lookup = lookup_in(list(reversed(layers)), base)\n",
        "    lookup = lookup_in(list(layers), base)\n",
        _SHELF,
        NO_DEATHS,
    ),
    one(
        "a key that is gone is looked for in older snapshots",
        _SNAPSHOTS,
        "                    keys = [key for key in keys if key not in values]\n",
        "                    keys = [key for key in keys if values.get(key, DELETED) is DELETED]\n",
        _SHELF,
        NO_DEATHS,
    ),
    one(
        "who begins anew has no timers",
        _SNAPSHOTS,
        "            at_once[step] = Entries.of(lookup(step)(keys))\n",
        "            at_once[step] = Entries.of(())\n",
        _SHELF,
        NO_DEATHS,
    ),
    broken(
        "later items of survivors are not sent again",
        _WORKER,
        "            self._later_sends = self.machine.rewind(order.checkpoint)\n",
        "            self.machine.rewind(order.checkpoint)\n            self._later_sends = {}\n",
    ),
    broken(
        "some go on before all have gone back",
        _RECOVERY,
        "        if self._awaited:\n            return []\n        self.rewinding = False\n",
        "        if not self.rewinding:\n            return []\n        self.rewinding = False\n",
    ),
    Breakage(
        "minimal time goes on before all have sent again what they kept",
        [
            Edit(
                _ACKER,
                "        self.table = AckTable(range(self._sources + len(self._workers)), order.since)\n",
                "        self.table = AckTable(range(self._sources + len(self._workers)), order.since)\n"
                "        self.table._heartbeats.update((rank, b'\\xff' * 10) for rank in "
                "range(self._sources, self._sources + len(self._workers)))\n",
            )
        ],
        DEATHS,
        NO_DEATHS,
    ),
    *(
        one(name, f"drift/segments/{file}", old, new, tests, NO_DEATHS)
        for name, file, old, new, tests in (
            (
                "what a segment gives once more passes its border once more",
                "feed.py",
                "        new = passed.from_on(self.log.end)\n",
                "        new = passed\n",
                ("tests/engines/test_recovery_acceptance.py",),
            ),
            (
                "a segment does not read what the log has above its checkpoint",
                "feed.py",
                "        self._logged = self._before.log.read(checkpoint)\n",
                "        self._logged = iter(())\n",
                ("tests/engines/test_segments.py",),
            ),
            (
                "a segment goes on from its newest checkpoint though its log is gone",
                "chain.py",
                " if before.log.joins(checkpoint.at, after)]",
                "]",
                ("tests/engines/test_recovery_acceptance.py",),
            ),
        )
    ),
    *(
        one(name, f"drift/engines/zeromq/{file}", old, new, (_HOSTS, *chosen), "it has no machines")
        for name, file, old, new, *chosen in (
            (
                "a replacement on another machine does not get its snapshots",
                "engine.py",
                "                    child.process.bring(Path(self._folder), effect.order.snapshots)\n",
                "                    pass\n",
                "-k",
                "killed",
            ),
            (
                "a snapshot on another machine is named, and not sent",
                "roles.py",
                "        if self.shelf is None:\n            return\n",
                "        return\n",
                "-k",
                "killed",
            ),
            (
                "a broken connection between two machines is not noticed",
                "sockets.py",
                "        return self.lost\n",
                "        return False\n",
                "-k",
                "noticed",
            ),
            (
                "nobody looks whether a machine has other code",
                "process.py",
                '    if found["digest"] == wanted["digest"]:\n',
                "    if True:\n",
                "-k",
                "other_code",
            ),
            (
                "a machine with other versions takes part",
                "hosts.py",
                "        if wrong:\n",
                "        if False:\n",
                "-k",
                "other_version",
            ),
        )
    ),
    one(
        "the search for durable steps ends before all that may be cheaper",
        "drift/planning/model.py",
        "        return self._cost(self.rate * items * self.store.passing_s, self.rate * size, 0.0)\n",
        "        return 9 * self._cost(self.rate * items * self.store.passing_s, self.rate * size, 0.0)\n",
        ("tests/planning/test_planning.py",),
        "it is no part of a run",
    ),
    one(
        "a segment drops checkpoints that the next one may still need",
        "drift/state/run_checkpoints.py",
        "ceil(after / max(own, 0.001)) + 2",
        "0",
        ("tests/planning/test_planning.py",),
        "no log is lost in the harness",
    ),
]
