"""`drift explain`: where an output item of a record comes from."""

from __future__ import annotations

import sys
from shlex import quote

import click

from drift.cli.errors import reading, to_json
from drift.cli.options import graph_option, json_option
from drift.cli.progress import watch_line
from drift.extras import need
from drift_graph.errors import SettingsError


@click.command("explain", short_help="Where an output item of a record comes from.")
@click.argument("path", metavar="RECORD")
@click.option("--position", type=int, required=True, metavar="N", help="Of the item in the output, from 0.")
@graph_option
@click.option("--states", type=int, default=3, show_default=True, help="How many states of a scan to go back.")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
@json_option
def explain_command(path: str, position: int, graph: str | None, states: int, mermaid: bool, as_json: bool) -> None:
    """Print the lineage of an output item: every item that it was made of, back to the input, with the step and the
    line that made each.

    The graph is loaded from where it was when it was recorded, and its file runs; where the record is not yours, look
    at that file first, or give --graph.

    \b
    drift explain monday --position 1000
    drift explain monday --position 1000 --states 10 --json
    """
    need("records", "drift explain")
    from drift.auditing.explain import explain
    from drift.auditing.show import as_mermaid, one_line, print_tree

    if mermaid and as_json:
        raise SettingsError("--mermaid and --json are two outputs; ask for one")
    from drift.records.reader import Record

    record = Record(path)
    record.watch.begin("looking for what it was made of", record.counts)
    with reading(), watch_line(record.watch, active=not as_json and sys.stderr.isatty()):
        lineage = explain(record, position, graph, states=states)
    if as_json:
        click.echo(to_json(lineage.as_dict()))
    elif mermaid:
        click.echo(as_mermaid(lineage), nl=False)
    else:
        print_tree(lineage)
    if lineage.recorded is not None and not as_json:
        click.echo(
            f"warning: the record has {one_line(lineage.recorded.payload, 200)} at this position; the graph gives "
            f"another item now. `drift audit {quote(path)}` says why",
            err=True,
        )
