"""The list of deliberate breakages fits the sources; `python tests/breakages.py` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from breakages import BREAKAGES, CONTROL, Breakage, broken_copy


@pytest.mark.parametrize("breakage", [CONTROL, *BREAKAGES], ids=lambda breakage: breakage.name)
def test_a_breakage_can_be_made(breakage: Breakage, tmp_path: Path) -> None:
    broken_copy(breakage, tmp_path)


def test_breakages_have_names_of_their_own() -> None:
    assert len({breakage.name for breakage in BREAKAGES}) == len(BREAKAGES)
