"""What is changed in tables of Postgres, by logical replication.

Invariant: the changes behind the slot's place are given once, in the order of their commits, those of a transaction in
the order in which they were made. The slot is not moved beyond what the oldest kept checkpoint of the run needs.

Why: changes are taken from a temporary copy of the slot, which ends with the connection; so whatever happens to a run,
the slot still has them. A position is the place of a commit in the log, and how many of its changes were returned; a
slot that is moved there still gives that transaction, since it passes over what was committed before.

No library does this for psycopg 3, which has no replication protocol: the functions of SQL are asked, again and again.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Generator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.pgoutput import Change, Messages, payload_of
from drift.sources.pgvalues import Values, connected
from drift.sources.polled import Fetched, PolledSource, Poller
from drift.sources.positions import position_fields, position_lost, position_of
from drift.urls import checked_url, cleaned
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    import psycopg

_POLL_S = 0.2
_AT_ONCE = 4096  # changes that are taken from the log at once, and what else is of their last transaction
_GUARANTEE = SourceGuarantee("from a position", "a commit in the log, which the slot keeps")
_LOG = logging.getLogger("drift")
_NAME = re.compile(r"[a-z0-9_]{1,40}")


def postgres_changes(url: str, publication: str, *, slot: str, until_end: bool = False) -> PolledSource:
    """Each row that is inserted, updated or deleted in tables of Postgres is a payload, in the order of commits.

    A payload is {"op": "insert", "update", "delete" or "truncate", "table": "public.trips", "time": of the commit, in
    milliseconds, "row": the new row as a dict, "old": the old one}; a row that is not known is None. How much of the
    old row is known the table says (`alter table ... replica identity`): by default the key, where it changed or the
    row was deleted. A long value that an update did not touch is not in the row unless the whole old row is known.

    The server needs `wal_level = logical`, and a publication: `create publication trips for table trips`. The slot is
    made if it is not there, and gives what is committed from then on. It makes the server keep its log until a run with
    `state=` has a checkpoint behind it: without state nothing moves it, and each run gives all of it again. Drop a slot
    that nobody reads any more: `select pg_drop_replication_slot('trips')`.

    >>> import drift
    >>> changes = drift.sources.postgres_changes("postgresql://drift@db/taxi", "trips", slot="drift_trips")

    Args:
        url: postgresql://USER@HOST/DATABASE, or what else libpq takes; of a user that may replicate.
        publication: its name.
        slot: a name of small letters, digits and _, for this run alone. Beside it a run has a temporary slot.
        until_end: end with what was committed when the run begins; without it the source is live, and does not end.

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    need("postgres", "drift.sources.postgres_changes")
    if not isinstance(slot, str) or not _NAME.fullmatch(slot):
        raise SettingsError(f"slot={slot!r:.80} is no name of at most 40 small letters, digits and _")
    shown, live = f"postgres_changes({publication!r}, slot={slot!r})", not until_end
    poll = partial(_Poller, shown, checked_url(url), publication, slot, live=live)
    return PolledSource(shown, _GUARANTEE, poll, partial(payload_of, load=Values().load), live=live)


class _Poller(Poller):
    """The mark of a change is the place of its commit, and its number behind it."""

    to_do = (
        "divert such changes, on_error='divert', or leave the column out of the publication: alter publication ... set "
        "table ... (the other columns)"
    )

    def __init__(self, source: str, url: str, publication: str, slot: str, *, live: bool) -> None:
        import psycopg

        self._source = source
        self._url = url
        self._publication = publication
        self._slot = slot
        self._live = live
        self._changes: Generator[tuple[Change, tuple[int, int]], None, None] | None = None
        self._had_any = False  # whether the log had messages when it was asked last
        self._needed: int | None = None  # no run resumes from before that
        self._closed = threading.Event()
        try:
            self._connection = connected(url)
        except psycopg.Error as error:
            raise self._unreadable(error, "check the URL") from None
        try:
            if not self._ask("select 1 from pg_publication where pubname = %s", publication):
                raise InputError(
                    f"{source}: there is no such publication in that database; create publication {publication} for "
                    f"table ..."
                )
            found = self._confirmed()
            if found is None:
                self._ask("select pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
                found = self._confirmed()
                assert found is not None
            self._returned = found, 0
            self._end = self._present_end = int(self._ask("select pg_current_wal_lsn() - '0/0'")[0][0])
            self._lasting_end = None if live else self._end
            self._server = str(self._ask("select system_identifier from pg_control_system()")[0][0])
            self._copy = f"{slot}_run_{self._connection.info.backend_pid}"
        except BaseException:
            self._connection.close()
            raise

    def _ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of an answer. Raises InputError: the server does not answer, or refuses."""
        import psycopg

        try:
            return self._connection.execute(sql.encode(), values or None).fetchall()
        except psycopg.Error as error:
            raise self._unreadable(
                error, "it needs wal_level = logical, two free replication slots, and a user that may replicate"
            ) from None

    def _unreadable(self, error: psycopg.Error, to_do: str) -> InputError:
        text = str(cleaned(error, self._url)).strip()
        return InputError(f"{self._source} cannot be read: {text}; {to_do}")

    def _confirmed(self) -> int | None:
        """Where the slot is in the log; None if there is none."""
        sql = "select confirmed_flush_lsn - '0/0', plugin, database = current_database() from pg_replication_slots"
        found = self._ask(f"{sql} where slot_name = %s", self._slot)
        if not found:
            return None
        place, plugin, here = found[0]
        if plugin != "pgoutput" or not here:
            raise InputError(
                f"{self._source}: the slot is of the plugin {plugin}, or of another database; take another"
            )
        return int(place)

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        if self._changes is None:
            self._move_slot()
            self._changes = self._taken()
        found = list(islice(self._changes, items_max))
        if not found:
            self._changes = None
            if not self._had_any and not self._live:
                return None
            if not self._had_any:
                self._closed.wait(min(wait_s, _POLL_S))
        return Fetched([change for change, _ in found], [mark for _, mark in found])

    def _taken(self) -> Generator[tuple[Change, tuple[int, int]], None, None]:
        """Further changes from the copy of the slot, whole transactions."""
        import psycopg

        if not self._ask("select 1 from pg_replication_slots where slot_name = %s", self._copy):
            self._ask("select pg_copy_logical_replication_slot(%s, %s, true)", self._slot, self._copy)
            self._advance(self._copy, self._returned[0])
        options = "'proto_version', '1', 'publication_names', %s"
        sql = f"select data from pg_logical_slot_get_binary_changes(%s, %s, %s, {options})"
        # asked before the types: what comes behind may be of types that come behind
        end = self._ask("select pg_current_wal_lsn()")[0][0] if self._live else _place(self._end)
        bases = dict(self._ask("select oid::int8, typbasetype::int8 from pg_type where typtype = 'd'"))
        messages, self._had_any = Messages(bases), False
        commit, number = self._returned
        with self._connection.cursor() as cursor:
            try:
                name = '"' + self._publication.replace('"', '""') + '"'
                for (data,) in cursor.stream(sql.encode(), (self._copy, end, _AT_ONCE, name)):
                    self._had_any = True
                    for change in messages.read(data):
                        mark = change.commit, change.number + 1
                        if mark > (commit, number):
                            yield change, mark
            except psycopg.Error as error:
                raise self._unreadable(error, "run again: it goes on where it was") from None

    def drop_below(self, position: Any) -> None:
        """The thread that fetches moves the slot."""
        self._needed = position["commit"]

    def _move_slot(self) -> None:
        needed = self._needed
        if needed is not None and needed > (self._confirmed() or needed):
            self._advance(self._slot, needed)

    def _advance(self, slot: str, place: int) -> None:
        sql = "select pg_replication_slot_advance(slot_name, greatest(%s::pg_lsn, confirmed_flush_lsn))"
        self._ask(f"{sql} from pg_replication_slots where slot_name = %s", _place(place), slot)

    def behind(self, marks: Sequence[Any]) -> None:
        self._returned = marks[-1]

    def position(self) -> Any:
        commit, number = self._returned
        return position_of("postgres changes", commit=commit, number=number, end=self._lasting_end, server=self._server)

    def seek(self, position: Any) -> None:
        """A reading that ends does so where it would have ended."""
        fields = "commit", "number", "end"
        commit, number, end = position_fields(position, "postgres changes", self._source, *fields)
        confirmed, now = self._confirmed(), ""
        if position.get("server", self._server) != self._server:
            now = "it is another server, whose log has other places"
        elif confirmed is None:
            now = "there is no such slot"
        elif confirmed > commit:
            now = f"its slot is at {_place(confirmed)}"
        elif commit > self._end:  # the server was restored with older data
            now = f"its log ends at {_place(self._end)}"
        if now:
            raise position_lost(self._source, f"the commit at {_place(commit)}", now)
        self._returned = commit, number
        self._end = self._end if end is None else end
        self._lasting_end = None if self._live else self._end

    def end_anew(self) -> None:
        self._end, self._lasting_end = self._present_end, None

    def location(self, mark: Any) -> str:
        return f"{self._source}, commit at {_place(mark[0])}, change {mark[1]}"

    def close(self) -> None:
        self._closed.set()
        if self._changes is not None:
            self._changes.close()
        try:
            self._move_slot()
            dropped = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
            self._ask(dropped, self._copy)
        except InputError as error:  # the next run moves it, and the server drops the copy with the connection
            _LOG.warning("%s; until a run has moved its slot, the server keeps its log", error)
        finally:
            self._connection.close()


def _place(number: int) -> str:
    """A place in the log, as Postgres writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
