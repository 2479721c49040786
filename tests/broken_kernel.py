"""Breakages of the kernel, which is built anew for each."""

from __future__ import annotations

from broken import SAME_CODE, Breakage, one

_HASH, _ENCODE, _ARROW, _KEYS, _LOOPS, _WALKS = (
    f"kernel/drift_kernel/{name}"
    for name in ("hash.h", "encode.pyx", "arrow.pyx", "keys.pyx", "loops.pyx", "walks.pyx")
)
_UNCHANGED, _ROWS = "graph/drift_graph/unchanged.py", "drift/columns/rows.py"
_PROLONGING = "drift/machines/sessions.py"
SESSIONS = ("tests/rows/test_session_rows.py",)
_OBJECTS = "the harness draws few sessions"
KERNEL = ("tests/core/test_compiled.py",)
ROWS = ("tests/core/test_compiled.py", "-k", "columns")
CHANGED = ("tests/core/test_unchanged.py", "-k", "anywhere or other_objects or whoever or become_dicts")
KEPT = ("tests/core/test_unchanged.py", "-k", "keeps_a_part")
UNCHANGED = ("tests/core/test_unchanged.py", "-k", "kernel")
_OPENING = "drift/machines/windowing.py"
_WINDOWS = "it runs few items at once"
_QUIET = "its functions change nothing"
_FEW = "its values are too few and too short"

IN_ORDER = ("tests/machines/test_in_order.py",)
REFILLED = ("tests/core/test_unchanged.py", "-k", "from_some_item")
BATCHES = ("tests/machines/test_logics.py",)

BREAKAGES: list[Breakage] = [
    *(
        one(name, file, old, new, CHANGED, _QUIET)
        for name, file, old, new in (
            (
                "how long a list was is not asked",
                _WALKS,
                "1 if <Py_ssize_t>self.noted[self.at - 1] == count else 0",
                "1",
            ),
            ("another object is a change", _UNCHANGED, " and self._first() is not None", ""),
            ("rows that were made before are not watched", _ROWS, "self.sample = sample(self._values)", "pass"),
            ("rows in another order are made anew", _ROWS, "found._values = list(", "list("),
            ("rows are watched once they are made", _ROWS, "self.sample = self._sampling(self._values)", "pass"),
        )
    ),
    one(
        "each field is read from the place of the first",
        _ENCODE,
        "place = plan.places[at]\n",
        "place = plan.places[0]\n",
        KERNEL,
    ),
    one(
        "a scan's loop has each key's state as it was before the batch",
        _WALKS,
        "                current[number] = state\n",
        "                pass\n",
        BATCHES,
    ),
    one(
        "a scan's loop stores no state where a step raises",
        _WALKS,
        "    finally:\n        states.update(zip(numbers, current))",
        "    except ZeroDivisionError:\n        raise\n    else:\n        states.update(zip(numbers, current))",
        IN_ORDER,
    ),
    one(
        "a filter leaves in True only",
        _WALKS,
        "1 if function(values[at]) else 0",
        "function(values[at]) is True",
        IN_ORDER,
    ),
    one(
        "what is sorted stays where it was", _WALKS, "made[at] = values[places[at]]", "made[at] = values[at]", IN_ORDER
    ),
    one(
        "results that may change are noted with the next call",
        _WALKS,
        "if _is_unchangeable(result, kinds, 0) != 1:\n            break",
        "pass",
        REFILLED,
        _QUIET,
    ),
    one("a stripe at the end of a block is left out", _HASH, "p) > 1024;", "p) > 1088;", KERNEL, SAME_CODE),
    one("the last stripe begins elsewhere", _HASH, "SECRET + 121", "SECRET + 120", KERNEL, SAME_CODE),
    one(
        "240 bytes are many",
        _HASH,
        "hash128 sum;\n    if (size > 240)",
        "hash128 sum;\n    if (size > 239)",
        KERNEL,
        _FEW,
    ),
    one(
        "the last three bytes of a hash are left out",
        _HASH,
        "for (; p < end; p++) sum",
        "for (; p + 3 < end; p++) sum",
        KERNEL,
    ),
    one(
        "what is in a list is not looked at",
        _WALKS,
        "if _freshness(_of_list(value, at), kinds, deep + 1) == 0:",
        "if False:",
        UNCHANGED,
        _QUIET,
    ),
    one(
        "a tuple that somebody has is fresh", _WALKS, "least == 2 or _references(value) == 1", "True", UNCHANGED, _QUIET
    ),
    one(
        "what is in a tuple is not looked at",
        _WALKS,
        "return _are_unchangeable(<tuple>value, kinds, deep + 1)",
        "return 1",
        UNCHANGED,
        _QUIET,
    ),
    one(
        "what is in a pair that somebody has is fresh",
        _WALKS,
        "found == 1 and _references(made) > 1",
        "False",
        KEPT,
        _QUIET,
    ),
    one(
        "an output that somebody has is not noted",
        _WALKS,
        "        elif found == 0:\n            self.note(result)\n",
        "",
        ("tests/core/test_unchanged.py", "-k", "has_returned and scan"),
        _QUIET,
    ),
    one(
        "a state behind a fresh output is not noted",
        _WALKS,
        "self.note(result if found == 0 else <object>_of_tuple(made, 0))",
        "self.note(result if found == 0 else None)",
        KEPT,
        _QUIET,
    ),
    one("-32 has two bytes", _ENCODE, "    if value >= -32:", "    if value > -32:", KERNEL, SAME_CODE),
    one("an extension of 16 bytes has no header of its own", _ENCODE, " or size == 16:", ":", KERNEL, _FEW),
    one(
        "a long extension is not moved back",
        _ENCODE,
        "    out.size -= HEAD_MAX - head\n",
        "    out.size -= 3\n",
        KERNEL,
        _FEW,
    ),
    one("dicts are in the order of insertion", _ENCODE, "if self.in_order and count > 1:", "if False:", KERNEL, _FEW),
    one(
        "fields that are not set are an error",
        _ENCODE,
        "except AttributeError:  # n",
        "except KeyError:  # n",
        ("tests/core/test_canonical.py",),
        _FEW,
    ),
    one(
        "attributes that are no fields are not seen",
        _ENCODE,
        "if of_names not in plan.known:",
        "if False:",
        ("tests/core/test_canonical.py",),
        _FEW,
    ),
    one("what is deep is not asked of the twin", _ENCODE, "    DEPTH_MAX = 60", "    DEPTH_MAX = 3000", KERNEL, _FEW),
    one("a moment has no microseconds", _ENCODE, "0xA0 | (26 if micros else 19)", "0xA0 | 19", KERNEL, _FEW),
    one(
        "True is a key like 1",
        _KEYS,
        "kind == <PyObject *>int or",
        "kind == <PyObject *>int or kind == <PyObject *>bool or",
        KERNEL,
    ),
    one(
        "bits of null are read from the first",
        _ARROW,
        "piece.valid[at >> 3] >> (at & 7) & 1:",
        "piece.valid[row >> 3] >> (row & 7) & 1:",
        ROWS,
        _FEW,
    ),
    one(
        "a long constant takes the place of a short one",
        _ARROW,
        "if piece.before_size + size <= PIECE_MAX:",
        "if size <= PIECE_MAX:",
        ROWS,
        _FEW,
    ),
    one("small unsigned integers are negative", _ARROW, "(<uint64_t>1 << (8 * width)) - 1", "~<uint64_t>0", ROWS, _FEW),
    one(
        "a text of twelve bytes is not in its view",
        _ARROW,
        "if 0 <= size <= VIEW_MAX:",
        "if 0 <= size < VIEW_MAX:",
        ROWS,
        _FEW,
    ),
    one(
        "a leap year is every fourth",
        _ARROW,
        "leap = ones == 3 and (fours != 24 or hundreds == 3)",
        "leap = ones == 3",
        ROWS,
        _FEW,
    ),
    one("a day before 1970 is the day after", _ARROW, "            day -= 1\n", "            pass\n", ROWS, _FEW),
    one(
        "a text may end behind its bytes",
        _ARROW,
        "if not 0 <= start <= end <= memory.view.len or",
        "if not 0 <= start <= end or",
        ROWS,
        _FEW,
    ),
    one("a session ends too early", _LOOPS, "if times[at] <= until:", "if times[at] < until:", SESSIONS, _OBJECTS),
    one("a session's timer is not moved by an item", _LOOPS, "session.due < due and", "False and", SESSIONS, _OBJECTS),
    one(
        "a session that an item ends has the timer of before",
        _LOOPS,
        "due = min(until, times[at])",
        "due = min(until, times[at]) if times[at] <= until else 0",
        SESSIONS,
        _OBJECTS,
    ),
    one(
        "a session that an item ends is lost",
        _LOOPS,
        "over.append(cell)\n                cell =",
        "pass\n                cell =",
        SESSIONS,
        _OBJECTS,
    ),
    one(
        "sums beyond 64 bits go round",
        _LOOPS,
        "                    self.widen()\n                    return",
        "                    continue\n                    return",
        SESSIONS,
        _OBJECTS,
    ),
    one(
        "a sum that widens begins with the next item",
        _LOOPS,
        "values.tolist(), at)",
        "values.tolist(), at + 1)",
        SESSIONS,
        _OBJECTS,
    ),
    one("the least is the last", _LOOPS, "if floats[at] < self", "if floats[at] <= self", SESSIONS, _OBJECTS),
    one(
        "integers beyond 53 bits are divided as floats",
        "drift/columns/groups.py",
        'if kind == "mean" and len(arrays[1]) and arrays[1].dtype == np.int64 and',
        "if False and",
        SESSIONS,
        _OBJECTS,
    ),
    one(
        "what a batch added stays where a call raises",
        _LOOPS,
        "column.restore(self.known, saved)",
        "pass",
        SESSIONS,
        _OBJECTS,
    ),
    one("timers above the bound fire", _LOOPS, "if self.timers[cell] >= bound:", "if False:", SESSIONS, _OBJECTS),
    one(
        "a timer that has moved is not waited for",
        _LOOPS,
        "keys.append(self.keys[cell])\n            self.wait(cell)",
        "keys.append(self.keys[cell])",
        SESSIONS,
        _OBJECTS,
    ),
    one("a free cell is that of the session before", _LOOPS, "self.serial += 1", "self.serial = 1", SESSIONS, _OBJECTS),
    one(
        "sessions that end are not in order",
        _PROLONGING,
        "cells = self._kernel.taken(cells, order)\n",
        "pass\n",
        SESSIONS,
        _OBJECTS,
    ),
    one(
        "a checkpoint misses sessions",
        _PROLONGING,
        "return dict(self._entries(self._table.cells_of(keys)))",
        "return {}",
        SESSIONS,
        _OBJECTS,
    ),
    one(
        "sessions begin beside those of the stage", _PROLONGING, "or not self._take_over(keys)", "", SESSIONS, _OBJECTS
    ),
    one("sessions are not handed back", _PROLONGING, "        self._table.end(cells)\n\n", "\n", SESSIONS, _OBJECTS),
    one("windows of two ends have one cell", _LOOPS, "if cell < first:", "if cell < 0:", SESSIONS, _WINDOWS),
    one(
        "what became objects in a batch is taken back as numbers",
        _LOOPS,
        "self.objects[cells[at]] = self.of_numbers(made_of, counts.data.as_longlongs[at], number)",
        "pass",
        ("tests/rows/test_session_rows.py", "-k", "taken_back"),
        _WINDOWS,
    ),
    one(
        "windows that stay have what those that end had",
        _LOOPS,
        "column.move(first, len(self.keys))",
        "pass",
        SESSIONS,
        _WINDOWS,
    ),
    one(
        "a window that goes on begins anew",
        _LOOPS,
        "self.cells[before.keys[at]] = cell - first\n\n    def clear",
        "pass\n\n    def clear",
        SESSIONS,
        _WINDOWS,
    ),
    one(
        "integers beyond 64 bits are cut off",
        _LOOPS,
        "            if overflow:\n                return values",
        "            if False:\n                return values",
        SESSIONS,
        _WINDOWS,
    ),
    one(
        "a checkpoint misses windows",
        _OPENING,
        "return dict(self._entries(self._table.cells_of(keys)))",
        "return {}",
        ("tests/rows/test_running.py", "-k", "resumes"),
        _WINDOWS,
    ),
]
