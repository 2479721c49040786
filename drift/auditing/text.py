"""Results of comparisons as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from drift.auditing.checks import Audit
from drift.auditing.diff import InputRow, RecordsDiffer
from drift.auditing.outputs import KINDS, Counts, Difference, Example
from drift.auditing.show import as_text, console_of_output, plain_text
from drift.auditing.side_by_side import side_by_side_lines
from drift.auditing.verdict import Finding
from drift.records.changes import Change
from drift.records.shown import readable
from drift_graph.functions import safe_text
from drift_graph.item import Item
from drift_graph.meta import time_of

_CHARACTERS_MAX = 160
_COLOURS = {"ok": "green", "trouble": "bold red", "noted": "yellow", "not checked": "yellow"}
_LEVELS = {"intact": "intact", "signed": "unchanged by anybody", "reproduced": "reproduced"}


def diff_lines(found: RecordsDiffer) -> Iterator[str]:
    """Two records."""
    yield from _graph_lines(found.changes)
    counts, differing = found.input.counts, found.input
    if differing.same:
        yield f"input     the same {counts[0]:,} items in the same order of arrival"
    elif differing.reordered:
        yield f"input     the same {counts[0]:,} items in another order of arrival, from item {differing.row:,} on"
    else:
        yield f"input     differs, {counts[0]:,} and {counts[1]:,} items; first at item {differing.row:,}:"
        yield f"    one    {_input_text(differing.one)}"
        yield f"    other  {_input_text(differing.other)}"
    late = found.late
    if late[0] or late[1]:
        yield f"late      {'the same' if late[2] else 'others'}: {late[0]:,} and {late[1]:,} items diverted"
    yield from _output_lines(found.outputs)
    if found.outputs.same:
        yield f"          digest {found.digests[0]}" + (
            "" if found.digests[0] == found.digests[1] else f" and {found.digests[1]}: other metas, or another hash"
        )
    for title, rows in (("versions", found.versions), ("settings", found.settings)):
        for name, one, other in rows:
            yield f"{title:9} {name}: {one} and {other}"


def audit_text(found: Audit) -> str:
    return plain_text(lambda console: print_audit(found, console))


def print_audit(found: Audit, console: Console | None = None) -> None:
    """The table, and what it comes to."""
    console = console or console_of_output()
    record = found.record
    if record:
        outcome = record["outcome"] + (f" ({record['error'].splitlines()[0][:100]})" if record["error"] else "")
        counts = f"{record['items_in']:,} items in, {record['items_out']:,} out"
        head = f"{found.path}: graph {record['graph']!r}, {counts}, on {record['engine']}"
        console.print(escape(f"{head}, started {record['started'][:19]} UTC, {outcome}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("level", "checked", "against", "result", "found"):
        table.add_column(heading, overflow="fold")
    for check in found.checks:
        colour = _COLOURS[check.result]
        cells = (check.level, check.what, check.against, check.result, check.found)
        shown = [escape(cell) for cell in cells]
        shown[3] = f"[{colour}]{shown[3]}[/]"
        table.add_row(*shown)
    console.print(table)
    of_files = [trouble for check in found.checks if check.level != "reproduced" for trouble in check.troubles]
    for trouble in of_files:
        console.print(f"  [red]{escape(trouble.kind)}[/]: {escape(trouble.text)}", soft_wrap=True)
    for check in found.checks:
        if check.finding is not None:
            console.print(f"\n[bold]{escape(check.what)}[/]")
            console.print(Text("\n".join(finding_lines(check.finding))), soft_wrap=True)
    words = [
        f"{said}: [{_COLOURS[result]}]{'yes' if result == 'ok' else 'NO' if result == 'trouble' else result}[/]"
        for level, said in _LEVELS.items()
        if (result := found.level_result(level)) != "not checked" or level != "signed"  # type: ignore[arg-type]
    ]
    console.print(", ".join(words) + (f"; record hash {record['hash']}" if record else ""), soft_wrap=True)


def finding_lines(finding: Finding) -> Iterator[str]:
    """Where a run diverges from a record, and why."""
    found, verdict = finding.divergence, finding.verdict
    yield f"position {found.position:,}: {found.what}"
    for name, item in zip(("recorded", "computed"), found.pair):
        if item is not None:
            yield f"    {name}  {_item_text(item)}"
    if found.in_place is not None:
        has = "record" if found.in_place is found.recorded else "run"
        yield f"    there the {has} has the next item, from another input item:  {_item_text(found.in_place)}"
    if found.error is not None:
        yield f"    the run ended with {type(found.error).__name__}: {str(found.error).splitlines()[0]}"
    yield f"verdict: {verdict.title}"
    yield f"    {verdict.text}"
    yield from (f"    {line}" for line in verdict.details)
    for change in verdict.changes:
        yield from (f"    {line}" for line in change.diff.splitlines())
    if finding.both is not None:
        yield from side_by_side_lines(finding.both)
    by = "as the recorded graph made it" if finding.by_recorded else "as the graph makes it now"
    for title, lineage in (
        ("lineage of what is computed", finding.lineage),
        (f"lineage of what is recorded, {by}", finding.recorded_lineage),
    ):
        if lineage is not None and finding.both is None:
            yield f"{title}:"
            yield from (f"    {line}" for line in as_text(lineage).splitlines())
    yield from finding.notes
    if finding.case is not None:
        made = f"made small, {finding.case.items:,} input items: " if finding.case.path is not None else ""
        yield made + finding.case.text


def _item_text(item: Item[Any]) -> str:
    return f"{safe_text(repr, item.payload, _CHARACTERS_MAX)}  sink {item.sink!r}, time {item.time}"


def _graph_lines(changes: tuple[Change, ...]) -> Iterator[str]:
    mattering = [change for change in changes if change.matters]
    if not mattering:
        yield "graph     the same"
    for change in mattering:
        yield f"graph     {change.text}"
        yield from (f"    {line}" for line in change.diff.splitlines())
    for change in changes:
        if not change.matters:
            yield f"graph     {change.text} (this changes no output)"


def _output_lines(found: Difference) -> Iterator[str]:
    if found.same:
        yield f"output    the same {found.counts.same:,} items"
    else:
        yield f"output    {_counts_text(found.counts)}"
    if len(found.by_sink) > 1 and not found.same:
        for sink, counts in found.by_sink.items():
            yield f"    sink {sink!r}: {_counts_text(counts)}"
    for kind in KINDS:
        for example in found.first[kind][:1]:
            yield from _example_lines(kind, example)


def _counts_text(counts: Counts) -> str:
    """Such as "12 changed, 3 missing, 0 added, 7,841 the same"."""
    moved = f", {counts.moved:,} of them with another meta" if counts.moved else ""
    differ = f"{counts.changed:,} changed, {counts.missing:,} missing, {counts.added:,} added"
    return f"{differ}, {counts.same:,} the same{moved}"


def _example_lines(kind: str, example: Example) -> Iterator[str]:
    yield f"    first {kind}: sink {example.row.sink!r}, time {example.time}"
    for name, row in (("one", example.old), ("other", example.new)):
        if row is not None:
            shown = safe_text(repr, readable(row.data), _CHARACTERS_MAX)
            yield f"        {name:5}  position {row.position:,}  {shown}"


def _input_text(row: InputRow | None) -> str:
    if row is None:
        return "no more items"
    shown: Any = safe_text(repr, readable(row.data), _CHARACTERS_MAX)
    return f"{row.source} at {time_of(row.global_time)}  {shown}"
