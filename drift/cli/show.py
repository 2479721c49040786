"""`drift show`: what a graph is, as text or as a picture."""

from __future__ import annotations

import click

from drift.cli.completion import complete_graph
from drift.cli.errors import to_json
from drift.load import load_dataflow
from drift.machines.forms import forms_of
from drift.show import as_mermaid, as_table, as_text, write_picture
from drift.show.steps import flow_order
from drift_graph.errors import SettingsError, SinkError


@click.command("show", short_help="Print or draw a graph.")
@click.argument("graph", metavar="FILE:GRAPH", shell_complete=complete_graph)
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
@click.option("--picture", metavar="PATH", help="Write a picture, .svg or .png (needs the extra `picture`).")
@click.option("--json", "as_json", is_flag=True, help="Print operators and edges as one JSON object.")
@click.option("--plan", "as_plan", is_flag=True, help="Print what runs each step, on what, and its level.")
def show_command(graph: str, mermaid: bool, picture: str | None, as_json: bool, as_plan: bool) -> None:
    """Print the steps of a graph, the operators they stand for, and how they are connected.

    \b
    drift show wordcount.py:graph
    drift show wordcount.py:graph --picture wordcount.png
    drift show wordcount.py:graph --mermaid >> README.md
    drift show wordcount.py:graph --plan
    """
    if sum((mermaid, as_json, as_plan, picture is not None)) > 1:
        raise SettingsError("--mermaid, --picture, --json and --plan are four outputs; ask for one")
    dataflow = load_dataflow(graph)
    if as_plan:
        forms = forms_of(dataflow)
        each = [forms[name] for name in flow_order(dataflow) if name in forms]
        rows = [(form.name, form.kind, str(form.level), form.gives, form.runs, form.why) for form in each]
        click.echo("\n".join(as_table([("step", "kind", "level", "gives", "by", "since"), *rows])))
    elif mermaid:
        click.echo(as_mermaid(dataflow), nl=False)
    elif as_json:
        operators = [
            {
                "name": each.name,
                "step": each.step,
                "kind": each.kind,
                "does": each.label,
                "rank": dataflow.ranks.get(each.name),
                "where": each.where,
                **({"fields": dataflow.schemas[each.name]} if each.name in dataflow.schemas else {}),
            }
            for each in dataflow.operators
        ]
        click.echo(to_json({"name": dataflow.name, "operators": operators, "edges": dataflow.edges}))
    elif picture is not None:
        try:
            write_picture(dataflow, picture)
        except OSError as error:
            raise SinkError(f"{picture} cannot be written: {error.strerror}") from error
    else:
        click.echo(as_text(dataflow))
