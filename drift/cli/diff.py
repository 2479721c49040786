"""`drift diff`: compares two records."""

from __future__ import annotations

import sys
from typing import Any

import click

from drift.cli.errors import DIFFERENT, reading, to_json
from drift.cli.options import json_option
from drift.cli.progress import watch_line
from drift.extras import need


@click.command("diff", short_help="Compare two records.")
@click.argument("one", metavar="RECORD")
@click.argument("other", metavar="RECORD")
@json_option
def diff_command(one: str, other: str, as_json: bool) -> Any:
    """Compare two records: their graphs, the versions they ran with, input, late items and outputs.

    Nothing of them is run or imported. Exit code 8 where input, graph or output differ.

    \b
    drift diff monday tuesday
    drift diff monday tuesday --json
    """
    need("records", "drift diff")
    from drift.auditing.diff import diff
    from drift.auditing.text import diff_lines
    from drift.records.reader import Record

    left, right = records = Record(one), Record(other)
    for record in records:
        record.watch.begin(str(record.path), record.counts)
    with reading(), watch_line(left.watch, right.watch, active=not as_json and sys.stderr.isatty()):
        found = diff(left, right)
    if as_json:
        click.echo(to_json(found.as_dict()))
    else:
        click.echo("\n".join(diff_lines(found)))
    return 0 if found.same else DIFFERENT
