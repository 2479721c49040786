"""Deliberate breakages: a law is only as good as the bugs it kills.

    python tests/breakages.py            all of them, a few minutes
    python tests/breakages.py rank ack   those with one of the words in their names

Each is an edit to a copy of the source tree, whose old text must be found exactly once; then the tests run on the copy
until the first one fails. A breakage that every test passes is NOT CAUGHT, and the exit code is 1. The first row is
the copy as it is, which must pass.

The harness is run on it too: how many seeds it takes to find the breakage, at most SEEDS_MAX, and how small the case
becomes, at most ITEMS_MAX items and DEVIATIONS_MAX deviations from order. What it cannot see by its nature says why.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_LAWS = ("tests/test_laws.py",)
_MACHINES = ("tests/test_machines.py",)
_GOLDEN = ("tests/test_golden.py",)
_RECORDS = (
    "tests/test_records.py",
    "tests/test_records_troubles.py",
    "tests/test_records_trouble_while_writing.py",
)
_LINEAGE = ("tests/test_lineage.py", "-k", "not tree")
_FINGERPRINT, _OUTPUTS = ("tests/test_fingerprint.py",), ("tests/test_outputs.py",)
_DIVERGENCE = ("tests/test_divergence.py", "-k", "differs or looked or hash or bug or versions")
_FEED = ("tests/test_feed.py",)
_IDLE = (*_FEED, "-k", "idle")
_OURS = (
    *_LAWS,
    *_MACHINES,
    *_GOLDEN,
    *_RECORDS,
    *_FEED,
    *_FINGERPRINT,
    *_OUTPUTS,
    "tests/test_lineage.py",
    "tests/test_divergence.py",
    "tests/inputs.py",
    "tests/conftest.py",
    "tests/strategies.py",
    "tests/hunt.py",
    "tests/test_testing.py",
)
_SOURCES = {"": "drift", "acker": "drift_acker", "barrier": "drift_barrier", "graph": "drift_graph"}
_TIMEOUT_S = 600
SEEDS_MAX, ITEMS_MAX, DEVIATIONS_MAX = 2000, 4, 2
_MEMORY_MAX_BYTES = 3 * 2**30


class Edit(NamedTuple):
    file: str
    old: str
    new: str


class Breakage(NamedTuple):
    name: str
    edits: Sequence[Edit]
    tests: Sequence[str] = _LAWS
    unseen: str = ""  # why the harness cannot see it


_ACKER, _LEDGER = "acker/drift_acker/table.py", "acker/drift_acker/ledger.py"
_BARRIER, _DIGEST = "barrier/drift_barrier/barrier.py", "barrier/drift_barrier/digest.py"
_CANONICAL, _META = "graph/drift_graph/canonical.py", "graph/drift_graph/meta.py"
_RANKS, _TIMES = "graph/drift_graph/ranks.py", "graph/drift_graph/times.py"
_REFERENCE = "graph/drift_graph/reference.py"
_SIMULATED, _FEED_FILE = "drift/engines/simulated.py", "drift/engines/feed.py"
_CHANGES, _GROUPING = "drift/machines/changes.py", "drift/machines/grouping.py"
_KEYS, _MAPS = "drift/machines/keys.py", "drift/machines/maps.py"
_PLAN, _SCAN, _WORKER = "drift/machines/plan.py", "drift/machines/scan.py", "drift/machines/worker.py"


_RECORDED, _RECORDER = "drift/engines/recorded.py", "drift/records/recorder.py"
_RECORD_PROCESS, _INTACT = "drift/records/process.py", "drift/records/intact.py"


def _one(name: str, file: str, old: str, new: str, tests: Sequence[str] = _LAWS, unseen: str = "") -> Breakage:
    return Breakage(name, [Edit(file, old, new)], tests, unseen)


_SAME_CODE = "the reference uses the same code, so both are wrong alike"
_NO_RECORDS = "the harness keeps no records"
_NO_AUDIT = "the harness audits nothing"
_NO_SHELL = "it is in the shell around the sources, which the simulator has not"


BREAKAGES = [
    # The protocol, which the simulator's shell keeps.
    _one(
        "an ack split in two",
        _SIMULATED,
        "        self._send_ack(thing, ack_of(map(_tracked, taken), map(_tracked, sent)))",
        "        self._send_ack(thing, ack_of(map(_tracked, taken), ()))\n"
        "        self._send_ack(thing, ack_of((), map(_tracked, sent)))",
    ),
    _one(
        "a heartbeat before the ack",
        _SIMULATED,
        "        self._send_promise(rank, first, ack_of((), map(_tracked, sent), [(rank, heartbeat)]))",
        "        self._send_promise(rank, first, ack_of((), (), [(rank, heartbeat)]))\n"
        "        self._send_promise(rank, first, ack_of((), map(_tracked, sent)))",
    ),
    Breakage(
        "a source's acks overtake each other",
        [
            Edit(_SIMULATED, "        if len(waiting) == 1:\n", "        if True:\n"),
            Edit(_SIMULATED, "        if waiting:\n            self.under_way.append(waiting[0])\n", ""),
        ],
    ),
    _one(
        "a message tracked at its greatest time",
        _SIMULATED,
        "granule = global_time_of(min(min(columns.metas) for _, columns in these))",
        "granule = global_time_of(max(max(columns.metas) for _, columns in these))",
    ),
    _one(
        "a duplicate message",
        _SIMULATED,
        "        for message in messages:\n",
        "        for message in messages * 2:\n",
    ),
    _one(
        "a message lost",
        _SIMULATED,
        "        for message in messages:\n",
        "        for message in messages[:-1]:\n",
    ),
    _one(
        "a tombstone lost on its way",
        _SIMULATED,
        "        for name, columns in parts:\n            self.barrier.add(name, columns)\n",
        "        for name, columns in parts:\n"
        "            gone = (columns.diffs or [1]).index(-1) if -1 in (columns.diffs or [1]) else len(columns.metas)\n"
        "            kept = [index for index in range(len(columns.metas)) if index != gone]\n"
        "            self.barrier.add(name, Columns(*([list(each)[index] for index in kept] if each else None"
        " for each in columns)))\n",
    ),
    # Minimal time.
    _one(
        "minimal time without what is in flight",
        _ACKER,
        "            minimal = min(minimal, cells.peekitem(0)[0])\n",
        "            pass\n",
    ),
    _one(
        "minimal time by the greatest cell",
        _ACKER,
        "minimal = min(minimal, cells.peekitem(0)[0])",
        "minimal = min(minimal, cells.peekitem(-1)[0])",
    ),
    _one(
        "minimal time without the slowest source",
        _ACKER,
        "min(self._heartbeats.values()",
        "max(self._heartbeats.values()",
    ),
    _one(
        "a cell that is set, not folded",
        _ACKER,
        "left = cells.get(granule, 0) ^ checksum",
        "left = checksum",
        (*_LAWS, "-k", "simulated"),
    ),
    _one("two messages with one checksum", _LEDGER, "        self._sent += 1\n", ""),
    # The output barrier.
    _one(
        "<= for < at release",
        _BARRIER,
        "        taken = self._cut(minimal_time)\n",
        '        taken = self._cut(minimal_time + b"\\xff")\n',
    ),
    _one(
        "items counted by meta alone",
        _BARRIER,
        "    forms = forms_of(payloads)\n",
        '    forms = [b""] * len(payloads)\n',
    ),
    _one(
        "failures released early",
        _BARRIER,
        "        self._failures = self._failures or sink == FAILURES\n",
        "        self._failures = self._failures or sink == FAILURES\n"
        "        if sink == FAILURES and columns.diffs is None:\n"
        "            raise step_error(columns.payloads[0], columns.metas[0])\n",
    ),
    _one(
        "a failure in the words of one that was taken back",
        _BARRIER,
        "            if any(type(payloads[index]) is Failure for index in indices):\n",
        "            if False:\n",
        _MACHINES,
    ),
    _one(
        "items before a failure not released",
        _BARRIER,
        "                metas, payloads = metas[:first], payloads[:first]\n        try:",
        "                metas, payloads = metas[:0], payloads[:0]\n        try:",
    ),
    _one("blocks of another size", _DIGEST, "BLOCK_ITEMS = 4096", "BLOCK_ITEMS = 4095", _GOLDEN, _SAME_CODE),
    # Metas and ranks.
    Breakage(
        "rank left out of the meta",
        [
            Edit(_META, "    head = varint(rank)\n", '    head = b""\n'),
            Edit(_MAPS, "self._only_child = self._rank + varint(0)", "self._only_child = varint(0)"),
            Edit(
                _REFERENCE,
                "self.push(operator.name, meta + varint(index), child)",
                "self.push(operator.name, came_with + varint(index), child)",
            ),
        ],
    ),
    _one(
        "ranks from the top down",
        _RANKS,
        "    ranked.sort(key=lambda name: heights[name])",
        "    ranked.sort(key=lambda name: -heights[name])",
    ),
    _one(
        "a scan's state of a rank that is not the lowest",
        _RANKS,
        "    ranked.sort(key=lambda name: heights[name])",
        '    ranked.sort(key=lambda name: heights[name] + 100 * name.endswith(".state"))',
    ),
    _one(
        "what leads round to a scan may come before its state",
        _RANKS,
        "        if step not in _reached(grouping, feeds):\n",
        "        if False:\n",
    ),
    # Groupings.
    _one(
        "one settled item too few kept",
        _GROUPING,
        "gone = bisect_left(metas, minimal_time) - self._window + 1",
        "gone = bisect_left(metas, minimal_time) - self._window + 2",
    ),
    _one(
        "debts of a grouping not kept",
        _GROUPING,
        "                self._debts.owe(meta, payload)",
        "                pass",
    ),
    _one(
        "debts of a grouping forgotten by a batch without tombstones",
        _GROUPING,
        "        if diffs is None and not self._debts:",
        "        if diffs is None:",
        _MACHINES,
    ),
    _one(
        "one window too few corrected",
        _GROUPING,
        "min(end + window - 1, len(metas))",
        "min(end + max(window - 2, 0), len(metas))",
    ),
    _one(
        "windows of an item in between not corrected",
        _GROUPING,
        "elif (not bucket[0] or bucket[0][-1] < meta) and",
        "elif (not bucket[0] or bucket[0][0] < meta) and",
    ),
    _one(
        "old and new compared by ==",
        _CHANGES,
        "(old is not NOTHING and new is not NOTHING and same(old, new))",
        "(old is not NOTHING and new is not NOTHING and old == new)",
    ),
    _one(
        "a tombstone that is not sent",
        _CHANGES,
        "        if old is not NOTHING:\n",
        "        if old is not NOTHING and new is not NOTHING:\n",
    ),
    _one(
        "a tombstone that takes back another payload",
        _GROUPING,
        "            while at < len(metas) and metas[at] == meta and not same(payloads[at], payload):\n"
        "                at += 1\n",
        "",
    ),
    # Scans.
    _one(
        "early stop by == instead of canonical sameness",
        _SCAN,
        "at >= changed_end and same(state, old_befores[old])",
        "at >= changed_end and state == old_befores[old]",
    ),
    _one(
        "early stop one item too early",
        _SCAN,
        "changed_end = max(changed_end + 1, at + 1)",
        "changed_end = max(changed_end, at)",
    ),
    _one(
        "early stop at an item that went",
        _SCAN,
        "            changed_end = max(changed_end - 1, at)",
        "            pass",
        _MACHINES,
    ),
    _one(
        "segments of a scan dropped one too early",
        _SCAN,
        "self._segments and self._segments[0].metas[-1] < minimal_time",
        "self._segments and self._segments[0].metas[0] < minimal_time",
    ),
    _one(
        "a history dropped before the segments that it corrects",
        _SCAN,
        "                or history.segments_read > self._segments_gone  # they may",
        "                or False  #",
        _MACHINES,
    ),
    _one("debts of a scan not kept", _SCAN, "                self._debts.owe(meta, payload)", "                pass"),
    _one(
        "a scan that takes every batch for the last",
        _SCAN,
        "        self._last = max(self._last, metas[-1])",
        "        self._last = metas[-1]",
    ),
    _one(
        "a state after a failed step", _SCAN, "                self._blocked_keys[key] = None", "                pass"
    ),
    _one(
        "a failed step at the meta of its output",
        _SCAN,
        "self._failure_suffix = group_rank + state_rank",
        "self._failure_suffix = group_rank + output_rank",
    ),
    # Maps, workers, keys.
    _one(
        "a filter that forgets which items are tombstones",
        _MAPS,
        "None if diffs is None else list(compress(diffs, kept)),",
        "None,",
    ),
    _one(
        "diamonds merged in the wrong order",
        _WORKER,
        "stage.process(sorted_by_meta(joined(batches)), ports)",
        "stage.process(joined(batches[::-1]), ports)",
    ),
    _one("stages run in the wrong order", _PLAN, "        return found[::-1]\n", "        return found\n"),
    _one(
        "tombstones that become items on their way to another worker",
        _WORKER,
        "        None if diffs is None else list(compress(diffs, chosen)),",
        "        None,",
    ),
    _one(
        "key identity by ==",
        _KEYS,
        "_themselves = frozenset({str, int, type(None)})",
        "_themselves = frozenset({str, int, type(None), bool, float})",
    ),
    Breakage(
        "partition by hash()",
        [
            Edit(_KEYS, "return hash64(key) % self.workers", "return hash(key) % self.workers"),
            Edit(_KEYS, "xxhash.xxh64_intdigest(form) % self.workers", "hash(form) % self.workers"),
        ],
        _GOLDEN,
    ),
    # Sources.
    _one("ordinals not counted in event time", _TIMES, "(ordinal + 1, payload if", "(ordinal, payload if"),
    _one(
        "ties by arrival",
        _TIMES,
        "ties = list(map(xxhash.xxh64_intdigest, canonical_each(payloads)))",
        "ties = list(range(self.items_in, self.items_in + len(canonical_each(payloads))))",
    ),
    _one(
        "lateness judged by batch",
        _TIMES,
        "running = accumulate(times, max, initial=seen_before)",
        "running = [seen_before] * (len(times) + 1)",
    ),
    _one(
        "a promise one too high",
        _TIMES,
        "max(self._promised, seen - policy.lateness, TIME_MIN)",
        "max(self._promised, seen - policy.lateness + 1, TIME_MIN)",
    ),
    _one(
        "an idle source that takes items older than its promise",
        _TIMES,
        "            self._promised = promise\n",
        "",
        ("tests/test_testing.py", "-k", "live_sources"),
    ),
    _one(
        "an idle source that promises what the fastest of the others does",
        _FEED_FILE,
        "return min((each.promised for each in",
        "return max((each.promised for each in",
        _IDLE,
        _NO_SHELL,
    ),
    _one(
        "gathered batches that lose the first of them",
        _FEED_FILE,
        "for fed in several if fed.arrived.metas]",
        "for fed in several[1:] if fed.arrived.metas]",
        (*_LAWS, "-k", "local"),
        _NO_SHELL,
    ),
    # Canonical bytes.
    Breakage(
        "NaN by its bits",
        [
            Edit(_CANONICAL, "return _encode(value) if value == value else _NAN", "return _encode(value)"),
            Edit(_CANONICAL, "    if float in kinds and any(", "    if False and any("),
        ],
        _GOLDEN,
        _SAME_CODE,
    ),
    _one(
        "dicts in the order of insertion",
        _CANONICAL,
        "    pairs = sorted((_canonical(key), _canonical(item)) for key, item in value.items())",
        "    pairs = [(_canonical(key), _canonical(item)) for key, item in value.items()]",
        _MACHINES,
        _SAME_CODE,
    ),
    _one("1 and True one value", _CANONICAL, "    if type(left) is not type(right):\n", "    if False:\n", _MACHINES),
    # Records.
    _one(
        "a recorded promise before its items",
        _RECORDED,
        "arrived.heartbeat if end == count else before,",
        "arrived.heartbeat,",
        _RECORDS,
        _NO_RECORDS,
    ),
    _one(
        "promises are not recorded",
        _RECORDER,
        "        self._flush_promises()\n        kind =",
        "        kind =",
        _RECORDS,
        _NO_RECORDS,
    ),
    _one(
        "recorded dicts lose their order",
        _RECORDER,
        'b"".join(stored_each(payloads))',
        'b"".join(map(__import__("drift").canonical, payloads))',
        _RECORDS,
        _NO_RECORDS,
    ),
    _one(
        "late items are not recorded",
        _RECORDER,
        "        for each in arrived.late:",
        "        for each in ():",
        _RECORDS,
        _NO_RECORDS,
    ),
    _one(
        "half a frame is taken",
        _RECORD_PROCESS,
        "            if not count:\n                return None",
        "            if not count:\n                return data[: -len(view)] if len(view) < len(data) else None",
        _RECORDS,
        _NO_RECORDS,
    ),
    _one(
        "a run that was killed has finished",
        _RECORD_PROCESS,
        'Outcome("broken off", said)',
        'Outcome("finished", said)',
        _RECORDS,
        _NO_RECORDS,
    ),
    _one(
        "items are not hashed again",
        _INTACT,
        "    if not changed and _digest(path, manifest, table) == wanted:",
        "    if not changed:",
        _RECORDS,
        _NO_RECORDS,
    ),
    _one(
        "the manifest's own hash is not looked at",
        _INTACT,
        "    if hash_of(plain, manifest.algorithm) == manifest.self_hash:",
        "    if True:",
        _RECORDS,
        _NO_RECORDS,
    ),
    # What is said of a record.
    _one(
        "lineage: links of states are never cut",
        "drift/lineage/trace.py",
        "if node.linked > 2 * self._loops_kept:",
        "if node.linked > 2**40:",
        _LINEAGE,
        _NO_AUDIT,
    ),
    _one(
        "lineage: one key of the window is passed over",
        "drift/lineage/layers.py",
        "                if form in keys:",
        "                if form in keys and meta in came:",
        _LINEAGE,
        _NO_AUDIT,
    ),
    _one(
        "lineage: what shares no key is passed over in cycles too",
        "drift/lineage/route.py",
        "if not plan.is_cyclic((groups[0],)):",
        "if True:",
        _LINEAGE,
        _NO_AUDIT,
    ),
    _one(
        "fingerprint: values of the module do not count",
        "drift/records/code.py",
        '        yield f"global {name}", value',
        '        yield f"global {name}", None',
        _FINGERPRINT,
        _NO_AUDIT,
    ),
    _one(
        "fingerprint: line numbers count",
        "drift/records/code.py",
        "    return signature, code.co_varnames",
        "    return code.co_firstlineno, signature, code.co_varnames",
        _FINGERPRINT,
        _NO_AUDIT,
    ),
    _one(
        "divergence: the block after is looked at",
        "drift/lineage/divergence.py",
        "        start = self._checked * BLOCK_ITEMS\n        end = start + BLOCK_ITEMS\n",
        "        start = (self._checked + 1) * BLOCK_ITEMS\n        end = start + BLOCK_ITEMS\n",
        _DIVERGENCE,
        _NO_AUDIT,
    ),
    _one(
        "verdict: the reference is not asked",
        "drift/lineage/verdict.py",
        "            self._bug,\n",
        "",
        _DIVERGENCE,
        _NO_AUDIT,
    ),
    _one(
        "outputs: equal payloads are not set against each other first",
        "drift/lineage/outputs.py",
        "                equal = [other for other in others if other.data == row.data]",
        "                equal = [other for other in others[:1] if other.data == row.data]",
        _OUTPUTS,
        _NO_AUDIT,
    ),
]

CONTROL = Breakage("(nothing broken)", [], (*_LAWS, *_MACHINES, *_GOLDEN))


def broken_copy(breakage: Breakage, tree: Path) -> None:
    """Copy the sources and tests into an empty folder, edited.

    Raises:
        ValueError: an edit does not fit the sources any more.
    """
    for folder, package in _SOURCES.items():
        shutil.copytree(ROOT / folder / package, tree / folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "tests").mkdir()
    for name in _OURS:
        shutil.copy(ROOT / name, tree / name)
    shutil.copy(ROOT / "pyproject.toml", tree)
    for edit in breakage.edits:
        text = (tree / edit.file).read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(
                f"{breakage.name}: the old text is {text.count(edit.old)} times in {edit.file}: {edit.old!r}"
            )
        text = text.replace(edit.old, edit.new)
        compile(text, edit.file, "exec")
        (tree / edit.file).write_text(text, encoding="utf-8")


def _bound_memory() -> None:
    """What is broken may run wild: better it fails than the machine does."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, _MEMORY_MAX_BYTES))


def _environment(tree: Path) -> dict[str, str]:
    return os.environ | {
        "DRIFT_TESTS": "breakages",
        "DRIFT_TREE": str(tree),
        "PYTHONPATH": os.pathsep.join(str(tree / folder) for folder in _SOURCES),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _ran(name: str, command: Sequence[str], tree: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=tree,
            env=_environment(tree),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=_bound_memory,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{name}: the tests did not end in {_TIMEOUT_S} s") from None


def caught_by(breakage: Breakage, tree: Path) -> str | None:
    """The first test that fails on a broken copy; None where all pass.

    Raises:
        ValueError: the tests could not run, which says nothing about them.
    """
    command = ["-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *breakage.tests]
    done = _ran(breakage.name, command, tree)
    if done.returncode == 0:
        return None
    failed = re.search(r"^FAILED tests/(\S+?)::(.+?)( - |$)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        raise ValueError(f"{breakage.name}: the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[2].replace("test_", "", 1)


def why_unseen(breakage: Breakage) -> str:
    """Why the harness cannot see a breakage; "" where it can."""
    beside = all(edit.file.startswith(("drift/records/", "drift/lineage/")) for edit in breakage.edits)
    return breakage.unseen or (_NO_RECORDS if beside else "")


class Hunted(NamedTuple):
    """What the harness made of a breakage: the first seed that failed, -1 for none, and how small its case became."""

    seed: int
    items: int = 0
    deviations: int = 0
    refused: str = ""

    @property
    def is_found(self) -> bool:
        return self.seed >= 0 and self.items <= ITEMS_MAX and self.deviations <= DEVIATIONS_MAX

    def __str__(self) -> str:
        if self.seed < 0:
            return f"no seed of {SEEDS_MAX}"
        if self.refused:
            return f"seed {self.seed}, refuses a sound graph"
        return f"seed {self.seed}, {self.items} items, {self.deviations} deviations"


def hunted(breakage: Breakage, tree: Path) -> Hunted:
    """Run seeds of the harness on a broken copy until one fails.

    Raises:
        ValueError: they could not run.
    """
    done = _ran(breakage.name, ["-m", "tests.hunt", str(SEEDS_MAX)], tree)
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise ValueError(f"{breakage.name}: the hunt did not run:\n{done.stderr[-2000:]}") from None
    return Hunted(**{name: value for name, value in found.items() if name in Hunted._fields})


def _row(breakage: Breakage) -> tuple[Breakage, str, bool]:
    with tempfile.TemporaryDirectory(prefix="drift-breakage-") as folder:
        tree = Path(folder).resolve()
        broken_copy(breakage, tree)
        try:
            found, hunt = caught_by(breakage, tree), hunted(breakage, tree)
        except ValueError as error:
            return breakage, f"ERROR {error}", False
    if breakage is CONTROL:
        passes = found is None and hunt.seed < 0
        return breakage, f"passes; {hunt}" if passes else f"FAILS WITH NOTHING BROKEN: {found}; {hunt}", passes
    unseen = why_unseen(breakage)
    seen = hunt.is_found or bool(unseen)
    told = str(hunt) if not unseen else f"{hunt} ({unseen})"
    return (
        breakage,
        f"{told if seen else f'NOT FOUND SMALL: {told}'}; {found or 'NOT CAUGHT'}",
        found is not None and seen,
    )


def main(words: Sequence[str]) -> int:
    chosen = [each for each in BREAKAGES if not words or any(word in each.name for word in words)]
    width = max(len(each.name) for each in (CONTROL, *chosen)) + 2
    good = True
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 4)) as pool:
        for breakage, shown, as_wanted in pool.map(_row, [CONTROL, *chosen]):
            print(f"{breakage.name:{width}}{shown}", flush=True)
            good = good and as_wanted
    print(f"{len(chosen)} breakages: " + ("all caught" if good else "NOT ALL AS THEY SHOULD BE"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
