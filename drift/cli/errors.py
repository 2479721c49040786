"""How an error ends the command: the printed text, and the exit code.

Invariant: with `--json` standard output is one JSON object, whatever happens; without it, errors go to standard error
only.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from drift_graph.errors import (
    DriftBug,
    GraphError,
    InputError,
    ProcessError,
    SettingsError,
    SinkError,
    StepError,
    StorageError,
)


class Differs(Exception):
    """A simulated run is not what the reference says it is; the message is the report."""


#: The exit code if a comparison finds differences, which alone are no error.
DIFFERENT = 8

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (click.ClickException, 2),
    (SettingsError, 2),
    (GraphError, 3),
    (StepError, 4),
    (InputError, 5),
    (ProcessError, 6),
    (SinkError, 7),
    (Differs, DIFFERENT),
    (StorageError, 9),
)
_BUG = 1


class RunEnded(Exception):
    """A run that ended before its end.

    Attributes:
        report: what it had done, as for `--json`.
    """

    def __init__(self, error: BaseException, report: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.error = error
        self.report = report


class Interrupted(Exception):
    """Ctrl-C, or another signal that asks the run to end."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


@contextmanager
def reading() -> Iterator[None]:
    """Around what reads records and leaves them as they are: says so where Ctrl-C ends it."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the record is as it was", signal.SIGINT) from None


def exit_code(error: BaseException) -> int:
    """The exit code for an error; see `drift.cli`."""
    if isinstance(error, Interrupted):
        return error.exit_code
    if isinstance(error, DriftBug):
        return _BUG
    return next((code for kind, code in _CODES if isinstance(error, kind)), _BUG)


def print_error(error: BaseException, *, as_json: bool) -> int:
    """Print an error, and give the exit code."""
    report: dict[str, Any] | None = None
    if isinstance(error, RunEnded):
        report = error.report
        error = error.error
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        error = Interrupted("interrupted before the run began", 2)
    code = exit_code(error)
    if as_json:
        click.echo(to_json(_as_object(error, code, report)))
        if code == _BUG:
            click.echo(_bug_report(error), err=True)
    elif code == _BUG:
        click.echo(_bug_report(error), err=True)
    elif isinstance(error, click.ClickException):
        error.show()
    elif not isinstance(error.__cause__, BrokenPipeError):  # `drift ... | head` is no news
        _print(error, report)
    return code


def to_json(value: Any) -> str:
    """One line of JSON; what JSON has no form for is shown as Python does."""
    return msgspec.json.encode(value, enc_hook=repr).decode()


def _print(error: BaseException, report: dict[str, Any] | None) -> None:
    if isinstance(error, Interrupted):
        click.echo(str(error), err=True)
        return
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(note, err=True)
    if report is not None and "items_out" in report and not isinstance(error, (SinkError, SettingsError)):
        click.echo(f"{report['items_out']:,} items were released before this; they stand", err=True)


def _as_object(error: BaseException, code: int, report: dict[str, Any] | None) -> dict[str, Any]:
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    plain: dict[str, Any] = {"error": message, "kind": type(error).__name__, "exit_code": code}
    if isinstance(error, StepError):
        plain |= {"step": error.step, "where": error.where, "meta": error.meta.hex()}
    notes = list(getattr(error, "__notes__", ()))
    return plain | ({"notes": notes} if notes else {}) | ({"report": report} if report is not None else {})


def _bug_report(error: BaseException) -> str:
    from drift import __version__

    trace = "".join(traceback.format_exception(error))
    return (
        f"{trace}\nThis is a bug in drift {__version__}, not in your graph: please report it with the lines above, the "
        f"command, and if you can the graph and the input."
    )
