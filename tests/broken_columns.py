"""Breakages of rows as columns."""

from __future__ import annotations

from broken import Breakage, one

_FORMS, _METAS = "drift/columns/forms.py", "drift/columns/metas.py"
ROWS = ("tests/test_rows.py", "-k", "forms or metas")
OUTPUTS = ("tests/test_rows.py", "-k", "outputs or travel or tables")
READ = ("tests/test_rows_read.py",)
_UNSEEN = "its inputs are no rows"
_TIMES, TIMED = (
    "drift/columns/times.py",
    (
        "tests/test_rows_times.py",
        "tests/test_in_order.py",
        "-k",
        "columns or at_once or processes or as_in_a_list or digest or fixed",
    ),
)
FIELDS = ("tests/test_running.py", "-k", "without_their_dicts")
_AGGREGATES, _STAGE = "drift/columns/aggregates.py", "drift/machines/keyed.py"
RUNNING, CUT = (
    ("tests/test_running.py", "-k", "digest or cut or many or what"),
    ("tests/test_running.py", "-k", "resumes"),
)

BREAKAGES: list[Breakage] = [
    one("a NaN has the bits it came with", _FORMS, "if np.isnan(values).any():", "if False:", ROWS, _UNSEEN),
    one(
        "null is encoded as the value below it",
        _FORMS,
        "        codes[~valid] = _NIL[0]\n",
        "        pass\n",
        ROWS,
        _UNSEEN,
    ),
    one("a text's last bits are left out", _FORMS, "bit_length()):", "bit_length() - 1):", ROWS, _UNSEEN),
    one("a long text has a short header", _FORMS, "(0, short - 1,", "(0, short,", ROWS, _UNSEEN),
    one("integers of two sizes overlap", _FORMS, "(1 << 8, (1 << 16) - 1", "(1 << 7, (1 << 16) - 1", ROWS, _UNSEEN),
    one("chosen metas of rows without a head", _METAS, "joined(head), f", "joined(bytes(len(head))), f", ROWS, _UNSEEN),
    one(
        "forms of the first rows for all",
        "drift/columns/rows.py",
        "slice(number * _FORMS",
        "slice(0 * _FORMS",
        ROWS,
        _UNSEEN,
    ),
    one(
        "a dict becomes a row with other values",
        "drift/columns/expressions.py",
        "        return types <= {expected, NoneType}\n",
        "        return True\n",
        ("tests/test_rows.py", "-k", "becomes_a_row or another_type"),
        _UNSEEN,
    ),
    # Running aggregates.
    one("a sum of floats begins with 0", _AGGREGATES, "before, -0.0, float)", "before, 0.0, float)", RUNNING, _UNSEEN),
    one("a sum of integers overflows", _AGGREGATES, "_EXACT_MAX = 1 << 62", "_EXACT_MAX = 1 << 70", RUNNING, _UNSEEN),
    one("a mean of large integers", _AGGREGATES, "_MEAN_MAX = 1 << 53", "_MEAN_MAX = 1 << 62", RUNNING, _UNSEEN),
    one("NaN is the least", _AGGREGATES, "if np.isnan(some).any() or not", "if not", RUNNING, _UNSEEN),
    one("zeros of both signs are one", _AGGREGATES, "any() or not some.all():", "any():", RUNNING, _UNSEEN),
    one(
        "keys of two fields are mixed up",
        _AGGREGATES,
        "np.int64) * len(values) + own)",
        "np.int64) + own)",
        RUNNING,
        _UNSEEN,
    ),
    one("rows of a key in two batches start again", _AGGREGATES, "        matrix[0] = before\n", "", RUNNING, _UNSEEN),
    one("of a key with many rows", _AGGREGATES, "= chain[1:], chain[-1]", "= chain[1:], chain[0]", RUNNING, _UNSEEN),
    one(
        "a cut misses keys of rows in columns",
        _STAGE,
        "            self.get([metas[-1]] * len(keys), keys)\n",
        "",
        CUT,
        _UNSEEN,
    ),
    one(
        "accumulators are mixed up",
        "drift/flow/aggregates.py",
        "{key: each[at] for",
        "{key: each[0] for",
        FIELDS,
        _UNSEEN,
    ),
    one(
        "a field of rows is the first",
        "drift/columns/rows.py",
        "[batch.column(at)]",
        "[batch.column(0)]",
        FIELDS,
        _UNSEEN,
    ),
    # Outputs and processes.
    one(
        "tables make dicts of rows",
        "drift/sinks/typed.py",
        "        if are_rows(payloads):\n",
        "        if False:\n",
        OUTPUTS,
        _UNSEEN,
    ),
    one(
        "a declared type converts as Arrow casts",
        "drift/sinks/typed.py",
        "        return _array(python_values(column), field, self._of)\n",
        "        return column.cast(field.type, safe=False)\n",
        OUTPUTS,
        _UNSEEN,
    ),
    one(
        "rows travel as pickles of dicts",
        "drift/engines/packing.py",
        "    if are_rows(payloads):\n",
        "    if False:\n",
        OUTPUTS,
        _UNSEEN,
    ),
    one(
        "a function of tables is not tried in parts",
        "drift/columns/batches.py",
        "_batches_tried[self] < _TRIED_MAX",
        "False",
        OUTPUTS,
        _UNSEEN,
    ),
    one(
        "a function of tables sets what is in the rows",
        "drift/columns/batches.py",
        "self.function(frame.clone())",
        "self.function(frame)",
        OUTPUTS,
        _UNSEEN,
    ),
    # Sources.
    one(
        "rows before a bad one are left out",
        "drift/columns/read.py",
        "    return joined([made, more]), fault\n",
        "    return more, fault\n",
        READ,
        _UNSEEN,
    ),
    one(
        "a decimal is rounded",
        "drift/columns/read.py",
        "round(value, kind.scale) != value",
        "False",
        READ,
        _UNSEEN,
    ),
    one(
        "a time loses its zone",
        "drift/columns/read.py",
        "    if (found.tzinfo is not None) != has_zone:\n",
        "    if False:\n",
        READ,
        _UNSEEN,
    ),
    one(
        "a diverted row takes the place of the next one",
        "drift/sources/csv_rows.py",
        "            made.append(file.divert(bad.line, fault, bad.row))\n",
        "            made.insert(0, file.divert(bad.line, fault, bad.row))\n",
        READ,
        _UNSEEN,
    ),
    one(
        "rows that may still be corrected are added in columns",
        _STAGE,
        "        if is_complete and not self._blocked and are_rows(payloads):\n",
        "        if not self._blocked and are_rows(payloads):\n",
        ("tests/test_running.py", "-k", "any_order"),
        _UNSEEN,
    ),
    # Rows in event time.
    one(
        "rows are late by the batch before",
        _TIMES,
        "np.maximum.accumulate(self._times)",
        "self._times * 1",
        TIMED,
        _UNSEEN,
    ),
    one(
        "rows are late by their batch alone",
        "graph/drift_graph/lateness.py",
        "if least is None or least < self.least_behind(policy.lateness):",
        "if least is None:",
        TIMED,
        _UNSEEN,
    ),
    one(
        "times far apart overflow",
        _TIMES,
        "        if self.greatest - least > TIME_MAX:",
        "        if False:",
        TIMED,
        _UNSEEN,
    ),
    one("microseconds are rounded up", _TIMES, ".to_numpy() // _IN", ".to_numpy() // -_IN", TIMED, _UNSEEN),
    one("times without a zone are in UTC", _TIMES, "or zone is UTC)", "or zone is not None)", TIMED, _UNSEEN),
    one(
        "null is a time",
        _TIMES,
        "    if column.null_count():\n        return None\n    if kind",
        "    if kind",
        TIMED,
        _UNSEEN,
    ),
    one("unsigned times overflow", _TIMES, "if int(numbers.max()) <= TIME_MAX else None", "", TIMED, _UNSEEN),
    one(
        "ties below 0 are not hashed", _TIMES, "numbers if int(numbers.min()) >= 0 else None", "numbers", TIMED, _UNSEEN
    ),
    one("rows of one time are not sorted by ties", _METAS, "words[:, 1].astype(np.uint64), ", "", TIMED, _UNSEEN),
    one(
        "equal rows have one meta",
        _METAS,
        "return not (words[1:] == words[:-1])",
        "return True or (words[1:] == words[:-1])",
        TIMED,
        _UNSEEN,
    ),
    one(
        "an attempt in arrays leaves its greatest time",
        "graph/drift_graph/times.py",
        "        self._lateness.greatest = before\n        return None",
        "        return None",
        TIMED,
        _UNSEEN,
    ),
    one(
        "rows are taken whatever may be ahead",
        "graph/drift_graph/lateness.py",
        "self._some_ahead(timed.first",
        "False and self._some_ahead(timed.first",
        TIMED,
        _UNSEEN,
    ),
    one(
        "times are never found in arrays",
        "graph/drift_graph/times.py",
        "        if timed is None or not",
        "        if True or not",
        TIMED,
        _UNSEEN,
    ),
]
