"""Breakages of records, of what is said of them, and of replays."""

from __future__ import annotations

from broken import one

RECORDS = (
    "tests/records/test_records.py",
    "tests/records/test_records_troubles.py",
    "tests/records/test_records_trouble_while_writing.py",
)
COLUMNS = ("tests/records/test_records_columns.py",)
AUDIT = ("tests/records/test_records_troubles.py", "tests/records/test_records.py")
LINEAGE = ("tests/records/test_lineage.py", "-k", "not tree")
FINGERPRINT, OUTPUTS = ("tests/records/test_fingerprint.py",), ("tests/engines/test_outputs.py",)
DIVERGENCE = ("tests/records/test_divergence.py", "-k", "differs or inspected or hash or bug or versions")
NO_RECORDS, NO_AUDIT = "the harness keeps no records", "the harness audits nothing"

_RECORDED, _RECORDER = "drift/engines/recorded.py", "drift/records/recorder.py"
_RECORD_PROCESS, _INTACT = "drift/records/process.py", "drift/auditing/intact.py"
_COLUMNS = "drift/records/columns.py"
_WRITER, _READER = "drift/records/writer.py", "drift/records/reader.py"
_REPLAY = "drift/auditing/replay.py"
_AUDIT = "drift/auditing/audit.py"

BREAKAGES = [
    *(
        one(name, file, old, new, ("tests/command/test_urls.py", "-k", which), "its graphs hold no secrets")
        for name, file, old, new, which in (
            (
                "an error that ends a run says the secrets of its options",
                "drift/running/runs.py",
                """            cleaned_of(error, self._secrets)
            self._outcome""",
                "            self._outcome",
                "client_says",
            ),
            (
                "secrets are found in addresses alone",
                "drift/urls.py",
                "todo += [(str(key), option) for key, option in each.items()]",
                'todo += [("", option) for key, option in each.items()]',
                "client_says",
            ),
            (
                "notes of an error are left as they were",
                "drift/urls.py",
                "notes[:] = map(clean, notes)",
                "pass",
                "client_says",
            ),
            (
                "a fingerprint has a function's text as it is",
                "drift/records/code.py",
                "None if text is None else shown_safely(text)",
                "text",
                "in_a_fingerprint",
            ),
            (
                "a fingerprint has a value of a telling name as it is",
                "drift/records/code.py",
                "**self.value(found, name)}",
                "**self.value(found)}",
                "in_a_fingerprint",
            ),
            (
                "a value is cut before its secrets are hidden",
                "drift/records/code.py",
                "shown_safely(brief(value, _READ_CHARACTERS_MAX), name)",
                "shown_safely(brief(value, _SHOWN_CHARACTERS_MAX)[: _SHOWN_CHARACTERS_MAX - 3], name)",
                "in_a_fingerprint",
            ),
            (
                "any text after a port is taken for a password",
                "drift/urls.py",
                """(?!\\d+[/?#])[^\\s'""",
                """[^'""",
                "may_say",
            ),
        )
    ),
    # Records.
    one(
        "items of two inputs are beside each other",
        "drift/auditing/side_by_side.py",
        "return None if made.kind in",
        "return None if True or made.kind in",
        ("tests/records/test_side_by_side.py", "-k", "entered"),
        "the harness compares outputs; this is what is said of them",
    ),
    one(
        "a recorded heartbeat before its items",
        _RECORDED,
        "arrived.heartbeat if end == count else before,",
        "arrived.heartbeat,",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "heartbeats are not recorded",
        _RECORDER,
        "        self._flush_heartbeats()\n        kind =",
        "        kind =",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "recorded dicts lose their order",
        "drift/records/storable.py",
        "joined(payloads, in_order=False).data, bad",
        'b"".join(map(__import__("drift").canonical, payloads)), bad',
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "late items are not recorded",
        _RECORDER,
        "stored(each.payload)) for each in arrived.late]",
        "stored(each.payload)) for each in ()]",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "half a frame is taken",
        "drift/parent.py",
        "            if not count:\n                return None",
        "            if not count:\n                return data[: -len(view)] if len(view) < len(data) else None",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "a run that was killed has finished",
        _RECORD_PROCESS,
        'Outcome("broken off", reason)',
        'Outcome("finished", said)',
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "items are not hashed again",
        _INTACT,
        "            if hashes[-1] != expected.hash:",
        "            if False:",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "the manifest's own hash is not looked at",
        _INTACT,
        '    if hash_of(plain, manifest.algorithm) != plain["self_hash"]:',
        "    if False:",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "of the heartbeats between two batches only the last is recorded, whichever source's",
        _RECORDER,
        "            self._heartbeats[arrival.source] = arrival  #",
        "            self._heartbeats = {arrival.source: arrival}  #",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "the rest of a message that a pipe took in part is not sent",
        "drift/children.py",
        "            if left:\n                left[0] = left[0][written:]\n",
        "            left = []\n",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "more is told after half a message",
        "drift/children.py",
        "        if self._torn:\n            return\n",
        "",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "a late item is told with every piece of its batch",
        _RECORDED,
        "arrived.late if end == count else [],",
        "arrived.late,",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "late items are not counted",
        _WRITER,
        "        self._late_items += len(late)\n",
        "",
        ("tests/records/test_records_golden.py",),
        NO_RECORDS,
    ),
    one(
        "a part begins at the first row again",
        _WRITER,
        "        self._first += self.rows\n",
        "",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "the run's digest is not held against the record's",
        _WRITER,
        "        if finish.digest and finish.digest != self.manifest.digest:",
        "        if False:",
        RECORDS,
        NO_RECORDS,
    ),
    # Reading and replaying.
    one(
        "the part that a row is in is passed over",
        _READER,
        "if file.first + file.rows > first:",
        "if file.first >= first:",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "the header of a meta is left out where its size is taken",
        _COLUMNS,
        "_ends(sizes + heads)",
        "_ends(sizes + 2)",
        COLUMNS,
        NO_RECORDS,
    ),
    one(
        "the bytes of a part of a column are those of the whole",
        _COLUMNS,
        "[ends[0] : ends[-1]]",
        "[: ends[-1]]",
        COLUMNS,
        NO_RECORDS,
    ),
    one(
        "a tie has two numbers",
        "kernel/drift_kernel/metas.pyx",
        "            end = _global_end(rows.row(at), 0, rows.size(at))\n",
        "            end = _varint_end(rows.row(at), _varint_end(rows.row(at), 8, rows.size(at)), rows.size(at))\n",
        COLUMNS,
        NO_RECORDS,
    ),
    one(
        "full blocks are not listed",
        _WRITER,
        '        self._add_blocks("output", self._output.take())\n',
        "        self._output.take()\n",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "an input item of the least time of its group is not found",
        _READER,
        "                if least <= time <= most:",
        "                if least < time <= most:",
        RECORDS,
        NO_RECORDS,
    ),
    one(
        "rows are taken for plain by their first one",
        _READER,
        "            if all(set(map(type, row)) <= _scalars for row in plain):",
        "            if set(map(type, plain[0])) <= _scalars:",
        ("tests/records/test_records_columns.py",),
        NO_RECORDS,
    ),
    one(
        "a replay hashes as it likes",
        _REPLAY,
        '    settings.setdefault("digest", record.manifest.algorithm)\n',
        "",
        RECORDS,
        NO_RECORDS,
    ),
    # Audits.
    one(
        "what is computed after the recorded end is passed over",
        "drift/auditing/divergence.py",
        "        if one is None and not ends:",
        "        if one is None:",
        DIVERGENCE,
        NO_AUDIT,
    ),
    one(
        "a damaged record is computed again",
        _AUDIT,
        "for trouble in check.troubles if _is_needed(trouble)]",
        "for trouble in check.troubles if False]",
        AUDIT,
        NO_AUDIT,
    ),
    one(
        "any hash is the expected one",
        _AUDIT,
        " if found != expect else []",
        " if not expect else []",
        AUDIT,
        NO_AUDIT,
    ),
    # What is said of a record.
    one(
        "lineage: links of states are never cut",
        "drift/auditing/trace.py",
        "if node.linked > 2 * self._loops_max:",
        "if node.linked > 2**40:",
        LINEAGE,
        NO_AUDIT,
    ),
    one(
        "lineage: one key of the window is passed over",
        "drift/auditing/layers.py",
        "                if form in keys:",
        "                if form in keys and meta in came:",
        LINEAGE,
        NO_AUDIT,
    ),
    one(
        "lineage: what shares no key is passed over in cycles too",
        "drift/auditing/route.py",
        "if not plan.is_cyclic((groups[0],)):",
        "if True:",
        LINEAGE,
        NO_AUDIT,
    ),
    one(
        "fingerprint: values of the module do not count",
        "drift/records/code.py",
        '        yield f"global {name}", value',
        '        yield f"global {name}", None',
        FINGERPRINT,
        NO_AUDIT,
    ),
    one(
        "fingerprint: line numbers count",
        "drift/records/code.py",
        "    return signature, code.co_varnames",
        "    return code.co_firstlineno, signature, code.co_varnames",
        FINGERPRINT,
        NO_AUDIT,
    ),
    one(
        "divergence: the block after is looked at",
        "drift/auditing/divergence.py",
        "        start = self._checked * BLOCK_ITEMS\n        end = start + BLOCK_ITEMS\n",
        "        start = (self._checked + 1) * BLOCK_ITEMS\n        end = start + BLOCK_ITEMS\n",
        DIVERGENCE,
        NO_AUDIT,
    ),
    one(
        "verdict: the reference is not asked",
        "drift/auditing/verdict.py",
        "            self._bug,\n",
        "",
        DIVERGENCE,
        NO_AUDIT,
    ),
    one(
        "outputs: equal payloads are not set against each other first",
        "drift/auditing/outputs.py",
        "                equal = [other for other in others if other.data == row.data]",
        "                equal = [other for other in others[:1] if other.data == row.data]",
        OUTPUTS,
        NO_AUDIT,
    ),
]
