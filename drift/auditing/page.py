"""An audit as one HTML file for filing: the same content as its table and its JSON.

Invariant: whatever is in a payload, a name or a message is shown as text, never as markup; the file refers to nothing
outside itself, and runs no script.

Why: every value passes the template's escaping, and the template has neither links nor scripts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drift.auditing.lineage import Lineage
from drift.auditing.outputs import KINDS
from drift.auditing.show import left_out_words, outline, shown_payload, words_of
from drift.auditing.side_by_side import SideBySide, cells_of
from drift.auditing.text import counts_text
from drift.auditing.verdict import Finding
from drift.auditing.versions import Versions
from drift.records.format import RecordError, read_manifest
from drift_graph.errors import SinkError

_PAYLOAD_CHARACTERS_MAX = 400
_KEYS_SHOWN = 50
_RESULTS = {"ok": "ok", "trouble": "trouble", "noted": "note", "not checked": "not checked"}
_LEVELS = {
    "intact": "Intact: files, manifest and hashes agree",
    "signed": "Signed: nobody has changed it",
    "reproduced": "Reproduced: computed again, and equal",
}
_YES = {"intact": "intact", "signed": "unchanged by anybody", "reproduced": "reproduced"}
_NOT = {"intact": "not intact", "signed": "not as it was signed or noted", "reproduced": "not reproduced"}


def audit_page(audit: Any, graph_text: str = "") -> str:
    """The page of a `drift.auditing.checks.Audit`.

    Args:
        graph_text: the recorded graph, as `drift show` prints it.
    """
    plain, versions = audit.as_dict(), audit.versions
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
        findings=[_finding(what, finding) for what, finding in _merged(findings)],
        counts=counts_text(versions.difference.counts) if versions is not None else "",
        versions=_versions(versions, sources=not findings) if versions is not None else None,
        graph_text=graph_text,
        kinds=KINDS,
        as_json=json.dumps(plain, indent=1, ensure_ascii=False, default=repr),
    )
    return page


def write_audit(path: str | os.PathLike[str], audit: Any) -> None:
    """Write the page of an audit.

    Raises:
        SinkError: it cannot be written.
    """
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


def _finding(what: str, finding: Finding) -> dict[str, Any]:
    return {
        "check": what,
        **finding.as_dict(),
        "lineage_rows": _rows(finding.lineage),
        "recorded_rows": _rows(finding.recorded_lineage),
        "both_rows": _both_rows(finding.both) if finding.both is not None else [],
        "diffs": [_diff(change) for change in finding.verdict.as_dict()["changes"]],
    }


def _headline(audit: Any) -> str:
    """The results, level by level."""
    results = {level: audit.level_result(level) for level in _LEVELS}
    bad = [_NOT[level] for level, result in results.items() if result == "trouble"]
    good = [_YES[level] for level, result in results.items() if result == "ok"]
    text = "; ".join(bad) if bad else " and ".join(good) or "nothing was checked"
    return text[0].upper() + text[1:]


def _versions(versions: Versions, *, sources: bool) -> dict[str, Any]:
    """The template's data on another version; with the source diffs, unless they are shown already."""
    plain = versions.as_dict()
    keys = list(plain["by_key"].items())
    return {
        **plain,
        "keys": keys[:_KEYS_SHOWN],
        "keys_left_out": max(len(keys) - _KEYS_SHOWN, 0),
        "diffs": [_diff(change if sources else {**change, "diff": ""}) for change in plain["changes"]],
        "lineages": [{"position": position, "rows": _rows(lineage)} for position, lineage in versions.lineages.items()],
        "policy_changed": any(change.kind == "policy" and change.matters for change in versions.changes),
    }


def _diff(change: Mapping[str, Any]) -> dict[str, Any]:
    """A change with the lines of its diff, each with its class."""
    kinds = {"+": "new", "-": "old", "@": "location"}
    lines = [
        {"text": line, "kind": "location" if line.startswith(("---", "+++")) else kinds.get(line[:1], "")}
        for line in change["diff"].splitlines()
    ]
    return {**change, "lines": lines}


def _rows(lineage: Lineage | None) -> list[dict[str, Any]]:
    """The outline of a lineage, a line each."""
    if lineage is None:
        return []
    rows: list[dict[str, Any]] = []
    for depth, made, again, left_out in outline(lineage):
        if made is None:
            rows.append({"depth": depth, "kind": "left", "what": left_out_words(left_out), "words": ""})
        else:
            what = shown_payload(made, _PAYLOAD_CHARACTERS_MAX)
            words = words_of(lineage, made) + (", as above" if again else "")
            rows.append({"depth": depth, "kind": made.kind, "what": what, "words": words})
    return rows


def _both_rows(both: SideBySide) -> list[dict[str, Any]]:
    """Two lineages side by side, a row each; equal parts appear once."""
    return [
        {
            "depth": pair.depth,
            "same": pair.same,
            "parts": pair.parts,
            "cells": [cell._asdict() for cell in cells_of(both, pair, _PAYLOAD_CHARACTERS_MAX)],
        }
        for pair in both.pairs
    ]


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
