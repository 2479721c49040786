"""Seeds until one fails, and the smallest case of it: `python tests/hunt.py [SEEDS_MAX]`.

How small a case becomes hangs on where shrinking began, so up to FAILING_MAX seeds that fail are tried for a small one.

For `tests/breakages.py`, which runs it on copies of the sources that are broken on purpose. The machines keep no more
than they must, and every second graph has steps that fail: what is harder for a machine finds more of its bugs.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from typing import Any

from generated import FAILING, STEPS, Recipe, Times
from strategies import recipes, scheduled_cases
from tight import LEAST_MEMORY, limited

from drift.testing.case import Case
from drift.testing.check import Result, check, may_idle, policies_of
from drift.testing.hypothesis import st
from drift.testing.report import report
from drift.testing.schedule import Schedule
from drift.testing.seeds import SEEDS_A_BLOCK, _schedule, drawn
from drift.testing.shrink import shrunk
from drift_graph.errors import DriftError

SEEDS_MAX = 2000
FAILING_MAX = 4
ITEMS_MAX, DEVIATIONS_MAX = 4, 2  # of a small case

_few = st.sampled_from(["one", "few", "one", "few", "equal", "awkward"])
_groups = st.tuples(st.just("group"), st.just(0), _few, st.integers(2, 4))
_scans = st.tuples(st.just("scan"), st.just(0), _few, st.sampled_from(list(STEPS)))
_stateful = _groups | _scans | st.tuples(st.just("count"), st.just(0), _few)
_thins = st.sampled_from([("filter", 0, 2), ("flat", 0, 2), ("map", 0, "equal"), ("map", 0, "small")])
_fails = st.tuples(st.just("fails"), st.just(0), st.sampled_from([*FAILING, "step", "pair", "map"]), st.integers(2, 9))


_fails_often = st.tuples(st.just("fails"), st.just(0), st.sampled_from(["map", "map", "flat"]), st.just(5))
_windows = st.tuples(st.just("group"), st.just(0), st.just("one"), st.integers(2, 4))
_pairs = st.tuples(st.just("group"), st.just(0), st.just("one"), st.integers(2, 3))
_less = st.sampled_from([("filter", 0, 2), ("flat", 0, 1)])
_back = st.just(("merge", 0, 2))  # with the source: what is taken back comes between what is not
_merging = st.tuples(st.just("scan"), st.just(0), st.sampled_from(["one", "few"]), st.just("merging"))


def corrections(steps: st.SearchStrategy[tuple[tuple[object, ...], ...]]) -> st.SearchStrategy[Recipe]:
    """One source in event time, all of whose items may come in disorder, and steps in a row that correct each other."""
    return st.builds(
        Recipe,
        st.just(1),
        steps,
        st.just([]),
        st.lists(
            st.builds(Times, st.just(4), st.booleans(), st.just("error"), st.none(), st.just(0)), min_size=1, max_size=1
        ),
    )


def merged(*steps: st.SearchStrategy[tuple[object, ...]]) -> st.SearchStrategy[Recipe]:
    """Three sources in arrival time, whose batches are out of order between them as they come."""
    joined = st.tuples(st.just(("merge", 0, 1)), st.just(("merge", 0, 3)), *steps)
    return st.builds(Recipe, st.just(3), joined, st.just([]), st.just(()))


class Generated:
    """Cases by number whose graphs are generated as well.

    Args:
        recipes: a strategy for them; any graph, if None.
        items_min, items_max: items of a source.
    """

    def __init__(self, recipes: Any = None, *, items_max: int = 8, items_min: int = 0) -> None:
        self._cases = scheduled_cases(recipes, st.just(Schedule()), items_max, items_min)
        self._block = -1
        self._drawn: list[Case] = []

    def case(self, seed: int) -> Case:
        """What a seed stands for."""
        block, at = divmod(seed, SEEDS_A_BLOCK)
        if block != self._block:
            self._drawn = drawn(self._cases, block, SEEDS_A_BLOCK)
            self._block = block
        case = self._drawn[at % len(self._drawn)]
        live = tuple(name for name, policy in policies_of(case.dataflow).items() if may_idle(policy))
        return replace(case, schedule=_schedule(random.Random(seed), live=live))

    def run(self, seed: int) -> Result:
        """The run of a seed, compared with the reference."""
        return check(self.case(seed))


class Laws:
    """The cases that our laws are about, by seed."""

    def __init__(self) -> None:
        corrected = Generated(corrections(st.tuples(_groups, _thins, _stateful)), items_min=4, items_max=12)
        taken_back = Generated(corrections(st.tuples(_pairs, _less, _back, _merging)), items_min=4, items_max=8)
        failed = Generated(corrections(st.tuples(_windows, _fails_often)), items_min=4, items_max=8)
        passed_on = Generated(
            corrections(st.tuples(_windows, st.just(("group", 0, "few", 2)))), items_min=6, items_max=10
        )
        scanned = Generated(merged(_scans), items_min=1, items_max=4)
        thinned = Generated(corrections(st.tuples(_pairs, _less, _merging)), items_min=6, items_max=12)
        self._kinds = [
            Generated(recipes(2, 4, timed=True)),
            Generated(merged(_windows, st.just(("group", 0, "few", 2))), items_min=1, items_max=3),
            scanned,
            scanned,
            corrected,
            Generated(recipes(2, 3, failing=True, timed=True)),
            taken_back,
            failed,
            passed_on,
            thinned,
            taken_back,
            Generated(corrections(st.tuples(_groups, _thins, _stateful, _fails)), items_min=3, items_max=8),
            failed,
            Generated(recipes(3, 6, timed=True)),
            failed,
            passed_on,
            taken_back,
            thinned,
            thinned,
            thinned,
            thinned,
        ]

    def run(self, seed: int) -> Result:
        rounds, at = divmod(seed // SEEDS_A_BLOCK, len(self._kinds))
        kind = self._kinds[at]
        block = rounds * self._kinds.count(kind) + self._kinds[:at].count(kind)  # of those of its kind
        return kind.run(block * SEEDS_A_BLOCK + seed % SEEDS_A_BLOCK)


def main(seeds_max: int = SEEDS_MAX, kind: int = -1) -> None:
    laws = Laws()
    if kind >= 0:
        laws._kinds = [laws._kinds[kind]]
    found: list[dict[str, Any]] = []
    for seed in range(seeds_max):
        try:
            result = laws.run(seed)
        except DriftError as error:
            found.append({"seed": seed, "refused": f"{type(error).__name__}: {error}"})
            break
        if result.failure is not None:
            best = shrunk(result)
            found.append(
                {
                    "seed": seed,
                    "what": result.failure.what,
                    "items_before": result.case.item_count,
                    "items": best.case.item_count,
                    "deviations": len(best.case.schedule.deviations),
                    "steps": len(best.case.recipe.steps),
                    "report": report(best),
                }
            )
            if is_small(found[-1]) or len(found) == FAILING_MAX:
                break
    small = (each for each in found if is_small(each))
    print(json.dumps(next(small, found[0] if found else {"seed": -1})))


def is_small(found: dict[str, Any]) -> bool:
    return "refused" in found or (found["items"] <= ITEMS_MAX and found["deviations"] <= DEVIATIONS_MAX)


if __name__ == "__main__":
    with limited(LEAST_MEMORY):
        main(*map(int, sys.argv[1:]))
