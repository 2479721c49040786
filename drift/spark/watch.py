"""Shows Spark's progress in the progress of a run.

Invariant: watching changes nothing but `Progress.fraction` and `held_by`, and ends with the block.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from drift.engines.base import Progress

_INTERVAL_S = 0.3


class JobPoller:
    """Polls Spark's own job status."""

    def __init__(self, spark: Any, progress: Progress) -> None:
        self._progress = progress
        self._tracker: Any = None
        with suppress(Exception):  # over Spark Connect there is none
            self._tracker = spark.sparkContext.statusTracker()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drift-spark-watch", daemon=True)

    def __enter__(self) -> JobPoller:
        if self._tracker is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5)
        self._progress.held_by = ""

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            with suppress(Exception):  # the JVM may be going
                self._poll()

    def _poll(self) -> None:
        tracker = self._tracker
        done = every = 0
        shown = ""
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                status = tracker.getStageInfo(stage)
                if status is None:
                    continue
                done += status.numCompletedTasks
                every += status.numTasks
                if status.numActiveTasks:
                    shown = f"Spark stage {stage}, {status.numCompletedTasks} of {status.numTasks} tasks"
        if every:
            self._progress.fraction = max(self._progress.fraction or 0.0, done / every)
            self._progress.held_by = shown
