"""Breakages of what Spark's tasks run, and of what a stream stores."""

from __future__ import annotations

from broken import one

TASKS = ("tests/spark/test_spark_kernels.py",)
STREAMED = ("tests/spark/test_spark_streaming.py", "tests/spark/test_spark_later.py", "-k", "cut_anywhere")
DYING = ("tests/spark/test_spark_streaming.py", "-k", "dies or killed")
LATE = ("tests/spark/test_spark_streaming.py", "-k", "late")
PARTS = ("tests/spark/test_spark_parts.py", "-k", "added_up_are or exact")
NO_SPARK = "the harness runs nothing on Spark"

_BATCHES, _KERNELS, _LEVELS = "drift/spark/batches.py", "drift/spark/kernels.py", "drift/spark/levels.py"
_BLOCKS = "drift/spark/blocks.py"
_PARTS = "drift/columns/parts.py"
_RECORDING, _STATES = "drift/spark/recording.py", "drift/spark/states.py"
_STREAM, _STREAM_KERNELS = "drift/spark/streaming.py", "drift/spark/streaming_kernels.py"

BREAKAGES = [
    # Tasks.
    one(
        "a task goes on before all below the next row is there",
        _BATCHES,
        "            if metas[-1] < bound:\n",
        "            if True:\n",
        TASKS,
        NO_SPARK,
    ),
    one(
        "what an input item brings about comes to a cycle in pieces",
        _LEVELS,
        "any(name in levels.alone for name in groups)",
        "False",
        (*TASKS, "-k", "cycle"),
        NO_SPARK,
    ),
    one(
        "batches are joined as they came",
        _BATCHES,
        "        columns = sorted_by_meta(joined(batches))\n",
        "        columns = joined(batches)\n",
        TASKS,
        NO_SPARK,
    ),
    one(
        "a task's own items are counted before itself",
        _BATCHES,
        "            before += count\n",
        "            before += 2 * count\n",
        TASKS,
        NO_SPARK,
    ),
    one(
        "positions by the count of one task",
        _KERNELS,
        "                barrier.position += row.items\n",
        "                barrier.position = row.items\n",
        TASKS,
        NO_SPARK,
    ),
    one(
        "more is released than the input's end allows",
        _KERNELS,
        "        yield from self._release(inbox, end)\n",
        "        yield from self._release(inbox, END_OF_TIME)\n",
        TASKS,
        NO_SPARK,
    ),
    one(
        "of several errors the one that came first",
        _KERNELS,
        "min(errors, key=lambda each: each[:2])[2]",
        "errors[0][2]",
        (*TASKS, "tests/spark/test_spark_laws.py"),
        NO_SPARK,
    ),
    one(
        "a grouping at the level of the shorter way to it",
        _LEVELS,
        "feeds[target] = max(feeds.get(target, 1), level + 1)",
        "feeds[target] = level + 1",
        TASKS,
        NO_SPARK,
    ),
    one(
        "a range of the output begins a block of its own",
        _BLOCKS,
        "        self._open.count = start % BLOCK_ITEMS\n",
        "        self._open.count = 0\n",
        TASKS,
        NO_SPARK,
    ),
    one(
        "the pieces of a block in the order they came",
        _BLOCKS,
        "    for edge in sorted(edges):",
        "    for edge in edges:",
        TASKS,
        NO_SPARK,
    ),
    one(
        "rows that a tie function changed are stamped one by one, as they are now",
        "drift/spark/frames.py",
        "    if isinstance(error, ImpureStep):  # they are not what they were\n",
        "    if False:\n",
        (*TASKS, "-k", "changes_are_an_error"),
        NO_SPARK,
    ),
    # Rows that are added up.
    one(
        "any row of a window may be its first",
        _PARTS,
        "np.flatnonzero(times == of_groups[groups.places])",
        "np.arange(len(times))",
        PARTS,
        NO_SPARK,
    ),
    one(
        "windows of rows are cut as if these were in the order of their times",
        _PARTS,
        "        if len(times) and (times[1:] < times[:-1]).any():\n",
        "        if False:\n",
        PARTS,
        NO_SPARK,
    ),
    one(
        "floats are added up before they are in order",
        _PARTS,
        '            if kind in ("sum", "mean") and (',
        '            if kind == "no kind" and (',
        PARTS,
        NO_SPARK,
    ),
    one(
        "parts of a window are counted as rows",
        _PARTS,
        'counts = [each[0] if of[0] in ("count", "mean") else None for',
        "counts = [None for",
        PARTS,
        NO_SPARK,
    ),
    one(
        "windows go on row by row behind parts of theirs",
        _PARTS,
        '        raise NeedsRows("parts of windows have no values")\n',
        "        return [{} for _ in range(len(self))]\n",
        PARTS,
        NO_SPARK,
    ),
    # What is kept for a record.
    one(
        "kept rows are told with a heartbeat above what is left",
        _RECORDING,
        "inbox.below(inbox.bound(row.first)), row.first,",
        "inbox.below(inbox.bound(row.first)), END_OF_TIME,",
        (*TASKS, "-k", "stored"),
        NO_SPARK,
    ),
    one(
        "stored rows with one stamp are not counted",
        _RECORDING,
        "Inbox(_CHUNK_ITEMS, work.repeats)",
        'Inbox(_CHUNK_ITEMS, "bug")',
        (*TASKS, "-k", "stored"),
        NO_SPARK,
    ),
    # Streams.
    one(
        "what was remembered is not recalled",
        _KERNELS,
        "                    worker.recall(row)\n",
        "",
        STREAMED,
        NO_SPARK,
    ),
    one(
        "later items that are due behind a micro-batch are lost",
        _LEVELS,
        "        for (level, of_task, port), several in self._waiting.items():\n",
        "        for (level, of_task, port), several in ():\n",
        STREAMED,
        NO_SPARK,
    ),
    one(
        "later items come in each micro-batch after their time again",
        _LEVELS,
        "        begin = bisect_left(columns.metas, self._writing.heartbeat)\n",
        "        begin = 0\n",
        STREAMED,
        NO_SPARK,
    ),
    one(
        "later items come before their time",
        _LEVELS,
        "        end = bisect_left(columns.metas, self._due_below)\n",
        "        end = len(columns.metas)\n",
        STREAMED,
        NO_SPARK,
    ),
    one(
        "a micro-batch counts its output from 0",
        _STREAM_KERNELS,
        "BEGINNING, COUNT, start,",
        "BEGINNING, COUNT, 0,",
        STREAMED,
        NO_SPARK,
    ),
    one(
        "an older version of a key's state counts",
        _STATES,
        "sorted((*self._versions, *more), key=itemgetter(0))",
        "[*self._versions, *more]",
        STREAMED,
        NO_SPARK,
    ),
    one(
        "a key that is remembered no more is as it was remembered last",
        _STATES,
        "            known = {} if everything or self._layered is None else self._layered.of(name)\n",
        "            known: dict[object, object] = {}\n",
        STREAMED,
        NO_SPARK,
    ),
    one(
        "what comes again to a stream that went on from a checkpoint is late",
        _STREAM,
        "            arrived = arrived.where(_not_below(before.since))\n",
        "            pass\n",
        ("tests/spark/test_spark_going_on.py", "-k", "passes_over"),
        NO_SPARK,
    ),
    one(
        "state is written over what the last commit names",
        _STREAM,
        "        slot = before.next_slot\n",
        "        slot = before.slot\n",
        DYING,
        NO_SPARK,
    ),
    one(
        "the states that changed are taken for all there are",
        _STREAM,
        "slots=(slot,) if everything else (*before.slots, slot),",
        "slots=(slot,),",
        ("tests/spark/test_spark_streaming.py", "-k", "states_that_changed"),
        NO_SPARK,
    ),
    one(
        "a commit before what it names is written",
        _STREAM,
        "            store.write_items(number, items)\n",
        "            store.write_commit(replace(before, number=number, slot=slot))\n"
        "            store.write_items(number, items)\n",
        DYING,
        NO_SPARK,
    ),
    one(
        "what is not below minimal time is dropped",
        _STREAM,
        "rows.where(~ready))",
        "rows.limit(0))",
        DYING,
        NO_SPARK,
    ),
    one(
        "what the other items complete is not released before the error of one",
        _STREAM,
        "        late = self._divert(arrived, number, before, summaries) if refused is None else 0\n",
        "        if refused is not None:\n            raise refused\n"
        "        late = self._divert(arrived, number, before, summaries)\n",
        LATE,
        NO_SPARK,
    ),
    one(
        "an item at the heartbeat is late",
        _STREAM,
        '(functions.col("time") < heartbeat)',
        '(functions.col("time") <= heartbeat)',
        LATE,
        NO_SPARK,
    ),
]
