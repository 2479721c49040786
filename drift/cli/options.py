"""The options that several commands have: where a graph runs, where its output goes, what is printed.

Invariant: an option means the same at every command that has it, and is refused for the same reasons.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from drift.all_engines import engine_kinds, engine_names
from drift.cli.completion import complete_graph
from drift.cli.specs import OnExisting, TimeOptions, by_name, refuse_one_file, sink_of, source_of, writes_to_stdout
from drift.load import load_function
from drift.sinks.base import Sink
from drift.urls import without_secrets
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

Command = Callable[..., Any]

graph_option = click.option(
    "--graph",
    metavar="FILE:GRAPH",
    shell_complete=complete_graph,
    help="In place of the graph that the record names.",
)
master_option = click.option(
    "--master", metavar="URL", help="Where Spark runs: local[4], spark://HOST:PORT, yarn; else local[*]."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


class EngineName(click.ParamType):  # type: ignore[type-arg]
    """An engine's name; it is checked after the graph's file, which may register an engine, is loaded."""

    name = "engine"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(engine_names())}]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in engine_names() if name.startswith(incomplete)]


#: The settings of engines that are options, by name; what two engines have is one option.
_SETTINGS: dict[str, Mapping[str, Any]] = {
    each.name: each.metadata for kind in engine_kinds() for each in kind.own_settings() if each.metadata.get("option")
}
_ENGINE = (
    click.option("--engine", type=EngineName(), default="local", show_default=True, help="All give the same output."),
    *(
        click.option(
            f"--{flag}/--no-{flag}" if field["kind"] is bool else f"--{flag}",
            help=field["option"],
            default=None,
            type=field["kind"],
        )
        for name, field in _SETTINGS.items()
        for flag in [name.replace("_", "-")]
    ),
)
_OUTPUT = (
    click.option(
        "--sink", "sink_specs", multiple=True, metavar="[NAME=]SPEC",
        help="Where a sink's items go: PATH.jsonl, .csv or .parquet; sqlite:PATH; postgresql://, kafka://, redis://; - "
        "for standard output; text:- for the bare payloads.",
    ),
    click.option(
        "--on-existing", type=click.Choice(["continue", "replace", "error"]), default="continue", show_default=True,
        help="What to do with a sink's existing file. continue: compare it line by line and add what is missing.",
    ),
    click.option("--late-output", metavar="PATH", help="JSON lines of the diverted items, with the reason of each."),
)  # fmt: skip
_PRINTED = (
    click.option("--digest", "print_digest", is_flag=True, help="Print the digest of the output, as the last line."),
    json_option,
    click.option("-q", "--quiet", is_flag=True, help="No progress line, no summary."),
)
_TIMES = (
    click.option(
        "--event-time",
        multiple=True,
        metavar="[NAME=]FIELD|FILE:FUNCTION",
        help="Time of an item; of tuples FIELD is an index.",
    ),
    click.option("--tie", multiple=True, metavar="[NAME=]FIELD|FILE:FUNCTION", help="Orders items with equal times."),
    click.option("--lateness", multiple=True, metavar="[NAME=]N", help="How far items may be out of order: 3, 10s."),
    click.option("--allowed", multiple=True, metavar="[NAME=]N", help="How much later items still correct windows."),
    click.option("--late", multiple=True, metavar="[NAME=]error|divert", help="What to do with later items."),
    click.option("--idle", multiple=True, metavar="[NAME=]MS", help="A source silent for so long is not waited for."),
    click.option("--future-max", multiple=True, metavar="[NAME=]N", help="How far items may be ahead: 3, or 1h."),
    click.option("--unit", multiple=True, metavar="[NAME=]UNIT", help="Of times that are numbers: s, ms, us or ns."),
    click.option("--zone", multiple=True, metavar="[NAME=]ZONE", help="Of times that name none: Europe/Berlin."),
    click.option("--arrival", multiple=True, metavar="NAME", help="Order a source's items as they arrive."),
)
_CHANGES = (
    click.option("--accept-changed-code", is_flag=True, help="Resume although functions have changed."),
    click.option(
        "--accept-changed-graph", is_flag=True,
        help="Resume although the graph has changed: new steps begin empty (see drift state plan).",
    ),
    click.option(
        "--drop-step", multiple=True, metavar="STEP", help="A step with state, or a sink, that the graph has no more."
    ),
    click.option("--step-was", multiple=True, metavar="NEW=OLD", help="A step that was renamed, and keeps its states."),
    click.option(
        "--migrate-step", multiple=True, metavar="STEP=FILE:FUNCTION",
        help="What gives the states of a step whose functions have changed, from those of then.",
    ),
    click.option(
        "--backfill", multiple=True, metavar="SOURCE=SPEC|RECORD",
        help="Where new steps get the states from that they would have had: a source from its beginning, or a record.",
    ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Output:
    """Where the output of a run goes, and what is printed, as the call says it."""

    sink_specs: Sequence[str]
    on_existing: OnExisting
    late_output: str | None
    print_digest: bool
    as_json: bool
    quiet: bool

    def sinks_for(self, dataflow: Dataflow) -> tuple[dict[str, Sink], Printed]:
        """The sinks of a run of this graph, and what it prints.

        Raises:
            SettingsError: the graph has no such sink, or two sinks would write to one file.
        """
        specs = by_name("--sink", self.sink_specs, "sink", [sink.name for sink in dataflow.sinks])
        printed = Printed(self.as_json, self.print_digest, self.quiet, any(map(writes_to_stdout, specs.values())))
        if self.as_json and printed.items:
            raise SettingsError("--json has standard output for itself; give the sink a file")
        refuse_one_file(specs)
        return {name: sink_of(spec, self.on_existing, name) for name, spec in specs.items()}, printed


@dataclasses.dataclass(frozen=True)
class Printed:
    """What a run prints."""

    json: bool
    digest: bool
    quiet: bool
    items: bool  # some sink writes to standard output

    @property
    def line(self) -> bool:
        """A progress line: on a terminal, unless items would run through it."""
        return sys.stderr.isatty() and not self.quiet and not (self.items and sys.stdout.isatty())

    @property
    def summary(self) -> bool:
        """A summary for people: on a terminal, or where nothing else would be printed."""
        if self.quiet or self.json:
            return False
        return sys.stderr.isatty() or not (self.digest or self.items)


def engine_options(command: Command) -> Command:
    """The command is given them as `settings` of a run, without those that were left out."""

    @functools.wraps(command)
    def collected(**others: Any) -> Any:
        engine_settings = {name: others.pop(name) for name in ("engine", *_SETTINGS)}
        return command(settings=only_set(engine_settings), **others)

    return _with(_ENGINE, collected)


def _as_one(options: Sequence[Callable[[Command], Command]], name: str, kind: Any, command: Command) -> Command:
    """The command is given options as one argument, a dataclass that has them."""

    @functools.wraps(command)
    def collected(**others: Any) -> Any:
        one = kind(**{field.name: others.pop(field.name) for field in dataclasses.fields(kind)})
        return command(**{name: one}, **others)

    return _with(options, collected)


def output_options(command: Command) -> Command:
    """The command is given them as its `output`, together with those of `print_options`, which it must have as well."""
    return _as_one(_OUTPUT, "output", Output, command)


def print_options(command: Command) -> Command:
    """Apart from `output_options`, so that help has them last."""
    return _with(_PRINTED, command)


def change_options(command: Command) -> Command:
    """The command is given the changes of a graph that are allowed, as `changes`: arguments of `Checkpoints`."""

    @functools.wraps(command)
    def collected(
        accept_changed_code: bool,
        accept_changed_graph: bool,
        drop_step: Sequence[str],
        step_was: Sequence[str],
        migrate_step: Sequence[str],
        backfill: Sequence[str],
        **others: Any,
    ) -> Any:
        accepted = {"changed_code": accept_changed_code, "changed_graph": accept_changed_graph}
        changes: dict[str, Any] = {name: "accept" for name, given in accepted.items() if given}
        functions = _named("--migrate-step", migrate_step, "step")
        named = {
            "dropped": drop_step,
            "was": _named("--step-was", step_was, "step"),
            "migrate": {step: load_function(function) for step, function in functions.items()},
            "backfill": _backfill(backfill),
        }
        changes |= {name: value for name, value in named.items() if value}
        return command(changes=changes, **others)

    return _with(_CHANGES, collected)


def _backfill(values: Sequence[str]) -> Any:
    """Sources by name, or the folder of a record; None if there is none."""
    if len(values) == 1 and "=" not in values[0] and "://" not in values[0]:
        return values[0]
    return {name: source_of(spec, name) for name, spec in _named("--backfill", values, "source").items()}


def _named(option: str, values: Sequence[str], what: str) -> dict[str, str]:
    """The values of a repeated option, NAME=VALUE, where NAME is that of a step or a source."""
    found: dict[str, str] = {}
    for value in values:
        name, _, given = value.partition("=")
        if not name or not given or "://" in name:  # a URL without a name, which may have a password
            shown = without_secrets(value)
            raise SettingsError(f"{option} {shown}: say which {what}, as {what.upper()}={shown.strip('=') or '...'}")
        if name in found:
            both = f"{without_secrets(found[name])!r} and {without_secrets(given)!r}"
            raise SettingsError(f"{option} is given twice for {what} {name!r}: {both}")
        found[name] = given
    return found


def only_set(options: dict[str, Any]) -> dict[str, Any]:
    """Without those that were left out."""
    return {name: value for name, value in options.items() if value is not None}


def time_options(command: Command) -> Command:
    """The command is given them as its `times`."""
    return _as_one(_TIMES, "times", TimeOptions, command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
