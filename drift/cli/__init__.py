"""The command line: `drift run` and the others.

Invariant: the exit code says whose turn it is, and is one of these.

    0    done; also where SIGTERM had the sources of a run end, and all that was read is released
    1    a bug in drift; its traceback is printed
    2    the call is wrong: an option, a path, a name
    3    the graph is wrong, or the file it is in raised
    4    a step failed: a function of the graph raised, or made a payload that cannot be compared
    5    the input is wrong, or an item came too late
    6    a process of the run died or hung
    7    the output could not be written
    8    what was compared differs: a simulated run from the reference, a record from another, its run, or its hashes
    9    the state of a run could not be stored, or not be read again
    130  ended by Ctrl-C (143: by a second SIGTERM); what was released before is intact

Why: every error passes `drift.cli.errors.print_error`, which knows the class of each.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from drift.cli.errors import print_error
from drift.sinks.lines import drop_stdout
from drift_graph.errors import SinkError

#: Those of the module's docstring.
EXIT_CODES = "\b\nExit codes:\n" + "\n".join(line[2:] for line in (__doc__ or "").splitlines() if line[:4] == "    ")


#: What a stream that the caller gave may fail with.
_OF_OUTPUT = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EFBIG, errno.EBADF)

#: Each command, and where it is: to import all of them takes longer than many a run.
_COMMANDS = {
    "audit": "audit:audit_command",
    "check": "check:check_command",
    "diff": "diff:diff_command",
    "errors": "apart:errors_group",
    "explain": "explain:explain_command",
    "key": "worker:key_command",
    "plan": "plan:plan_command",
    "record": "audit:record_group",
    "replay": "replay:replay_command",
    "run": "run:run_command",
    "show": "show:show_command",
    "simulate": "simulate:simulate_command",
    "state": "state:state_group",
    "web": "web:web_command",
    "worker": "worker:worker_command",
}


class _Drift(click.Group):
    """Imports a command when it is asked for, and prints errors in drift's own way, whoever calls it."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context | None, name: str) -> click.Command | None:
        module, _, attribute = _COMMANDS.get(name, "").partition(":")
        return getattr(import_module(f"drift.cli.{module}"), attribute) if module else None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        _prepare_output()
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        stdout = sys.stdout
        try:
            code = super().main(arguments, prog_name or "drift", **extra)
            stdout.flush()
        except SystemExit as ended:  # with 1 where nobody reads on: by rich, or by click, which replaces the stream
            if sys.stdout is stdout and not isinstance(ended.__context__, BrokenPipeError):
                raise
            sys.stdout = stdout
            code = print_error(_of_stdout(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))), as_json=False)
        except OSError as error:
            code = print_error(_of_stdout(error), as_json=False)
        except BaseException as error:
            code = print_error(error, as_json="--json" in arguments)
        sys.exit(code if isinstance(code, int) else 0)


def _prepare_output() -> None:
    """Have output that can be written to, or fails as a full disk does; no file gets its number."""
    if sys.stdout is None:  # closed by who called: to write to it is an error
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:  # nobody reads it
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):  # one output, byte for byte, in any locale, also of names of files
            stream.reconfigure(encoding="utf-8", errors=errors)


def _of_stdout(error: OSError) -> BaseException:
    """What the command's own output met: a full disk, or nobody who reads on. Errors of other files name them."""
    if error.filename is not None or error.errno not in _OF_OUTPUT:
        return error
    drop_stdout()
    sink_error = SinkError(f"standard output cannot be written: {error.strerror}")
    sink_error.__cause__ = error
    return sink_error


def _version(context: click.Context, option: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        from drift import __version__
        from drift_kernel import STATUS

        click.echo(f"drift {__version__}, {STATUS}")
        context.exit()


@click.group(cls=_Drift, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    callback=_version,
    expose_value=False,
    is_eager=True,
    help="Print the version, and whether the kernel is there.",
)
def drift() -> None:
    """Deterministic dataflow: one graph, many engines, one output, byte for byte.

    \b
    drift run wordcount.py:graph --source lines=hamlet.txt --digest
    drift run flights.py:graph --source flights.csv.gz --record monday
    drift replay monday --engine zeromq --workers 4
    drift show wordcount.py:graph --picture graph.svg
    """
