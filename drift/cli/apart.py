"""`drift errors`: items that were set apart, listed, shown, and put in again.

They are what a graph's sink `errors` wrote, to a file of lines or a table, or what a table refused: drift_errors.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from drift.cli.errors import to_json
from drift.extras import need
from drift.sinks import postgres, sqlite
from drift.sinks.refused import TABLE, Refused, Statements
from drift.urls import cleaned, without_secrets
from drift_graph.diverted import was_raised
from drift_graph.errors import SettingsError, SinkError

_REPORT = {"location", "error", "payload"}


class Apart(NamedTuple):
    """An item that was set apart.

    Attributes:
        sink: the table that refused it, or "" if a source or a step did.
        location: where, as the report says.
        shown: the payload for people, where it was not stored as JSON.
    """

    sink: str
    position: int
    time: int
    location: str
    error: str
    payload: Any
    shown: str | None = None

    @property
    def as_read(self) -> bytes | None:
        """The bytes that a source could not decode, which are base64 in a file of lines; None if it is no such item."""
        if self.sink or was_raised(self.error):
            return None
        if isinstance(self.payload, str):
            with suppress(ValueError):
                return base64.b64decode(self.payload, validate=True)
            return self.payload.encode()
        return self.payload if isinstance(self.payload, bytes) else None


@click.group("errors", short_help="Items that were diverted: list, show, retry.")
def errors_group() -> None:
    """Items that a source, a step or a table could not process, and that were set apart.

    \b
    WHERE is what the sink "errors" of a graph wrote, or a database with what a table refused:
    errors.jsonl
    sqlite:PATH[#TABLE]
    postgresql://USER@HOST/DB[#TABLE]

    Without a TABLE it is all that tables refused, or else the table "errors".
    """


@errors_group.command("list")
@click.argument("where", metavar="WHERE")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_command(where: str, as_json: bool) -> None:
    """All of them: position, where it was, and why."""
    found = _items_in(where)
    if as_json:
        click.echo(to_json([each._asdict() for each in found]))
        return
    for each in found:
        click.echo(f"{each.position:>10}  {each.location}: {' '.join(each.error.split()):.200}")
    if not found:
        click.echo(f"{without_secrets(where)} has no diverted items", err=True)


@errors_group.command("show")
@click.argument("where", metavar="WHERE")
@click.argument("position", type=int)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def show_command(where: str, position: int, as_json: bool) -> None:
    """One of them, with its payload."""
    (each,) = _chosen(where, _items_in(where), [position])
    if as_json:
        click.echo(to_json(each._asdict()))
        return
    click.echo(f"position {each.position}, time {each.time}\n{each.location}\n{each.error}")
    click.echo(f"payload: {to_json(each.payload) if each.shown is None else each.shown}")


@errors_group.command("retry")
@click.argument("where", metavar="WHERE")
@click.argument("positions", type=int, nargs=-1)
@click.option("--to", metavar="FILE", help="Write the payloads to a new file, a line of JSON each, for --source.")
@click.option("--raw", is_flag=True, help="With --to: lines that a source could not decode, as they were read.")
def retry_command(where: str, positions: Sequence[int], to: str | None, raw: bool) -> None:
    """Put them in again, all if no POSITION is given: in the table that refused them, or with --to as input of a run.

    \b
    drift errors retry sqlite:out.db#orders 17 18
    drift errors retry errors.jsonl --to again.jsonl && drift run orders.py:graph --source again.jsonl
    """
    chosen = _chosen(where, _items_in(where), positions)
    if to is not None:
        _write(to, chosen, raw=raw)
        undecoded = 0 if raw else sum(each.as_read is not None for each in chosen)
        said = f"; {undecoded:,} could not be decoded, and are in base64 without --raw" if undecoded else ""
        click.echo(f"{len(chosen):,} payloads are in {to}{said}", err=True)
        return
    if any(not each.sink for each in chosen):
        raise SettingsError(
            f"{without_secrets(where)} has what a graph's sink of errors wrote: write the payloads to a file "
            f"(--to FILE.jsonl), correct them, and run the graph with that source"
        )
    base, taken, left = where.partition("#")[0], 0, 0
    for table in dict.fromkeys(each.sink for each in chosen):
        of_table = {each.position for each in chosen if each.sink == table and each.shown is None}
        sink: Any = sqlite(base.removeprefix("sqlite:"), table) if base.startswith("sqlite:") else postgres(base, table)
        more_taken, more_left = sink.retry(of_table)
        taken, left = taken + more_taken, left + more_left
    left += sum(each.shown is not None for each in chosen)
    said = f"{taken:,} of {taken + left:,} {'is' if taken == 1 else 'are'} in the table now"
    if left:
        raise SinkError(f"{said}; the others are still refused: `drift errors list` says why")
    click.echo(said, err=True)


def _chosen(where: str, found: list[Apart], positions: Collection[int]) -> list[Apart]:
    unknown = sorted(set(positions) - {each.position for each in found})
    if unknown:
        raise SettingsError(f"{without_secrets(where)} has no diverted item at position {unknown[0]}")
    return [each for each in found if not positions or each.position in positions]


def _write(path: str, chosen: Sequence[Apart], *, raw: bool) -> None:
    without = [each.position for each in chosen if each.shown is not None]
    if without:
        raise SettingsError(
            f"the payload at position {without[0]} is not stored as JSON: name the positions of the others"
        )
    read = [each.as_read if raw else None for each in chosen]
    lines = [to_json(each.payload).encode() if line is None else line for each, line in zip(chosen, read)]
    try:
        with open(path, "xb") as file:  # noqa: PTH123
            try:
                file.writelines(line + b"\n" for line in lines)
                file.flush()
            except OSError:
                Path(path).unlink()
                raise
    except OSError as error:
        raise SinkError(f"{path} cannot be written: {error.strerror}") from error


def _items_in(where: str) -> list[Apart]:
    kind, colon, path = where.partition(":")
    if where.startswith(("postgresql://", "postgres://")):
        url, _, table = where.partition("#")
        with _postgres(url) as connection:
            return _in_database(lambda sql, *values: connection.execute(sql.encode(), values).fetchall(), "%s", table)
    if colon and kind == "sqlite":
        path, _, table = path.partition("#")
        if not Path(path).exists():
            raise SettingsError(f"there is no file {path}")
        try:
            with closing(sqlite3.connect(path)) as file:
                return _in_database(lambda sql, *values: file.execute(sql, values).fetchall(), "?", table)
        except sqlite3.Error as error:
            raise SinkError(f"{path} cannot be read: {error}") from error
    return list(_in_lines(where))


@contextmanager
def _postgres(url: str) -> Iterator[Any]:
    need("postgres", "drift errors")
    import psycopg

    try:
        with psycopg.connect(url) as connection:
            yield connection
    except psycopg.Error as error:
        raise SinkError(f"the database cannot be read: {str(cleaned(error, url)).strip()}") from None


def _in_database(rows_of: Any, mark: str, table: str) -> list[Apart]:
    """What a table refused; or the reports that a graph's sink of errors wrote to this table."""
    named = "sqlite_master where type = 'table' and name = ?" if mark == "?" else "pg_class where relname = %s"
    statements = Statements(mark, "")
    if rows_of(f"select 1 from {named}", TABLE):
        found = rows_of(statements.select, table) if table else rows_of(statements.select_all)
        if found:
            return [_of_table(Refused(*row)) for row in found]
    table = table or "errors"
    if not rows_of(f"select 1 from {named}", table):
        return []
    quoted = '"' + table.replace('"', '""') + '"'
    columns = "pragma_table_info(?)" if mark == "?" else "information_schema.columns where table_name = %s"
    name = "name" if mark == "?" else "column_name"
    if not {each for (each,) in rows_of(f"select {name} from {columns}", table)} >= _REPORT:
        return []
    reports = rows_of(f"select position, time, location, error, payload from {quoted} order by position")
    return [Apart("", *row)._replace(payload=_from_column(row[-1])) for row in reports]


def _from_column(payload: Any) -> Any:
    """A payload of a report in a table: SQLite has objects and arrays as text."""
    with suppress(ValueError, RecursionError):
        if isinstance(payload, str) and payload.startswith(("{", "[")):
            return json.loads(payload)
    return payload


def _of_table(item: Refused) -> Apart:
    payload = None if item.payload is None else json.loads(item.payload)
    return Apart(item.sink, item.position, item.time, f"table {item.sink!r}", item.error or "", payload, item.shown)


def _in_lines(path: str) -> Iterator[Apart]:
    number = 0
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            for line in file:
                if not line.endswith("\n"):
                    return  # a run still writes it
                number += 1
                found = json.loads(line)
                location, error, payload = (found["payload"][name] for name in ("location", "error", "payload"))
                yield Apart("", found["position"], found["time"], location, error, payload)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SettingsError(
            f"{path}, line {number}: this is no line of a sink of errors, which drift.sinks.jsonl wrote"
        ) from None
