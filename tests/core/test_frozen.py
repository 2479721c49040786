"""Every case of the oracle gives what it gave when it was frozen: graphs of all kinds, on several engines.

A failure here is not repaired by freezing the case again: outputs that are right never change. `tests/frozen` says what
the cases are; `python -m frozen.freeze` adds new ones.
"""

from __future__ import annotations

import pytest
from frozen.cases import CASES
from frozen.freeze import frozen, in_words
from frozen.runs import ways

#: Cases in one test: so that a failure says a family, and pytest's own share of the time is small.
_FAMILY = 12
FROZEN = frozen()


@pytest.mark.parametrize("first", range(0, len(CASES), _FAMILY))
def test_cases_give_what_they_gave(first: int) -> None:
    for case in CASES[first : first + _FAMILY]:
        for way, run in ways(case):
            got = run()
            assert got == FROZEN[case.name], in_words(case, way, FROZEN[case.name], got)


def test_the_file_has_each_case_once_and_no_others() -> None:
    assert sorted(FROZEN) == sorted(case.name for case in CASES)
