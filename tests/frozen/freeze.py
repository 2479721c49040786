"""Write what new cases give, and refuse where a case that is there gives something else.

    python -m frozen.freeze          (in the folder `tests`) adds cases that are not in the file
    python -m frozen.freeze --all    also runs those that are there, in every way

What a case gave is never written again: if it differs, the change that is the cause is wrong, not the file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from frozen.cases import CASES, Case
from frozen.runs import ways

FILE = Path(__file__).parent / "outputs.jsonl"


def frozen() -> dict[str, dict[str, Any]]:
    """What each case gave, by name."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    outcomes = [json.loads(line) for line in lines]
    found = {outcome.pop("case"): outcome for outcome in outcomes}
    if len(found) != len(outcomes):
        raise ValueError(f"{FILE} has a case twice")
    return found


def in_words(case: Case, way: str, expected: dict[str, Any], got: dict[str, Any]) -> str:
    """What is different."""
    differing = [name for name in {**expected, **got} if expected.get(name) != got.get(name)]
    lines = [f"  {name}: {got.get(name)!r}, and it was {expected.get(name)!r}" for name in differing]
    return "\n".join([f"the case {case.name!r} gives something else ({way}):", *lines])


def main(run_all: bool) -> int:
    known, wrong, added = frozen(), 0, 0
    if len({case.name for case in CASES}) != len(CASES):
        raise SystemExit("two cases have one name")
    for case in CASES:
        if case.name in known and not run_all:
            continue
        expected = known.get(case.name)
        is_new = expected is None
        for way, run in ways(case, thorough=True):
            began = time.process_time()
            try:
                got = run()
            except Exception as error:
                print(f"the case {case.name!r} cannot be run ({way}): {type(error).__name__}: {str(error)[:300]}")
                wrong, expected = wrong + 1, None
                break
            if (took := time.process_time() - began) > 0.5:
                print(f"{took:.2f} s: {case.name!r} ({way})")
            if expected is None:
                expected = got
            elif got != expected:
                print(in_words(case, way, expected, got))
                wrong += 1
                if is_new:
                    expected = None
                    break
        if is_new and expected is not None:
            with FILE.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"case": case.name, **expected}, ensure_ascii=False) + "\n")
            added += 1
    print(f"{len(CASES)} cases, {added} added, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main("--all" in sys.argv[1:]))
