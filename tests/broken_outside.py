"""Breakages of what sinks decide about the servers that they write to."""

from __future__ import annotations

from broken import Breakage, Edit, one

LAW = ("tests/sinks/test_outside.py",)
CHANGES = ("tests/sources/test_changes.py",)
NO_POSTGRES = "the harness asks no Postgres"
SOURCES = ("tests/sources/test_sources_brokers.py", "-k", "offsets")
NO_SERVERS = "the harness has no servers"
_DELIVERING, _KAFKA, _RESUMING = "drift/sinks/delivering.py", "drift/sinks/kafka.py", "drift/sinks/resuming.py"


def broken(name: str, file: str, old: str, new: str) -> Breakage:
    return one(name, file, old, new, LAW, NO_SERVERS)


WHOLE = ("tests/engines/test_outside_law.py",)
REFUSED = ("tests/sinks/test_sinks_refused.py", "-k", "sqlite")

TRIMMED = ("tests/sources/test_sources_brokers.py", "-k", "trimmed")

BREAKAGES = [
    one(
        "entries of Redis that are removed unread are no error",
        "drift/sources/redis.py",
        "        return max(lost, 0)",
        "        return 0",
        TRIMMED,
        NO_SERVERS,
    ),
    one(
        "entries of Redis that are removed once they were read are an error",
        "drift/sources/redis.py",
        "added - self.passed - left - read",
        "added - self.passed - left",
        TRIMMED,
        NO_SERVERS,
    ),
    one(
        "a position in a Redis stream counts what was fetched as returned",
        "drift/sources/redis.py",
        "passed -= fetched - self._entries_returned",
        "passed += 0",
        TRIMMED,
        NO_SERVERS,
    ),
    one(
        "a slot of Postgres moves with what is read, before a checkpoint is behind it",
        "drift/sources/changes.py",
        "        needed = self._needed\n",
        "        needed = self._returned[0]\n",
        CHANGES,
        NO_POSTGRES,
    ),
    one(
        "a run that goes on within a transaction of Postgres has its first changes again",
        "drift/sources/changes.py",
        "                        if mark > (commit, number):\n",
        "                        if mark[0] >= commit:\n",
        CHANGES,
        NO_POSTGRES,
    ),
    one(
        "of the old row of Postgres what is not known is None",
        "drift/sources/pgoutput.py",
        " and (is_key or not only_key)\n",
        "\n",
        CHANGES,
        NO_POSTGRES,
    ),
    broken(
        "kafka: each message expires on its own",
        _KAFKA,
        "_TIMEOUTS[0]: 0}",
        '_TIMEOUTS[0]: config.get("message.timeout.ms", 0)}',
    ),
    broken(
        "kafka: what is behind a refused message is delivered",
        _KAFKA,
        '"enable.gapless.guarantee": True}',
        '"enable.gapless.guarantee": False}',
    ),
    Breakage(
        "kafka: what is behind a failure is flushed by close",
        [
            Edit(_KAFKA, '"enable.gapless.guarantee": True}', '"enable.gapless.guarantee": False}'),
            Edit(_DELIVERING, "self._fault, self._has_failed = fault, True", "self._fault = fault"),
        ],
        LAW,
        NO_SERVERS,
    ),
    broken(
        "kafka: an acknowledgement at another offset is taken",
        _DELIVERING,
        "        if offset != meant:",
        "        if offset is None:",
    ),
    broken(
        "kafka: the last header is proof of all before it",
        _DELIVERING,
        "not in (None, end.offset - 1):",
        "not in (None, end.offset - 1, end.meant[0]):",
    ),
    broken(
        "kafka: the end is not looked at when the output is complete",
        _DELIVERING,
        "        if offset != self.offset:",
        "        if offset is None:",
    ),
    broken(
        "a server with older data is written to behind its end",
        _RESUMING,
        "                return count\n        raise self._moved(found)",
        "                return count\n        return 0",
    ),
    broken(
        "a transaction whose answer was lost is written again",
        _RESUMING,
        "            positions, metas, payloads = positions[stored:], metas[stored:], payloads[stored:]\n",
        "",
    ),
    one(
        "a partition that was added is begun at its end",
        "drift/sources/offsets.py",
        "            self.next[partition] = self._found[partition].first\n",
        "            self.next[partition] = self._found[partition].end\n",
        SOURCES,
        NO_SERVERS,
    ),
    one(
        "a topic that was made anew is read on",
        "drift/sources/offsets.py",
        "found is None or not found.first <= offset <= found.end:",
        "found is None or offset < found.first:",
        SOURCES,
        NO_SERVERS,
    ),
    one(
        "a partition is read to its end before the others",
        "drift/sources/aligned.py",
        "        return patient and self._has_more(partition)\n",
        "        return self._patience_s is None and self._has_more(partition)\n",
        ("tests/sources/test_sources_brokers.py", "-k", "partitions_read"),
        NO_SERVERS,
    ),
    one(
        "a reading that ends does not wait for a partition that has more",
        "drift/sources/aligned.py",
        "        if any(not part.waiting and self._is_waited_for(each, now_s) for each, part in self._parts.items()):",
        "        if not any(part.waiting for part in self._parts.values()):",
        ("tests/sources/test_sources_brokers.py", "-k", "merged"),
        NO_SERVERS,
    ),
    one(
        "a diverted item without a time is recorded as it was read",
        "drift/records/recorder.py",
        "        if is_other or len(arrived.payloads) != count:",
        "        if len(arrived.payloads) != count:",
        ("tests/core/test_diverted.py", "-k", "without_a_time"),
        NO_SERVERS,
    ),
    one(
        "a late item is set apart at its own time",
        "graph/drift_graph/lateness.py",
        "moved.append(heartbeat)\n            else:",
        "moved.append(time)\n            else:",
        ("tests/core/test_diverted.py", "-k", "late"),
        NO_SERVERS,
    ),
    broken(
        "the end of a server is not looked at when the output is complete",
        _RESUMING,
        "        if (found := self._find_end()) != self._last:",
        "        if (found := self._last) != self._last:",
    ),
    one(
        "of a batch that is refused only the first half is tried again",
        "drift/sinks/refused.py",
        "        for part in (slice(half), slice(half, None)):",
        "        for part in (slice(half),):",
        LAW,
        NO_SERVERS,
    ),
    one(
        "a table that an item was refused for is not made again",
        "drift/sinks/sqlite.py",
        "        if self._last is None or self._diverts:",
        "        if self._last is None:",
        ("tests/sinks/test_sinks_refused.py", "-k", "none_is_made and sqlite"),
        NO_SERVERS,
    ),
    one(
        "an item that is put in again stays set apart",
        "drift/sinks/tables.py",
        "                        self._ask(self._errors.take, self._table, each.position)\n",
        "                        pass\n",
        REFUSED,
        NO_SERVERS,
    ),
    one(
        "the ends of a topic's partitions are those when it was opened",
        "drift/sources/kafka.py",
        "            self._ends[partition] = max(known, end)  # below 0 where it has not heard yet",
        "            self._ends[partition] = known",
        WHOLE,
        NO_SERVERS,
    ),
    one(
        "a stream that is shorter than it was is read on",
        "drift/sources/redis.py",
        "        if _number(newest) < _number(behind):",
        "        if newest is None:",
        ("tests/sources/test_sources_brokers.py", "-k", "shorter"),
        NO_SERVERS,
    ),
    one(
        "a reading of a stream goes on where the run began",
        "drift/sources/redis.py",
        "        self._fetched = self._returned = behind\n",
        "        self._returned = behind\n",
        ("tests/sources/test_sources_brokers.py", "-k", "goes_on_behind"),
        NO_SERVERS,
    ),
    one(
        "the row that a query was read up to is given again",
        "drift/sources/query.py",
        "            keys, payloads = keys[1:], payloads[1:]",
        "            pass",
        WHOLE,
        NO_SERVERS,
    ),
    one(
        "a row that cannot be read is passed over",
        "drift/sources/query.py",
        "                keys.append(key)\n                payloads.append(diverted(",
        "                str((",
        WHOLE,
        NO_SERVERS,
    ),
    one(
        "checkpoints are there when a run resumes, since they were a moment before",
        "drift/state/run_checkpoints.py",
        "        if first is None:\n            raise StorageError(_changed_meanwhile(self._store.where))\n",
        "        assert first is not None\n",
        ("tests/state/test_state_laws.py", "-k", "whatever_call"),
        NO_SERVERS,
    ),
    one(
        "the end of what a file has now may be half of the end of a line",
        "drift/sources/chunks.py",
        'data.rfind(b"\\r", 0, -1)',
        'data.rfind(b"\\r")',
        (*WHOLE, "-k", "Folder"),
        NO_SERVERS,
    ),
    one(
        "a file that grows has the header of the row that is read next",
        "drift/sources/files.py",
        "        if not self._lines:\n            self._file.header = self._header\n",
        "        self._file.header = None\n",
        (*WHOLE, "-k", "Folder"),
        NO_SERVERS,
    ),
    one(
        "a last line without an end is waited for, though there is a next file",
        "drift/sources/followed.py",
        "            self._reader.complete()\n",
        "            pass\n",
        ("tests/sources/test_sources_followed.py",),
        NO_SERVERS,
    ),
    one(
        "a folder that is followed goes on behind the file where it was",
        "drift/sources/followed.py",
        "        self._at_end = position_in_file is None or not file\n",
        "        self._at_end = True\n",
        (*WHOLE, "-k", "Folder"),
        NO_SERVERS,
    ),
    one(
        "a line that is being written is an item",
        "drift/sources/paths.py",
        "source.growing() if grows and isinstance(source, Growing) else source",
        "source",
        (*WHOLE, "-k", "Folder"),
        NO_SERVERS,
    ),
    one(
        "a Postgres that goes away as soon as it is there is a bare error",
        "drift/sources/changes.py",
        "            self._run(_FORMS)\n",
        "            self._connection.execute(_FORMS.encode())\n",
        (*WHOLE, "-k", "Changes"),
        NO_SERVERS,
    ),
    one(
        "changes are passed over after a position",
        "drift/sources/changes.py",
        "        self._returned = commit, number\n",
        "        self._returned = commit, number + 1\n",
        (*WHOLE, "-k", "Changes"),
        NO_SERVERS,
    ),
    one(
        "a Postgres that comes back older is waited for",
        "drift/sources/changes.py",
        "        elif commit > self._end:",
        "        elif False:",
        CHANGES,
        NO_POSTGRES,
    ),
    one(
        "messages before a fault of their socket are lost",
        "drift/sources/zeromq.py",
        "            if not values:  # else",
        "            if True:  # else",
        (*WHOLE, "-k", "Messages"),
        NO_SERVERS,
    ),
    one(
        "half a line that was received before is lost",
        "drift/sources/sockets.py",
        '            lines[0] = b"".join(peer.unended)\n',
        "",
        (*WHOLE, "-k", "Lines"),
        NO_SERVERS,
    ),
]
