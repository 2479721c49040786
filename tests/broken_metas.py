"""Breakages of the metas of a batch, compiled and as a list, and of stamps and lateness."""

from __future__ import annotations

from broken import Breakage, one

_COMPILED, _LISTED = "kernel/drift_kernel/metas.pyx", "graph/drift_graph/metas.py"
_STAMPS, _LATENESS = "graph/drift_graph/stamp_counts.py", "graph/drift_graph/lateness.py"
_TESTS = ("tests/core/test_metas_of_batches.py",)
_ARRIVING = ("tests/machines/test_in_order.py", "tests/core/test_source_machines.py")
_SAME = "all engines use the same code, so all are wrong alike"

BREAKAGES: list[Breakage] = [
    one(name, file, old, new, tests, _SAME)
    for name, file, old, new, tests in (
        ("metas are compared without their tail", _COMPILED, "row, size, more = tail, more, 0", "size = 0", _TESTS),
        (
            "equal metas change places",
            _COMPILED,
            "if right < count and _is_above(&spare[left], &keys[right], metas):",
            "if right < count and not _is_above(&keys[right], &spare[left], metas):",
            _TESTS,
        ),
        (
            "equal metas of two sorted parts change places",
            _COMPILED,
            "(left == middle or self.is_above(left, right))",
            "(left == middle or not self.is_above(right, left))",
            _TESTS,
        ),
        ("metas are in two sorted parts", _COMPILED, "if self.is_above(at - 1, at):", "if False:", _TESTS),
        ("metas of about one time are not sorted", _COMPILED, "if ends[at] - start > 1:", "if False:", _TESTS),
        (
            "chosen metas of one size are not numbers",
            _COMPILED,
            "                count += 1\n        _with_one_width(rows)\n        return _metas(rows, self.tail, self.k",
            "                count += 1\n        return _metas(rows, self.tail, self.k",
            _TESTS,
        ),
        (
            "short metas are sorted without their tail",
            _COMPILED,
            "more = min(more, 16 - size)",
            "more = 0",
            _TESTS,
        ),
        (
            "metas increase whatever is put behind them",
            _COMPILED,
            "_INCREASING_ROWS if self.known == _INCREASING_ROWS else _UNKNOWN",
            "self.known",
            _TESTS,
        ),
        (
            "a slice is as the metas before it",
            _COMPILED,
            "rows.ends[at] = old.ends[start + at] - first",
            "rows.ends[at] = old.ends[at]",
            _TESTS,
        ),
        (
            "joined metas have the tail of the first",
            _COMPILED,
            "one_tail = one_tail and metas.tail == first.tail",
            "one_tail = True",
            _TESTS,
        ),
        (
            "joined metas increase if each do",
            _COMPILED,
            "metas.compare(0, every[at - 1], len(every[at - 1]) - 1) <= 0",
            "False",
            _TESTS,
        ),
        (
            "a chain of later items has no length",
            _COMPILED,
            "_varint_at(parent, root_end, hops_end) + 1",
            "_varint_at(parent, root_end, hops_end)",
            _TESTS,
        ),
        (
            "a later child is in its parent's round at any time",
            _COMPILED,
            "same_level = _read_big(parent) == time",
            "same_level = True",
            _TESTS,
        ),
        ("sizes of packed metas are believed", _COMPILED, "if <uint64_t>total != left:", "if False:", _TESTS),
        ("a header of one byte too few is read", _COMPILED, "if place + 1 + kind <= length:", "if True:", _TESTS),
        (
            "equal stamps are counted as one",
            _COMPILED,
            "                stamp.items += 1\n",
            "",
            _TESTS,
        ),
        (
            "stamps of the least accepted time are forgotten",
            _COMPILED,
            "old.start = old.place(self.least, 0, old.start)",
            "old.start = old.place(self.least + 200, 0, old.start)",
            _TESTS,
        ),
        (
            "stamps that came again are counted in two runs",
            _COMPILED,
            "both.stop += both.stamps[both.stop].items > 0",
            "both.stop += 1",
            _TESTS,
        ),
        (
            "a stamp that came before has the ordinals of its batch",
            _COMPILED,
            "ordinals.data.as_longlongs[places[item]] += known.items",
            "pass",
            _TESTS,
        ),
        (
            "stamps whose first bits are equal stay as they came",
            _COMPILED,
            "while other > start and ties[order[other - 1]] > ties[number]:",
            "while False:",
            _TESTS,
        ),
        (
            "stamps are ordered by their last digit",
            _COMPILED,
            "range(of_index, of_index + of_time + of_tie, _DIGIT_BITS)",
            "range(of_index, of_index + 1, _DIGIT_BITS)",
            _TESTS,
        ),
        (
            "times that are far apart are in few bits",
            _COMPILED,
            "if of_time + of_tie + of_index > 64:",
            "if False:",
            _TESTS,
        ),
        (
            "an integer beyond 64 bits is a time",
            "kernel/drift_kernel/walks.pyx",
            "fits = overflow == 0 and (number >= 0 or not unsigned)",
            "fits = number >= 0 or not unsigned",
            ("tests/core/test_moments.py", "tests/core/test_source_machines.py"),
        ),
        (
            "times are late by the first of a batch",
            _COMPILED,
            "        if times[at] > greatest:\n            greatest = times[at]\n",
            "",
            _TESTS,
        ),
        ("packed metas have no bytes of their own", _LISTED, "shared = min(shared, len(metas[0]) - 1)", "pass", _TESTS),
        ("a list of metas is sorted by its sizes", _LISTED, "key=self._metas.__getitem__)", "key=len)", _TESTS),
        (
            "what was taken back stays counted",
            _STAMPS,
            "                self._stamps.take_back(times, ties)\n",
            "",
            _ARRIVING,
        ),
        (
            "a batch's own first payloads are not found",
            _STAMPS,
            "*(number - self._added for number in numbers.values() if number >= self._added)",
            "",
            _ARRIVING,
        ),
        (
            "late times are compared with the greatest of all",
            _LATENESS,
            "        heartbeat = max(greatest - lateness, least)\n        if time",
            "        heartbeat = max(max(times) - lateness, least)\n        if time",
            _TESTS,
        ),
    )
]
