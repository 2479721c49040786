"""The merging processes of a run, as seen by the calling process: which snapshots of checkpoints they merge.

Invariant: a small merge never waits for a large one; two merges that are done at once have no snapshot in common.

Why: a process that replaces a worker looks keys up in merged snapshots, and has to read the others whole. A large merge
takes minutes where a worker has millions of keys, and checkpoints go on meanwhile, so it has a process of its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Container

from drift.engines.zeromq.child import EngineChild
from drift.machines.nodes.recovery import DEATHS_MAX
from drift.machines.nodes.rewind_log import Merge, RewindLog
from drift_graph.errors import ProcessError
from drift_graph.meta import BEGINNING

#: A merge of more bytes, which may take more than a second, is left to the process for large ones.
_LARGE_BYTES = 1 << 22


class Merger:
    """One of the processes, once it has been started.

    Args:
        of_large: whether it does the large merges, or the others.

    Attributes:
        merge: what it does now.
    """

    def __init__(self, name: str, *, of_large: bool = False) -> None:
        self.name, self.of_large = name, of_large
        self.process: EngineChild | None = None
        self.merge: Merge | None = None


class Mergers:
    """
    Args:
        start: starts a process with a name, and listens to it.
        remove: forgets a process that has ended.

    Attributes:
        died: how many processes died since snapshots were merged.
    """

    def __init__(self, start: Callable[[str], EngineChild], remove: Callable[[EngineChild], None]) -> None:
        self._start, self._remove = start, remove
        self._mergers = Merger("merger"), Merger("merger of large snapshots", of_large=True)
        self.died = 0
        self._no_room_at = BEGINNING  # the checkpoint at which snapshots could not be merged; the next one tries again

    @property
    def processes(self) -> list[EngineChild]:
        """Those that were started."""
        return [merger.process for merger in self._mergers if merger.process is not None]

    @property
    def _under_way(self) -> list[Merge]:
        return [merger.merge for merger in self._mergers if merger.merge is not None]

    def is_behind(self, log: RewindLog) -> bool:
        """Whether snapshots are being merged, or are to be."""
        return bool(self._under_way) or any(log.due_to_merge())

    def start(self) -> None:
        """Start the process for small merges, whether there are any or not."""
        small, _ = self._mergers
        small.process = self._start(small.name)

    def listen(self, log: RewindLog, ready: Container[object]) -> None:
        """Take what the processes have merged.

        Args:
            ready: the descriptors that are readable.

        Raises:
            ProcessError: processes died again and again, and merged nothing.
        """
        for merger in self._mergers:
            if merger.process is not None and any(number in ready for number in merger.process.numbers):
                self._listen_to(merger, merger.process, log)

    def _listen_to(self, merger: Merger, process: EngineChild, log: RewindLog) -> None:
        process.listen()
        if (failure := process.failure()) is not None:
            raise failure
        for merged in process.merged:
            assert merger.merge is not None
            if merged.name:
                log.merged(merger.merge, merged.name, merged.size)
            else:
                self._no_room_at = log.since
            merger.merge, self.died = None, 0
        process.merged = []
        if process.process.has_ended:
            self._remove(process)
            merger.process = merger.merge = None
            self.died += 1
            if self.died == DEATHS_MAX:
                raise ProcessError(
                    f"the process that merges the snapshots of checkpoints died {DEATHS_MAX} times, and merged none: "
                    f"the last {process.process.how_it_ended()}; everything released before it stands. Run again; if "
                    f"it was killed for memory, use fewer workers, or run with recover=False"
                )

    def order(self, log: RewindLog) -> None:
        """Have processes that do nothing merge what is due, and start them first where that is necessary."""
        if log.since == self._no_room_at:
            return
        for merger in self._mergers:
            if merger.merge is not None:
                continue
            due = log.due_to_merge(self._under_way)
            merge = next((each for each in due if (each.size > _LARGE_BYTES) == merger.of_large), None)
            if merge is not None:
                if merger.process is None:
                    merger.process = self._start(merger.name)
                merger.merge = merge
                merger.process.order(pickle.dumps([snapshot.name for snapshot in merge.snapshots]))

    def kill(self) -> None:
        """Kill the processes: the run is over."""
        for process in self.processes:
            process.kill("the run is over")
