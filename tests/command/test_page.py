"""The page of an audit: the same content as its JSON, one file, and nothing in a payload can break it."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import modules
import pytest
from click.testing import CliRunner

import drift
import drift.cli
from drift.auditing.page import audit_page

HOSTILE = "</pre><script>alert(1)</script>{{ 7 * 7 }}<!-- &lt; \"' ` \ud800 \x00 \u202e"

GRAPH = """
import drift

def marked(line):
    return "<b>" + line

def step(count, line):
    return count + 1, (line, count + 1)

graph = drift.Graph("<i>pages</i>")
graph.source("lines").map(marked, name="</td><script>").scan(
    key=lambda line: line[-1:], initial=0, step=step, name="count").sink("out")
"""


def module_of(folder: Path, *edits: tuple[str, str]) -> Any:
    return modules.module_of(folder, modules.edited(GRAPH, *edits))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    lines = [HOSTILE + str(number) for number in range(3)] * 5
    drift.run(module_of(folder).graph, {"lines": lines}, record=folder / "record").finish()
    return folder


class Page(HTMLParser):
    """Checks that elements are closed in their order; gathers them and the text."""

    EMPTY = frozenset({"meta", "br", "!doctype"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(page: str) -> str:
    """The page's text; nothing in it runs, or is fetched."""
    found = Page(page)
    assert not {"script", "link", "img", "iframe", "b", "i", "form", "object"} & set(found.tags)
    assert {name for name, _ in found.attributes} <= {
        "lang", "charset", "name", "content", "http-equiv", "class", "style", "data-label"
    }  # fmt: skip
    assert "://" not in "".join(str(value) for _, value in found.attributes)
    return "".join(found.text)


def test_the_page_of_a_sound_record_has_every_check_and_what_it_shows(folder: Path) -> None:
    audit = drift.audit(folder / "record")
    assert audit.ok
    text = checked(audit_page(audit))
    assert "Intact and reproduced" in text and "Where it parts" not in text
    for check in audit.checks:
        for said in (check.what, check.against, check.found):
            assert said in text
    for line in (*audit.proves, *audit.proves_not, "<i>pages</i>", audit.record["digest"]):
        assert line in text


def test_the_page_of_a_changed_graph_reports_where_and_why_and_what_would_be_other(folder: Path) -> None:
    changed = module_of(folder, ("count + 1, (line, count + 1)", "count + 1, (line, min(count, 2) + 1)"))
    audit = drift.audit(folder / "record", changed.graph)
    page = audit_page(audit, "graph <text>")
    text = checked(page)
    as_dict = audit.as_dict()
    (finding,) = [check.finding for check in audit.checks if check.finding is not None]
    assert "Not reproduced" in text and "A function was changed" in text
    assert '<span class="new">    +    return count + 1' in page and '<span class="old">    -    return' in page
    assert "min(count, 2)" in text and "graph <text>" in text
    assert "both lineages, back to the input" in text and "the first that may be another" in text
    for made in finding.lineage.items:
        assert made.kind == "input" or repr(made.payload)[:30] in text
    assert "{{ 7 * 7 }}" in text
    assert json.loads(json.dumps(as_dict))["checks"][-1]["detail"]["verdict"]["kind"] == "function"
    page.encode("utf-8", errors="backslashreplace")


def test_with_the_recorded_code_both_lineages_stand_side_by_side_and_the_first_difference_is_marked(
    folder: Path,
) -> None:
    changed = module_of(folder, ("count + 1, (line, count + 1)", "count + 1 + (count == 3), (line, count + 1)"))
    audit = drift.audit(folder / "record", changed.graph, was=module_of(folder).graph)
    text = checked(audit_page(audit))
    assert ">> - " in text and "where they part first" in text and "not known" not in text
    assert "state 4 of key" in text and "state 5 of key" in text
    other = module_of(folder, ("count + 1, (line, count + 1)", "count + 2, (line, count + 1)"))
    with pytest.raises(drift.SettingsError, match=r"is not the graph that .* was made with: the function"):
        drift.audit(folder / "record", changed.graph, was=other.graph)


def test_the_command_writes_the_page_next_to_its_table(folder: Path) -> None:
    report = folder / "report.html"
    done = CliRunner().invoke(drift.cli.drift, ["audit", str(folder / "record"), "--html", str(report)])
    assert done.exit_code == 0, done.output
    assert "Intact and reproduced" in checked(report.read_text())
    path = str(Path(module_of(folder, ("count + 1, (line", "count + 2, (line")).__file__))
    done = CliRunner().invoke(
        drift.cli.drift,
        ["audit", str(folder / "record"), "--graph", f"{path}:graph", "--html", str(report)],
    )
    assert done.exit_code == 8, done.output
    assert "verdict: a function was changed" in done.stdout
    assert "Not reproduced" in checked(report.read_text())
    nowhere = str(folder / "nowhere" / "report.html")
    done = CliRunner().invoke(drift.cli.drift, ["audit", str(folder / "record"), "--html", nowhere])
    assert done.exit_code == 7 and "cannot be written" in done.stderr


def test_a_record_without_a_manifest_has_a_page_too(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "record", tmp_path / "record")
    (tmp_path / "record" / "manifest.json").write_text("{<script>")
    audit = drift.audit(tmp_path / "record")
    assert not audit.ok
    assert "Not intact" in checked(audit_page(audit)) and "Manifest unreadable" in checked(audit_page(audit))
