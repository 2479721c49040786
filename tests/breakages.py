"""Deliberate breakages: a law is only as good as the bugs it kills.

    python tests/breakages.py                all of them
    python tests/breakages.py rank ack       those with one of the words in their names, and their controls
    python tests/breakages.py 12 158-        these rows and no others, by their numbers
    python tests/breakages.py --list         the rows with their numbers
    python tests/breakages.py -j 4           so many at once

Each is an edit to a copy of the source tree, whose old text must be found exactly once; then the tests run on the copy
until the first one fails. A breakage that every test passes is NOT CAUGHT, and the exit code is 1. The first rows are
controls: with nothing broken, the tests that are to catch something pass, and no seed of the harness fails. Otherwise
"caught" would say nothing.

The harness is run on it too: how many seeds it takes to find the breakage, at most SEEDS_MAX, and how small the case of
one of the first that fail becomes, at most ITEMS_MAX items and DEVIATIONS_MAX deviations from order. Where it cannot
see one by its nature, the breakage says why, and no seed is tried.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from hunt import DEVIATIONS_MAX, ITEMS_MAX, SEEDS_MAX

ROOT = Path(__file__).parent.parent
_SOURCES = {"": "drift", **{each: f"drift_{each}" for each in ("acker", "barrier", "graph", "kernel")}}
_TIMEOUT_S = 600
NO_HUNT = "the harness is a row of its own"
_MEMORY_MAX_BYTES = 3 * 2**30


class Edit(NamedTuple):
    file: str
    old: str
    new: str


class Breakage(NamedTuple):
    name: str
    edits: list[Edit]
    tests: Sequence[str]
    unseen: str = ""  # why the harness cannot see it


def breakages_in(file: Path) -> list[Breakage]:
    """The breakages that a file of `tests/broken/` has.

    `tests:`, `unseen:` and `file:` hold for what follows, until they are said again. `* ` begins a breakage with its
    name; the lines of `- ` are replaced by those of `+ `, which may be parts of lines, or are none.

    Raises:
        ValueError: a line is none of these.
    """
    said = {"tests": "", "unseen": "", "file": ""}
    found: list[Breakage] = []
    for sign, run in groupby(file.read_text(encoding="utf-8").splitlines(), lambda line: line[:1]):
        lines = list(run)
        text = "\n".join(line[2:] for line in lines)
        if sign == "*":
            found.append(Breakage(text, [], tuple(shlex.split(said["tests"])), said["unseen"]))
        elif sign == "-":
            found[-1].edits.append(Edit(said["file"], text, ""))
        elif sign == "+":
            found[-1].edits[-1] = found[-1].edits[-1]._replace(new=text)
        elif sign not in ("", "#"):
            for what, _, value in (line.partition(":") for line in lines):
                if what not in said:
                    raise ValueError(f"{file.name}: no part of a breakage begins with {what!r}")
                said[what] = value.strip()
    return found


BREAKAGES = [each for file in sorted((ROOT / "tests" / "broken").glob("*.txt")) for each in breakages_in(file)]


def controls(breakages: Sequence[Breakage]) -> list[Breakage]:
    """Nothing broken: the tests that these name, each once, and the harness where it is to see one of them."""
    files = sorted({name for each in breakages if "-k" not in each.tests for name in each.tests})
    parts = sorted({tuple(each.tests) for each in breakages if "-k" in each.tests})
    apart = [part for part in parts if not {name for name in part if name.endswith(".py")} <= set(files)]
    selections = [*((file,) for file in files), *apart]
    found = [Breakage(f"(nothing broken) {' '.join(tests)}", [], tests, NO_HUNT) for tests in selections]
    hunts = any(not each.unseen for each in breakages)
    return [*found, Breakage("(nothing broken) the harness", [], ())] if hunts else found


def edited(breakage: Breakage) -> dict[str, str]:
    """The files that a breakage changes, changed.

    Raises:
        ValueError: an edit does not fit the sources any more.
    """
    texts: dict[str, str] = {}
    for edit in breakage.edits:
        text = texts.get(edit.file) or (ROOT / edit.file).read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(
                f"{breakage.name}: the old text is {text.count(edit.old)} times in {edit.file}: {edit.old!r}"
            )
        texts[edit.file] = text.replace(edit.old, edit.new)
        if edit.file.endswith(".py"):
            compile(texts[edit.file], edit.file, "exec")
    return texts


def broken_copy(breakage: Breakage, tree: Path) -> None:
    """Copy the sources and tests into an empty folder, edited, and build the kernel again if that is what is broken.

    Raises:
        ValueError: the broken kernel cannot be built.
    """
    ignore = shutil.ignore_patterns("__pycache__")
    for folder, package in _SOURCES.items():
        shutil.copytree(ROOT / folder / package, tree / folder / package, ignore=ignore)
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tree)
    for folder in ("examples", "docs"):
        (tree / folder).symlink_to(ROOT / folder)
    texts = edited(breakage)
    for file, text in texts.items():
        (tree / file).write_text(text, encoding="utf-8")
    if any(file.startswith("kernel/") and not file.endswith(".py") for file in texts):
        shutil.copy(ROOT / "hatch_build.py", tree)
        built = _ran(breakage.name, ["hatch_build.py"], tree, bounded=False, CFLAGS="-O0")
        if built.returncode != 0 or built.stdout:
            raise ValueError(f"{breakage.name}: the kernel cannot be built: {built.stdout}{built.stderr[-2000:]}")


def _bound_memory() -> None:
    """What is broken may run wild: better it fails than the machine does."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, _MEMORY_MAX_BYTES))


def _environment(tree: Path) -> dict[str, str]:
    return os.environ | {
        "DRIFT_TESTS": "breakages",
        "DRIFT_TREE": str(tree),
        "PYTHONHASHSEED": "77",  # what is caught once is caught always; replicas have others
        "PYTHONPATH": os.pathsep.join(str(tree / folder) for folder in _SOURCES),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _ran(
    name: str, command: Sequence[str], tree: Path, *, bounded: bool, **environment: str
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=tree,
            env=_environment(tree) | environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=_bound_memory if bounded else None,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{name}: the tests did not end in {_TIMEOUT_S} s") from None


def caught_by(breakage: Breakage, tree: Path) -> str | None:
    """The first test that fails on a broken copy; None where all pass.

    Raises:
        ValueError: the tests could not run, which says nothing about them.
    """
    command = ["-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *breakage.tests]
    on_spark = any(name.startswith("tests/spark/") for name in breakage.tests)  # Java reserves more than it takes
    done = _ran(breakage.name, command, tree, bounded=not on_spark)
    if done.returncode == 0:
        return None
    failed = re.search(r"^FAILED tests/(\S+?)::(.+?)( - |$)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        raise ValueError(f"{breakage.name}: the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[2].replace("test_", "", 1)


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
    done = _ran(breakage.name, ["tests/hunt.py", str(SEEDS_MAX)], tree, bounded=True)
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise ValueError(f"{breakage.name}: the hunt did not run:\n{done.stderr[-2000:]}") from None
    return Hunted(**{name: value for name, value in found.items() if name in Hunted._fields})


class Row(NamedTuple):
    breakage: Breakage
    hunt_text: str
    as_wanted: bool
    took_s: float


def row(breakage: Breakage) -> Row:
    began_s = monotonic()
    text, as_wanted = _shown(breakage)
    return Row(breakage, text, as_wanted, monotonic() - began_s)


def _shown(breakage: Breakage) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory(prefix="drift-breakage-") as folder:
        tree = Path(folder).resolve()
        try:
            broken_copy(breakage, tree)
            found = caught_by(breakage, tree) if breakage.tests else None
            hunt = hunted(breakage, tree) if not breakage.unseen else None
        except ValueError as error:
            return f"ERROR {error}", False
    if not breakage.edits:
        passes = found is None and (hunt is None or hunt.seed < 0)
        return "passes" if passes else f"FAILS WITH NOTHING BROKEN: {found or hunt}", passes
    seen = hunt is None or hunt.is_found
    hunt_text = f"({breakage.unseen})" if hunt is None else str(hunt)
    shown = f"{hunt_text if seen else f'NOT FOUND SMALL: {hunt_text}'}; {found or 'NOT CAUGHT'}"
    return shown, found is not None and seen


def chosen(words: Sequence[str]) -> dict[int, Breakage]:
    """The rows by number: those whose numbers are given, else those with one of the words in their names."""
    rows = dict(enumerate([*controls(BREAKAGES), *BREAKAGES], 1))
    spans = [re.fullmatch(r"([0-9]+)(-?)([0-9]*)", word) for word in words]
    numbers = {
        number
        for span in spans
        if span is not None
        for number in range(int(span[1]), int(span[3] or len(rows) if span[2] else span[1]) + 1)
    }
    names = [word for word, span in zip(words, spans, strict=True) if span is None]
    named = [each for each in BREAKAGES if any(word in each.name for word in names)] if words else BREAKAGES
    run = {each.name for each in (*controls(named), *named)} if named else set()
    return {number: each for number, each in rows.items() if number in numbers or each.name in run}


def main() -> int:
    parser = argparse.ArgumentParser(description="Break the sources on purpose, and see that each time a test fails.")
    parser.add_argument("words", nargs="*", help="only breakages with one of these in their names; or numbers of rows")
    parser.add_argument("--list", action="store_true", help="show the rows with their numbers, and run none")
    parser.add_argument("-j", type=int, default=min(os.cpu_count() or 1, 4), metavar="N", help="so many at once")
    arguments = parser.parse_args()
    rows = chosen(arguments.words)
    if not rows:
        parser.error("no breakage is named so")
    if arguments.list:
        print(*(f"{number:3}  {each.name}" for number, each in rows.items()), sep="\n")
        return 0
    width = max(len(each.name) for each in rows.values()) + 2
    wrong: list[str] = []
    with ThreadPoolExecutor(arguments.j) as pool:
        futures = {pool.submit(row, each): number for number, each in rows.items()}
        for done in as_completed(futures):
            breakage, hunt_text, as_wanted, took_s = done.result()
            print(f"{futures[done]:3} {took_s:4.0f} s  {breakage.name:{width}}{hunt_text}", flush=True)
            if not as_wanted:
                wrong.append(breakage.name)
    print(f"{len(rows)} rows: {'all as they should be' if not wrong else 'NOT AS THEY SHOULD BE: ' + '; '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
