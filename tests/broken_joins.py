"""Breakages of joins of rows in columns, and of going on with columns behind a checkpoint."""

from __future__ import annotations

from broken import Breakage, one

_JOINED, _FLAT, _LOOKUPS, _SIDED = (f"drift/columns/{name}.py" for name in ("joined", "flat", "lookups", "sided"))
_AS_OF = "drift/columns/as_of.py"
_FORM = "drift/machines/joining.py"
PAIRS = ("tests/rows/test_joined_rows.py", "-k", "one_by_one or checkpoints")
FLAT = ("tests/rows/test_flat_joins.py", "-k", "pairs or loop or mapping or travel")
AS_OF = ("tests/rows/test_joined_rows.py", "-k", "finds_the_last")
RESUMED = ("tests/rows/test_rows_resumed.py", "-k", "dedup or within or table")
_UNSEEN = "its inputs are no rows"

BREAKAGES: list[Breakage] = [
    one(
        "None pairs with None",
        "drift/flow/joins.py",
        "if has_null(key) and not self.nulls_equal else key",
        "if False else key",
        ("tests/flow/test_flow_joins.py", "-k", "none_has"),
        "the harness draws none",
    ),
    one(
        "a null in a column of keys pairs",
        "drift/flow/joins.py",
        " and (self.nulls_equal or not payloads.has_nulls(names))",
        "",
        ("tests/flow/test_flow_joins.py", "-k", "none_has"),
        "the harness draws none",
    ),
    one(
        "a left item does not wait for a nearer one",
        "drift/flow/joins.py",
        "min(came + self.within, came + to_before - 1)",
        "came",
        ("tests/flow/test_flow_joins.py", "-k", "equally_near"),
        "the harness draws none",
    ),
    one(
        "columns do not look up the states behind a checkpoint",
        "drift/machines/keyed.py",
        "            self.get([metas[-1]] * len(keys), keys)\n",
        "",
        RESUMED,
        _UNSEEN,
    ),
    one(
        "rows of one batch do not meet",
        _JOINED,
        "self.sides[side].runs), (run, at)]",
        "self.sides[side].runs)]",
        PAIRS,
        _UNSEEN,
    ),
    one(
        "rows of a batch meet those behind them",
        _JOINED,
        "            last = _bisected(self.places, first, last, below)\n",
        "            pass\n",
        PAIRS,
        _UNSEEN,
    ),
    one(
        "rows beyond the bounds of a join are met",
        _JOINED,
        "            first = _bisected(self.times, first, last, least)\n",
        "            pass\n",
        PAIRS,
        _UNSEEN,
    ),
    one("a bound of a join is left out", _JOINED, "middle, 0)] < bounds", "middle, 0)] <= bounds", PAIRS, _UNSEEN),
    one(
        "a right item that was found is given at the end too",
        "drift/flow/joins.py",
        "entry[2] or place in hits",
        "entry[2]",
        ("tests/flow/test_flow_joins.py", "-k", "that_no_left_one_finds"),
        _UNSEEN,
    ),
    one(
        "right items that wait for a left one at the end are lost",
        "drift/flow/joins.py",
        "(self.gives_right and time == END)",
        "False",
        ("tests/flow/test_flow_joins.py", "-k", "that_no_left_one_finds"),
        _UNSEEN,
    ),
    one(
        "the newest rows are met first",
        _JOINED,
        "[*((stored, None) for stored in self.sides[side].runs), (run, at)]",
        "[(run, at), *((stored, None) for stored in self.sides[side].runs)]",
        PAIRS,
        _UNSEEN,
    ),
    one(
        "rows are dropped a moment too early",
        _JOINED,
        "            bound, runs = now - self.reach, self.runs\n",
        "            bound, runs = now - self.reach + 1, self.runs\n",
        PAIRS,
        _UNSEEN,
    ),
    one(
        "keys keep their old numbers where others have new ones",
        _JOINED,
        "run._replace(codes=numbers[run.codes]) for run",
        "run for run",
        ("tests/rows/test_joined_rows.py", "-k", "numbers"),
        _UNSEEN,
    ),
    one(
        "keys without rows stay in checkpoints",
        _FORM,
        "        if gone := self._arrays.without_rows():\n",
        "        if gone := []:\n",
        PAIRS,
        _UNSEEN,
    ),
    one(
        "rows of the stage are taken over and left there",
        _FORM,
        "        states.clear()\n",
        "",
        PAIRS,
        _UNSEEN,
    ),
    one(
        "rows in arrays are forgotten where others are looked at one by one",
        "drift/machines/keyed.py",
        " or self._logic.takes is not None):",
        "):",
        PAIRS,
        _UNSEEN,
    ),
    one(
        "a row of the right that is hidden now hides those before it",
        _AS_OF,
        "(run.times[1:] <= now), False)",
        "(run.times[1:] <= now + 2), False)",
        AS_OF,
        _UNSEEN,
    ),
    one(
        "a row of the right at the same time is not found",
        _AS_OF,
        "times[asking] + 1) - 1",
        "times[asking]) - 1",
        AS_OF,
        _UNSEEN,
    ),
    one("older rows of the right are found first", _AS_OF, "reversed(self.runs)", "self.runs", AS_OF, _UNSEEN),
    one(
        "rows that wait are given before all of their time have come",
        _FORM,
        "time if self._moment(time) + END_OF_TIME <= bound else time - 1",
        "time",
        AS_OF,
        _UNSEEN,
    ),
    one(
        "the timer of rows that wait hangs on the last of them",
        _AS_OF,
        "firsts = order[begins]",
        "firsts = order[np.append(begins[1:], True)]",
        AS_OF,
        _UNSEEN,
    ),
    one(
        "of several rows of a key the first is joined again",
        _LOOKUPS,
        "np.where(firsts < 0, -1, firsts + nth)",
        "firsts",
        FLAT,
        _UNSEEN,
    ),
    one("a key without rows has the last ones", _FLAT, "gather(at.set(at < 0, None))", "gather(at)", FLAT, _UNSEEN),
    one(
        "the right of an unmatched row is a row of nulls",
        _SIDED,
        "[row if is_there else None for row, is_there in zip(right, self.frame.to_series(-1))]",
        "list(right)",
        PAIRS,
        _UNSEEN,
    ),
]
