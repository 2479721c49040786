"""Every case of the oracle gives what it gave when it was frozen: graphs of all kinds, on several engines.

A failure here is not repaired by freezing the case again: outputs that are right never change. `tests/frozen` says what
the cases are; `python -m frozen.freeze` adds new ones.
"""

from __future__ import annotations

import pytest
from frozen.cases import CASES, Case
from frozen.freeze import frozen, in_words
from frozen.runs import is_run_over_processes, over_processes, ways

#: Each test has every fortieth case, so that some of them are a sample of all.
_PARTS = 40
FROZEN = frozen()


@pytest.mark.parametrize("part", range(_PARTS))
def test_cases_give_what_they_gave(part: int) -> None:
    for case in CASES[part::_PARTS]:
        for way, run in ways(case, released=FROZEN[case.name]["items"]):
            got = run()
            assert got == FROZEN[case.name], in_words(case, way, FROZEN[case.name], got)


@pytest.mark.parametrize("case", [case for case in CASES if is_run_over_processes(case)], ids=lambda case: case.name)
def test_cases_give_it_over_processes(case: Case) -> None:
    got = over_processes(case)
    assert got == FROZEN[case.name], in_words(case, "zeromq, two workers", FROZEN[case.name], got)


def test_the_file_has_each_case_once_and_no_others() -> None:
    assert sorted(FROZEN) == sorted(case.name for case in CASES)
