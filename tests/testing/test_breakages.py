"""The list of deliberate breakages fits the sources; `python tests/breakages.py` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from breakages import BREAKAGES, Breakage, Edit, breakages_in, broken_copy, controls, edited


def test_what_a_file_of_breakages_says_holds_until_it_is_said_again(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text(
        '# Some.\n\nunseen: it is blind\ntests: tests/a.py -k "one or two"\nfile: drift/a.py\n* first\n'
        "- a\n-     b\n+ c\n- d\n\nunseen:\n* second\n- e\nfile: drift/b.py\n- f\n"
    )
    tests = ("tests/a.py", "-k", "one or two")
    first = [Edit("drift/a.py", "a\n    b", "c"), Edit("drift/a.py", "d", "")]
    second = [Edit("drift/a.py", "e", ""), Edit("drift/b.py", "f", "")]
    assert breakages_in(file) == [
        Breakage("first", first, tests, "it is blind"),
        Breakage("second", second, tests),
    ]
    file.write_text("test: tests/a.py\n")
    with pytest.raises(ValueError, match="no part of a breakage begins with 'test'"):
        breakages_in(file)


def test_every_breakage_fits_the_sources() -> None:
    def fault(breakage: Breakage) -> str:
        try:
            return "" if edited(breakage) else f"{breakage.name}: it changes nothing"
        except (ValueError, SyntaxError, OSError) as error:
            return f"{breakage.name}: {error}"

    assert not list(filter(None, map(fault, BREAKAGES)))


def test_a_breakage_is_a_copy_with_the_edit_in_it(tmp_path: Path) -> None:
    broken = BREAKAGES[0]
    control = controls([broken])[0]
    for breakage in (control, broken):
        broken_copy(breakage, tmp_path / breakage.name.replace("/", " "))
    edit = broken.edits[0]
    texts = [(tmp_path / each.name.replace("/", " ") / edit.file).read_text() for each in (control, broken)]
    assert edit.old in texts[0] and texts[1] == texts[0].replace(edit.old, edit.new)


def test_every_test_that_is_to_catch_a_breakage_is_run_with_nothing_broken() -> None:
    run = {each.tests for each in controls(BREAKAGES)}
    assert () in run and all(not each.edits for each in controls(BREAKAGES))
    for breakage in BREAKAGES:
        assert tuple(breakage.tests) in run or all((name,) in run for name in breakage.tests if name.endswith(".py"))
    alone = controls([each for each in BREAKAGES if each.tests[1:] == ("-k", "simulated")])
    assert [each.tests for each in alone] == [("tests/engines/test_laws.py", "-k", "simulated"), ()]


def test_breakages_have_names_of_their_own() -> None:
    assert len({breakage.name for breakage in BREAKAGES}) == len(BREAKAGES)
