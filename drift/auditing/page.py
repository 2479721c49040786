"""An audit as one HTML file for filing: the same content as its table and its JSON.

Invariant: whatever is in a payload, a name or a message is shown as text, never as markup; the file refers to nothing
outside itself, and runs no script.

Why: every value passes the template's escaping, and the template has neither links nor scripts. Findings and versions
are the lines of `drift.auditing.text`, so that no finding is put into words twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from drift.auditing.text import finding_lines
from drift.auditing.verdict import Finding
from drift.records.changes import Change
from drift.records.format import RecordError, read_manifest
from drift_graph.errors import SinkError

_RESULTS = {"ok": "ok", "trouble": "trouble", "noted": "note", "not checked": "not checked"}
_LEVELS = {
    "intact": "Intact: files, manifest and hashes agree",
    "signed": "Signed: nobody has changed it",
    "reproduced": "Reproduced: computed again, and equal",
}
_YES = {"intact": "intact", "signed": "unchanged by anybody", "reproduced": "reproduced"}
_NOT = {"intact": "not intact", "signed": "not as it was signed or noted", "reproduced": "not reproduced"}
#: By the mark of a line: of what was, of what is now, of where they part.
_MARKS = {"-": "old", "+": "new", ">>": "here"}


def audit_page(audit: Any, graph_text: str = "") -> str:
    """The page of a `drift.auditing.checks.Audit`. `graph_text`: the recorded graph, as `drift show` prints it."""
    plain = audit.as_dict()
    findings = [(check.what, check.finding) for check in audit.checks if isinstance(check.finding, Finding)]
    by_level = {
        level: [check for check in plain["checks"] if check["level"] == level]
        for level in dict.fromkeys(check["level"] for check in plain["checks"])
    }
    page: str = _template().render(
        title=f"Audit of {Path(plain['path']).name}",
        headline=_headline(audit),
        audit=plain,
        troubles=[
            trouble
            for check in plain["checks"]
            if check["result"] == "trouble"
            for trouble in check["troubles"]
            if check["what"] not in {what for what, _ in findings}
        ],
        checks=by_level,
        levels=_LEVELS,
        results=_RESULTS,
        findings=[
            {"check": what, **finding.as_dict(), "lines": _marked(finding_lines(finding), finding.verdict.changes)}
            for what, finding in _merged(findings)
        ],
        graph_text=graph_text,
        as_json=json.dumps(plain, indent=1, ensure_ascii=False, default=repr),
    )
    return page


def write_audit(path: str | os.PathLike[str], audit: Any) -> None:
    """Write the page of an audit. Raises SinkError: it cannot be written."""
    try:
        graph_text = read_manifest(Path(audit.path)).graph_text
    except RecordError:
        graph_text = ""  # the audit reports the unreadable manifest
    try:
        Path(path).write_text(audit_page(audit, graph_text), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise SinkError(f"{path} cannot be written: {error.strerror}") from error


def _merged(findings: Sequence[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """Engines that diverge from the record at the same item for the same reason are reported once."""
    merged: dict[Any, tuple[list[str], Finding]] = {}
    for what, finding in findings:
        same = finding.divergence.position, finding.verdict.kind, finding.verdict.step, finding.verdict.where
        merged.setdefault(same, ([], finding))[0].append(what)
    return [(", ".join(names), finding) for names, finding in merged.values()]


def _headline(audit: Any) -> str:
    """The results, level by level."""
    results = {level: audit.level_result(level) for level in _LEVELS}
    bad = [_NOT[level] for level, result in results.items() if result == "trouble"]
    good = [_YES[level] for level, result in results.items() if result == "ok"]
    text = "; ".join(bad) if bad else " and ".join(good) or "nothing was checked"
    return text[0].upper() + text[1:]


def _marked(lines: Iterable[str], changes: Iterable[Change]) -> list[tuple[str, str]]:
    """Lines, each with its class: those of diffs are indented, those of lineages side by side have columns of marks."""
    diffs = {f"    {line}" for change in changes for line in change.diff.splitlines()}
    return [(_MARKS.get(line[4:5] if line in diffs else line[:2].strip() or line[3:4], ""), line) for line in lines]


def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("drift.auditing", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: f"{value:,}" if isinstance(value, int) else value
    return environment.get_template("audit.html")
