"""Breakages of what a caller of a run is given, and of what counts as taken."""

from __future__ import annotations

from broken import Breakage, one

CALLERS = ("tests/engines/test_callers.py",)
NO_CALLERS = "the harness has no state that a caller comes back to"

_BATCHES, _RUNS, _CHECKPOINTS = "drift/batches.py", "drift/running/runs.py", "drift/state/run_checkpoints.py"


def broken(name: str, file: str, old: str, new: str) -> Breakage:
    return one(name, file, old, new, CALLERS, NO_CALLERS)


SIGNALS = ("tests/engines/test_stopping.py", "-k", "during_a_write or halves")

BREAKAGES = [
    one(
        "a signal during a write is forgotten",
        "drift/cli/run.py",
        "                    interrupts.check()\n",
        "",
        SIGNALS,
        NO_CALLERS,
    ),
    one(
        "a signal may come between the halves of a message of a record",
        "drift/records/recorder.py",
        "    @undisturbed  # half a message cannot be continued\n",
        "",
        SIGNALS,
        NO_CALLERS,
    ),
    broken(
        "a checkpoint is taken before the caller has the batch",
        _RUNS,
        "                yield batch\n",
        "                if self._run_checkpoints is not None and batch.error is None:\n"
        "                    self._run_checkpoints.advance(self._engine.progress.items_in, EVERYTHING)\n"
        "                yield batch\n",
    ),
    broken(
        "a checkpoint does not wait for other threads",
        _CHECKPOINTS,
        "        while self._waiting and self._waiting[0][0] <= taken:\n",
        "        while self._waiting:\n",
    ),
    broken(
        "the last checkpoint does not wait for other threads",
        _RUNS,
        "            if self._batches.taken != EVERYTHING:\n                yield None\n",
        "",
    ),
    broken(
        "what a loop has in hand counts as taken",
        _BATCHES,
        "                self._in_hand[loop] = current.next_position\n",
        "                pass\n",
    ),
    broken(
        "what is left of a batch is dropped where batches are asked for",
        _BATCHES,
        "            batch = self._current.take_rest()\n",
        "            batch = Released(0, [], [], '')\n",
    ),
    broken(
        "a table counts as taken while it is made",
        _BATCHES,
        "            if not keeps:\n",
        "            if True:\n",
    ),
    broken(
        "sources are told of a release before the caller has it",
        _RUNS,
        "                yield batch\n",
        "                self._acknowledging.taken(batch, EVERYTHING)\n                yield batch\n",
    ),
    broken(
        "an error of a run reaches only the thread that was inside",
        _BATCHES,
        "            if self._error is not None and loop not in self._got_error:\n",
        "            if False:\n",
    ),
]
