"""The page of other answers has the answers of today."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.answers import LIBRARIES, QUESTIONS, Question, shown  # noqa: E402

PAGE = (ROOT / "docs" / "other-answers.md").read_text().splitlines()
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE
    if line.startswith("|")
    for cells in [[c.strip() for c in line.split("|")[1:-1]]]
}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_the_page_has_what_each_library_answers(question: Question) -> None:
    assert ROWS[question.text][0] == shown(question.drift())
    for name, title, answer in zip(LIBRARIES, ROWS[""][1:], ROWS[question.text][1:]):
        ask = getattr(question, name)
        if title == f"{name} {version(name)}":  # another version may answer otherwise
            assert answer == ("" if ask is None else shown(ask(pytest.importorskip(name))))


def test_every_row_of_the_page_is_a_question() -> None:
    assert set(ROWS) - {"", "---"} == {question.text for question in QUESTIONS}
