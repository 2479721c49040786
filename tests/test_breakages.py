"""The list of deliberate breakages fits the sources; `python tests/breakages.py` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from breakages import BREAKAGES, CONTROL, Breakage, broken_copy, edited


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.name)
def test_a_breakage_fits_the_sources(breakage: Breakage) -> None:
    assert edited(breakage)


def test_a_breakage_is_a_copy_with_the_edit_in_it(tmp_path: Path) -> None:
    for breakage in (CONTROL, BREAKAGES[0]):
        broken_copy(breakage, tmp_path / breakage.name)
    edit = BREAKAGES[0].edits[0]
    whole, broken = ((tmp_path / each.name / edit.file).read_text() for each in (CONTROL, BREAKAGES[0]))
    assert edit.old in whole and broken == whole.replace(edit.old, edit.new)


def test_breakages_have_names_of_their_own() -> None:
    assert len({breakage.name for breakage in BREAKAGES}) == len(BREAKAGES)
