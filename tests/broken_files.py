"""Breakages of how files are read and written."""

from __future__ import annotations

from broken import Breakage, one

FOLDERS = ("tests/state/test_folder_laws.py",)
LONG = ("tests/sources/test_sources_long_lines.py",)
NO_FILES = "the harness reads no files"

PARTS = ("tests/sinks/test_sinks_parts.py",)

CLOUD = ("tests/sources/test_cloud.py",)
DELTA = ("tests/sinks/test_delta.py",)
ICEBERG = ("tests/sinks/test_iceberg.py",)

_PARTS, _PARQUET = "drift/sinks/parts.py", "drift/sinks/parquet.py"
_CHUNKS, _FOLLOWED, _LINES = "drift/sources/chunks.py", "drift/sources/followed.py", "drift/sinks/lines.py"


def broken(name: str, file: str, old: str, new: str, *tests: str) -> Breakage:
    return one(name, file, old, new, tests or FOLDERS, NO_FILES)


OTHER_KINDS, NO_KINDS = ("tests/state/test_other_kinds.py",), "its runs resume with the graph that they had"

BREAKAGES = [
    one(
        "states go on with a step of another kind",
        "drift/records/kinds.py",
        '        yield f"{place}{_CLASS}", (kind, kind.rpartition(".")[2])\n',
        '        yield f"{place}{_CLASS}", ("", "")\n',
        OTHER_KINDS,
        NO_KINDS,
    ),
    one(
        "states go on with a step that has other parameters",
        "drift/records/kinds.py",
        '            yield f"{place}{name}", (value["hash"], shown)\n',
        '            yield f"{place}{name}", ("", shown)\n',
        OTHER_KINDS,
        NO_KINDS,
    ),
    one(
        "a graph of the same structure has the states of any",
        "drift/state/growth.py",
        "    return {name: text for name, text in found.items() if text}\n",
        "    return {}\n",
        OTHER_KINDS,
        NO_KINDS,
    ),
    one(
        "a mended function is another kind",
        "drift/records/kinds.py",
        '("", "a function")',
        '(str(inner and inner["code"]), "a function")',
        OTHER_KINDS,
        NO_KINDS,
    ),
    *(
        broken(name, "drift/running/backfill.py", old, new, "tests/state/test_backfill.py", "-k", tests)
        for name, old, new, tests in (
            (
                "new steps are filled with what is above the checkpoint",
                "min(arrived.heartbeat, checkpoint.at)",
                "arrived.heartbeat",
                "a_record",
            ),
            (
                "later items of steps that stay are filled again",
                " if each.target in new]",
                "]",
                "aborted and behind_later",
            ),
            (
                "new steps are filled from a part of the input",
                "items[rank] < least or rank in awaited",
                "rank in awaited",
                "what_is_not",
            ),
            (
                "filled steps have the ranks of their part of the graph",
                "fixed_ranks=tuple((name, rank) for name, rank in dataflow.ranks.items() if name in kept)",
                "fixed_ranks=()",
                "aborted and windows",
            ),
            (
                "new steps are filled without their later items",
                "[each for each in snapshot.later if each.target in new]",
                "[]",
                "aborted and later",
            ),
            (
                "states of steps that stay are filled too",
                "in snapshot.states.items() if name in new}",
                "in snapshot.states.items()}",
                "own_states",
            ),
        )
    ),
    broken(
        "a run that lives is shown as dead",
        "drift/state/files.py",
        "            except BlockingIOError:\n                return True\n",
        "            except BlockingIOError:\n                return False\n",
        "tests/command/test_web.py",
        "-k",
        "killed and files",
    ),
    broken(
        "what is left of a stream is counted from where reading began",
        "drift/sources/redis.py",
        "counting.entries + since - self._entries_returned",
        "counting.entries + since",
        "tests/sources/test_sources_brokers.py",
        "-k",
        "stream_says",
    ),
    *(
        broken(name, f"drift/state/{file}", old, new, "tests/state/test_state_storage.py", "-k", "base or small")
        for name, file, old, new in (
            (
                "a chunk of states is not compared with its hash",
                "by_hash.py",
                " or xxhash.xxh3_64_digest(body, seed) != chunk[:_HASH_BYTES]:",
                ":",
            ),
            ("the bit of a key is elsewhere", "by_hash.py", "[(its_hash & mask) >> 3]", "[(its_hash & mask) >> 4]"),
            ("a merge forgets what was deleted", "base.py", "deleted=due.start > 0", "deleted=False"),
            ("a process with other work merges all", "base.py", "if not self._merges_all and", "if False and"),
        )
    ),
    *(
        broken(name, f"drift/state/{file}", old, new, f"tests/state/{tests}", *chosen)
        for name, file, old, new, tests, *chosen in (
            (
                "rows of the open block go with the checkpoint that wrote them",
                "opened.py",
                "for rows in self._by_number.values() for row in rows}",
                "for rows in () for row in rows}",
                "test_opened.py",
            ),
            (
                "a small row is left where it is",
                "opened.py",
                "            rows.pop()\n",
                "            pass\n",
                "test_opened.py",
            ),
            (
                "rows of a checkpoint that was cut off stay",
                "store.py",
                "self._opened.unneeded(reader.sizes(\"opened\"))",
                "{}",
                "test_state.py",
                "-k",
                "rows_of_the_open_block and files",
            ),
            (
                "rows of the block before are named",
                "opened.py",
                " if checkpoint.output.blocks == self._block else []",
                "",
                "test_opened.py",
            ),
        )
    ),
    broken(
        "only the first states of a step that moves are moved",
        "drift/state/moving.py",
        "while part := list(islice(rows, _KEYS_IN_PART)):",
        "if part := list(islice(rows, _KEYS_IN_PART)):",
        *("tests/state/test_growth.py", "-k", "parts_to_each and files"),
    ),
    *(
        broken(name, f"drift/{file}", old, new, "tests/state/test_growth_calls.py")
        for name, file, old, new in (
            (
                "sources are read on behind what waits for answers",
                "state/segments.py",
                "if checkpoints[0].at > cuts[0]:",
                "if False:",
            ),
            (
                "pieces of a graph with other cuts are joined",
                "state/segments.py",
                "if len(times) > 1 or (times and is_last",
                "if False and (times and is_last",
            ),
            (
                "a piece begins again behind what the next one has taken",
                "state/segments.py",
                "if times and max(times) > cuts[0]:",
                "if False:",
            ),
            (
                "states of a piece that is cut in two are left behind",
                "state/segments.py",
                "if name in now and (at != own or name in known):",
                "if name in now and name in known:",
            ),
            (
                "answers are asked for again where the graph has changed",
                "segments/answers.py",
                "            self._found.update(other._found)\n",
                "",
            ),
            (
                "what waited for answers at a change is lost",
                "state/segments.py",
                "cuts.insert(0, max(times, default=cuts[0]))",
                "cuts.insert(0, checkpoints[-1].at and b'\\xff' * 8)",
            ),
            (
                "what a graph read before it was changed is taken for positions in its first piece",
                "state/run_checkpoints.py",
                " and each.sources.keys() == checkpoint.sources.keys()",
                "",
            ),
        )
    ),
    broken(
        "a manifest is written before what it names",
        "drift/state/files.py",
        '"history", "snapshots", "opened", "hashes", "cuts")',
        '"history", "cuts", "opened", "hashes", "snapshots")',
        *("tests/state/test_growth.py", "-k", "leaves_all_of_them"),
    ),
    broken(
        "arrivals are dropped below the newest checkpoint",
        "drift/state/run_checkpoints.py",
        "oldest = self._retained_sources[0]",
        "oldest = self._retained_sources[-1]",
        *("tests/engines/test_feed_going_on.py", "-k", "each_retained"),
    ),
    broken(
        "each worker has all the memory for states",
        "drift/engines/settings.py",
        "max(in_all // self.workers_in_all, 1)",
        "in_all",
        *("tests/engines/test_settings.py", "-k", "share_of_the_memory"),
    ),
    broken(
        "who waits for a process does not look whether it lives",
        "drift/children.py",
        "[self.number, *([] if end is None else [end])]",
        "[self.number]",
        *("tests/engines/test_children.py", "-k", "who_waits"),
    ),
    broken(
        "what comes from a parent is read without a bound",
        "drift/parent.py",
        "                self._changed.wait_for(lambda: self._bytes < self._bytes_max)\n",
        "",
        *("tests/engines/test_children.py", "-k", "is_bounded"),
    ),
    *(
        broken(name, f"drift/state/{file}", old, new, "tests/state/test_growth.py", "-k", "local and test_steps_that")
        for name, file, old, new in (
            ("states that move lose their timers", "moving.py", " form in part], timed)", " form in part], ())"),
            ("later items for a renamed step are lost", "moving.py", "    if later:\n", "    if False:\n"),
            ("states are converted at each resume", "growth.py", " if is_other else None", ""),
        )
    ),
    broken(
        "empty sliding windows are as far apart as they are long",
        "drift/flow/windows.py",
        "        return Each(self.every)\n",
        "        return Each(self.size)\n",
        "tests/flow/test_filling.py",
        "-k",
        "sliding",
    ),
    broken(
        "another file under the same name is read on",
        _CHUNKS,
        "        if self._hash(known) != start.hash:\n",
        "        if False:\n",
        "tests/sources/test_sources_positions.py",
        "-k",
        "another_file",
    ),
    broken(
        "what was returned of a block is not in the hash",
        _CHUNKS,
        "            block.known.update(block.data[block.at : at])\n",
        "            block.known.offset += at - block.at\n",
        "tests/sources/test_sources_positions.py",
    ),
    broken(
        "an object in a store is known by its size alone",
        _CHUNKS,
        '        return f"{self._etag}, {self._size} bytes" if',
        '        return f"{self._size} bytes" if',
        *CLOUD,
    ),
    broken(
        "a pattern matches objects with hidden names",
        "drift/places.py",
        '            return listed if "/." in path else [each for each in listed if "/." not in each]',
        "            return listed",
        *CLOUD,
    ),
    broken(
        "an object that is replaced while it is read is mixed",
        _CHUNKS,
        "                if now is None or now.etag != self._etag:\n",
        "                if False:\n",
        *CLOUD,
    ),
    broken(
        "objects that were read to their end may be others of their sizes",
        "drift/sources/paths.py",
        "{name}\\0{found.size}\\0{found.etag}",
        "{name}\\0{found.size}\\0",
        *CLOUD,
    ),
    broken(
        "files that were read to their end may be others",
        "drift/sources/paths.py",
        "        if not self._knows(position):\n",
        "        if False:\n",
    ),
    broken(
        "a last line that goes on becomes two",
        _CHUNKS,
        "            if self._again[0]:\n",
        "            if False:\n",
        "tests/sources/test_sources_positions.py",
    ),
    broken(
        "a followed file that is replaced is never read",
        _FOLLOWED,
        "            gone = self._reader is not None and listing.identity != self._identity\n",
        "            gone = False\n",
        "tests/sources/test_sources_followed.py",
    ),
    broken(
        "a followed file that is written over is read on",
        _CHUNKS,
        "            if self._last and (fault := self._rewritten()):\n",
        "            if False:\n",
        "tests/sources/test_sources_followed.py",
    ),
    broken(
        "a line without an end is read whole",
        _CHUNKS,
        "            if self._part_bytes > line_max + 1:",
        "            if False:",
        *LONG,
    ),
    broken(
        "a row of CSV without an end is read whole",
        "drift/sources/csv_rows.py",
        "if len(self.row) > 1 and sum(len(each) for _, each in self.row) > self._limit:",
        "if False:",
        *LONG,
    ),
    broken(
        "NaN is written as null",
        _LINES,
        "        if (nulls := block.count(b\"null\")) and nulls != _nones(payloads):\n",
        "        if False:\n",
        "tests/sinks/test_sinks.py",
    ),
    broken(
        "a torn line is written twice",
        _LINES,
        "            return block[len(found_bytes) :]\n",
        "            return block\n",
    ),
    broken(
        "another Parquet file under the same name is read on",
        "drift/sources/parquet.py",
        "        if identity != self._identity or (mark and not Mark(*mark).is_of(self._path)):\n",
        "        if False:\n",
        "tests/command/test_connectors.py",
    ),
    broken(
        "the rows before a damaged page of Parquet are lost",
        "drift/sources/parquet.py",
        "                    if size == 1:\n",
        "                    if size:\n",
        "tests/command/test_connectors.py",
    ),
    broken(
        "what was made of a file when the process died stays",
        _PARTS,
        "                shutil.rmtree(left)\n",
        "                pass\n",
        *PARTS,
    ),
    broken(
        "the files of a part come to their places before one names the part",
        _PARTS,
        "            self._storage.put(marker, self._at(f\"{_UNFINISHED}{name}\"))\n            for file in files:\n",
        "            for file in files:\n",
        *PARTS,
    ),
    broken(
        "what a death left of a part stays",
        _PARTS,
        "            self.remove([name for name in names if file_name(name) == part])\n",
        "",
        *PARTS,
    ),
    broken(
        "a part that could not be moved is written again in smaller ones",
        _PARQUET,
        " and self._parts.is_whole:\n",
        ":\n",
        *PARTS,
    ),
    broken(
        "the rows of a partition come in another order",
        _PARTS,
        "            table.sort_by(order),\n",
        "            table.sort_by([*order[:-1], (\"position\", \"descending\")]),\n",
        *PARTS,
    ),
    broken(
        "a value that no folder stands for becomes one that is missing",
        _PARTS,
        "(value in (\"\", _NONE) or ",
        "(value in (\"\",) or ",
        *PARTS,
    ),
    broken(
        "files of other partitions are written beside those that are there",
        _PARTS,
        "for folder in each.split(\"/\")[:-1]]) != self._by:\n",
        "for folder in each.split(\"/\")[:-1]]) == 0:\n",
        *PARTS,
    ),
    broken(
        "items are in a part in time only if others come",
        "drift/running/sinks.py",
        "        elif self._ticking:\n",
        "        elif False:\n",
        *PARTS,
    ),
    broken(
        "items that a run has left in hidden files are in a part at any time",
        "drift/sinks/filling.py",
        "        self._stored_bytes += size\n        self._expect()\n",
        "        self._stored_bytes += size\n",
        *PARTS,
    ),
    broken(
        "of a hidden file that came into partitions some may be gone",
        _PARQUET,
        "if found != (items :=",
        "if 0 != 0 * (items :=",
        *PARTS,
    ),
    broken(
        "rows are appended to a table of Delta wherever it ends",
        "drift/sinks/lake.py",
        "        if (found := self.find_end()) != self._last:\n",
        "        if (found := self.find_end()) is self:\n",
        *DELTA,
    ),
    broken(
        "a version of Delta has no position",
        "drift/sinks/delta.py",
        "app_transactions=transactions)",
        "app_transactions=transactions[:0])",
        *DELTA,
    ),
    broken(
        "a table of Delta stores other values than it was given",
        "drift/sinks/lake.py",
        "        if _fits(column.type, kind):\n",
        "        if True:\n",
        *DELTA,
    ),
    broken(
        "a table of Delta whose log has forgotten the position is appended to",
        "drift/sinks/delta.py",
        "return bool(self._table.count())",
        "return False",
        *DELTA,
    ),
    broken(
        "compacted rows of Delta are read again",
        "drift/sources/delta.py",
        "for add in adds if add.get(\"dataChange\", True)}",
        "for add in adds}",
        *DELTA,
    ),
    broken(
        "a version of Delta that deletes rows is read on",
        "drift/sources/delta.py",
        "        if any(action[\"remove\"].get(",
        "        if False and any(action[\"remove\"].get(",
        *DELTA,
    ),
    broken(
        "a file of Delta that was read to its end has to be there",
        "drift/sources/lake.py",
        "            if self._skip[1] == self._files[0][1].rows:",
        "            if self._skip[1] == -1:",
        *DELTA,
    ),
    broken(
        "a snapshot of Iceberg that deletes rows is read on",
        "drift/sources/iceberg.py",
        "        if added and operation != Operation.APPEND:\n",
        "        if False:\n",
        *ICEBERG,
    ),
    broken(
        "compacted files of Iceberg are read again",
        "drift/sources/iceberg.py",
        "        if added and operation == Operation.REPLACE:\n            return {}\n",
        "        if operation == Operation.REPLACE:\n            operation = Operation.APPEND\n",
        *ICEBERG,
    ),
    broken(
        "rows of Iceberg whose snapshots have expired unread are lost",
        "drift/sources/iceberg.py",
        "        added = added and snapshot.parent_snapshot_id is not None",
        "        added = added",
        *ICEBERG,
    ),
    broken(
        "a commit to Iceberg is repeated behind rows of another run",
        "drift/sinks/iceberg.py",
        '"commit.retry.num-retries": "0"',
        '"commit.retry.num-retries": "4"',
        *ICEBERG,
    ),
    broken(
        "a position in the properties of a table of Iceberg counts without its row",
        "drift/sinks/iceberg.py",
        "if last is not None and self._has_row(",
        "if last is not None or self._has_row(",
        *ICEBERG,
    ),
    broken(
        "a position of Iceberg is of any snapshot",
        "drift/sinks/iceberg.py",
        "at = snapshots[at].parent_snapshot_id",
        "at = None",
        *ICEBERG,
    ),
    broken(
        "values are unreadable where the registry is away",
        "drift/schemas.py",
        "            if _is_away(error):\n                raise InputError(",
        "            if False:\n                raise InputError(",
        "tests/sources/test_registry.py",
    ),
]  # fmt: skip
