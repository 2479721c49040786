"""Breakages of what a caller of a run is given, and of what counts as taken."""

from __future__ import annotations

from broken import Breakage, one

CALLERS = ("tests/engines/test_callers.py",)
NO_CALLERS = "the harness has no state that a caller comes back to"

_BATCHES, _RUNS, _CHECKPOINTS = "drift/batches.py", "drift/running/runs.py", "drift/state/run_checkpoints.py"


def broken(name: str, file: str, old: str, new: str) -> Breakage:
    return one(name, file, old, new, CALLERS, NO_CALLERS)


AGAIN = "tests/engines/test_called_again.py"
SERVERS_AGAIN = ("tests/sources/test_sources_called_again.py",)
EMPTIED = ("tests/sinks/test_delta.py", "tests/sinks/test_iceberg.py", "-k", "emptied")
_FEED = "drift/engines/source_feed.py"


def again(name: str, file: str, old: str, new: str, which: str) -> Breakage:
    """`which` tests, since the libraries of all kinds of sources together take more memory than breakages may have."""
    return one(name, file, old, new, (AGAIN, "-k", which), NO_CALLERS)


def of_servers(name: str, file: str, old: str, new: str, tests: tuple[str, ...] = SERVERS_AGAIN) -> Breakage:
    return one(name, file, old, new, tests, NO_CALLERS)


SIGNALS = ("tests/engines/test_stopping.py", "-k", "during_a_write or halves")

BREAKAGES = [
    of_servers(
        "the end of a paused call is that of the next",
        "drift/sources/redis.py",
        "self._end, self._lasting_end = self._present_end, None",
        "self._end = self._present_end",
        (*SERVERS_AGAIN, "-k", "pause and redis"),
    ),
    of_servers(
        "the end of a paused call is that of the next, of a topic",
        "drift/sources/offsets.py",
        "self.ends, self._has_no_end = self._present_ends, True",
        "self.ends = self._present_ends",
        (*SERVERS_AGAIN, "-k", "offsets"),
    ),
    of_servers(
        "a partition that was added behind a pause is not read",
        "drift/sources/offsets.py",
        "found.first if has_ends else found.end",
        "found.first",
        (*SERVERS_AGAIN, "-k", "offsets"),
    ),
    again(
        "what a run that is over finds is not refused",
        _CHECKPOINTS,
        "        if _is_over(self._store) and not self._goes_back:\n",
        "        if False:\n",
        "refuses_what_is_new and lines",
    ),
    again(
        "items in memory are found again by their number alone",
        "drift/sources/positions.py",
        """if position.get("mark") and position["mark"] != mark_of(payloads):""",
        "if False:",
        "another_order and list",
    ),
    again(
        "a diverted row is known again",
        "drift/sources/positions.py",
        "is_item = len(payloads) and not is_diverted(payloads[-1])",
        "is_item = len(payloads)",
        "diverted_row",
    ),
    again(
        "the last item of a list has no mark",
        "drift/sources/iterables.py",
        """self._mark, self._unmarked = mark_of(self._unmarked), []""",
        """self._mark, self._unmarked = "", []""",
        "another_order and list",
    ),
    again(
        "a source that gives once is read by a run that is over",
        _RUNS,
        "            if state is not None and is_over:\n",
        "            if False:\n",
        "given_once_is_refused",
    ),
    again(
        "input that ends is complete, whatever the call says",
        _FEED,
        "        elif payloads is None and refused is None and not self._is_complete:\n",
        "        elif False:\n",
        "completed and lines",
    ),
    again(
        "a source that has paused promises that nothing of its last time comes",
        _FEED,
        "            self.intake.paused.add(rank)\n            return None\n",
        "            self.intake.paused.add(rank)\n"
        "            return self.intake.beat(rank, self.intake.machines[rank].above_all_items())\n",
        "last_time",
    ),
    again(
        "a run that goes back before its end does not ask what sinks have",
        _CHECKPOINTS,
        "        if goes_back and any(_has_behind(sink, position) for sink in sinks.values()):\n",
        "        if False:\n",
        "goes_back",
    ),
    again(
        "windows that are open are counted with one that is not",
        _CHECKPOINTS,
        "sum(len(timers) for _, (_, timers) in entries)",
        "1 + sum(len(timers) for _, (_, timers) in entries)",
        "holds_comes and local",
    ),
    again(
        "the end of a run with segments is that of the last one",
        "drift/segments/feed.py",
        "        while last and not self._ended:",
        "        while False:",
        "durable",
    ),
    again(
        "a table that has become shorter gives nothing",
        "drift/sources/rows.py",
        "    if left:\n        raise InputError(",
        "    if False:\n        raise InputError(",
        "shorter and pandas",
    ),
    of_servers(
        "a reading to the end ends behind a pause where it ended before",
        _FEED,
        "        if not self._is_complete and isinstance(reader, Ending):\n",
        "        if False:\n",
    ),
    of_servers(
        "a batch of Kafka behind a live run ends where the live one began",
        "drift/sources/offsets.py",
        "            str(partition): [offset, None if self._has_no_end else self.ends.get(partition, offset)]\n",
        "            str(partition): [offset, self.ends.get(partition, offset)]\n",
    ),
    of_servers(
        "items of a batch behind a live run are numbered from the beginning",
        "graph/drift_graph/times.py",
        "        if self.live or self._stamp[0] > TIME_MIN:",
        "        if self.live:",
    ),
    of_servers(
        "the log of a live run is not repeated by a batch behind it",
        _FEED,
        "                if position.entry is not None and rank not in self._logs and not self._is_over:\n",
        "                if False:\n",
    ),
    of_servers(
        "a Delta table that was emptied still says where it ended",
        "drift/sinks/delta.py",
        "        if self._end_in_table() is not None:  # somebody",
        "        if False:  # somebody",
        EMPTIED,
    ),
    of_servers(
        "an Iceberg table that was emptied still says where it ended",
        "drift/sinks/iceberg.py",
        "                transaction.append(self._schema().empty_table(), snapshot_properties=noted)\n",
        "                pass\n",
        EMPTIED,
    ),
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
        "        while self._waiting and self._waiting[0][0].output.position <= taken:\n",
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
