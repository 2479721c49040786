"""Every case of the oracle gives what it gave when it was frozen: graphs of all kinds, on several engines.

A failure here is not repaired by freezing the case again: outputs that are right never change. `tests/frozen` says what
the cases are; `python -m frozen.freeze` adds new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from frozen.cases import CASES, Case
from frozen.freeze import frozen, in_words
from frozen.runs import is_run_over_processes, over_processes, ways

#: Each test has every fortieth case, so that some of them are a sample of all; `make test` runs a third of them.
_PARTS = 40
FROZEN = frozen()


def a_third_is_short(values: Sequence[Any], ids: Sequence[str]) -> list[Any]:
    return [
        pytest.param(value, id=name, marks=[pytest.mark.long] if at % 3 else [])
        for at, (value, name) in enumerate(zip(values, ids))
    ]


OVER_PROCESSES = [case for case in CASES if is_run_over_processes(case)]


@pytest.mark.parametrize("part", a_third_is_short(range(_PARTS), [*map(str, range(_PARTS))]))
def test_cases_give_what_they_gave(part: int) -> None:
    for case in CASES[part::_PARTS]:
        for way, run in ways(case, released=FROZEN[case.name]["items"]):
            got = run()
            assert got == FROZEN[case.name], in_words(case, way, FROZEN[case.name], got)


@pytest.mark.parametrize("case", a_third_is_short(OVER_PROCESSES, [case.name for case in OVER_PROCESSES]))
def test_cases_give_it_over_processes(case: Case) -> None:
    got = over_processes(case)
    assert got == FROZEN[case.name], in_words(case, "zeromq, two workers", FROZEN[case.name], got)


def test_the_file_has_each_case_once_and_no_others() -> None:
    assert sorted(FROZEN) == sorted(case.name for case in CASES)
