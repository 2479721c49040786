"""Noir's benchmarks give what plain Python gives, on a little data and on more than one engine."""

from __future__ import annotations

import pytest

from benchmarks.noir.__main__ import CASES, Different, compare, main, run_case
from benchmarks.noir.case import Case


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_benchmark_gives_what_plain_python_gives(case: Case) -> None:
    inputs = case.data(case.items // 40 + 4)
    found, digest, _ = run_case(case, inputs, {"engine": "local"})
    compare(case, found, case.plain(inputs))
    assert run_case(case, inputs, {"engine": "reference"})[1] == digest
    assert run_case(case, inputs, {"engine": "zeromq", "workers": 2})[1] == digest
    with pytest.raises(Different):
        compare(case, found[:-1], case.plain(inputs))


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scale", "0.02", "--only", "closure"]) == 0
    assert "transitive closure" in capsys.readouterr().out
