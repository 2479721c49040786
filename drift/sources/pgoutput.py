"""What Postgres sends of its changes: the messages of its plugin pgoutput, version 1.

Invariant: changes are given in the order in which they were made, transactions in the order of their commits; a value
is that of its column, by its type as psycopg reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_EPOCH_MS = 946_684_800_000  # 2000-01-01, from which Postgres counts
_OF_OTHER_KINDS = b"YOM"  # types, origins, messages


class Change(NamedTuple):
    """A change that is not decoded yet.

    Attributes:
        commit: where the commit of its transaction is in the log.
        number: of the change in its transaction, from 0.
        time: of the commit, in milliseconds.
        old, new: the values of a row before and after it, for each column as (kind, bytes).
        only_key: whether of the old row only the key is known.
    """

    commit: int
    number: int
    time: int
    op: str
    table: Table
    old: list[tuple[str, bytes]] | None = None
    new: list[tuple[str, bytes]] | None = None
    only_key: bool = False


class Table(NamedTuple):
    """Attributes:
    name: with its schema.
    columns: names, numbers of types, and whether they are of the key by which rows are known.
    """

    name: str
    columns: list[tuple[str, int, bool]]


class Messages:
    """Reads messages one after the other, and remembers what they say of the tables.

    Args:
        bases: for each type that is a domain the one that it is over, by their numbers.
    """

    def __init__(self, bases: Mapping[int, int]) -> None:
        self._bases = bases
        self._tables: dict[int, Table] = {}
        self._commit = self._time = self._number = 0

    def read(self, data: bytes) -> Iterator[Change]:
        """The changes of a message: none, one, or one for each table that was truncated.

        Raises:
            ValueError: the message is of a kind that is not known.
        """
        message = _Message(data)
        kind = chr(message.take("B"))
        if kind == "B":
            self._commit, micros, _ = message.take_all("qqi")
            self._time, self._number = _EPOCH_MS + micros // 1000, 0
        elif kind == "R":
            number = message.take("I")
            name = f"{message.text()}.{message.text()}"
            message.take("B")
            columns = []
            for _ in range(message.take("H")):
                is_key = bool(message.take("B") & 1)
                column, type_number, _ = message.text(), *message.take_all("Ii")
                while type_number in self._bases:
                    type_number = self._bases[type_number]
                columns.append((column, type_number, is_key))
            self._tables[number] = Table(name, columns)
        elif kind == "T":
            count, _ = message.take_all("IB")
            for table in [self._tables[message.take("I")] for _ in range(count)]:
                yield self._change("truncate", table)
        elif kind in "IUD":
            table = self._tables[message.take("I")]
            rows: dict[str, list[tuple[str, bytes]]] = {}
            while message.has_more:
                which = chr(message.take("B"))
                rows[which] = message.row()
            op, old = {"I": "insert", "U": "update", "D": "delete"}[kind], rows.get("O", rows.get("K"))
            yield self._change(op, table, old=old, new=rows.get("N"), only_key="K" in rows)
        elif kind != "C" and kind.encode() not in _OF_OTHER_KINDS:
            raise ValueError(f"a message of pgoutput begins with {data[:20]!r}")

    def _change(self, op: str, table: Table, **more: Any) -> Change:
        change = Change(self._commit, self._number, self._time, op, table, **more)
        self._number += 1
        return change


class _Message:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def take_all(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return found

    def take(self, form: str) -> Any:
        return self.take_all(form)[0]

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found, self._at = self._data[self._at : end].decode(), end + 1
        return found

    def row(self) -> list[tuple[str, bytes]]:
        found = []
        for _ in range(self.take("H")):
            kind = chr(self.take("B"))
            size = self.take("I") if kind == "t" else 0
            found.append((kind, self._data[self._at : self._at + size]))
            self._at += size
        return found


def payload_of(change: Change, load: Callable[[int, bytes], Any]) -> dict[str, Any]:
    """What a change is to a graph.

    Args:
        load: from the number of a type and its text in the database a value.

    Raises:
        ValueError: Python has no value for it.
    """
    columns = change.table.columns

    def values(row: list[tuple[str, bytes]] | None, *, only_key: bool = False) -> dict[str, Any] | None:
        if row is None:
            return None
        found: dict[str, Any] = {}
        for (name, number, is_key), (kind, data) in zip(columns, row):
            if kind != "u" and (is_key or not only_key):
                try:
                    found[name] = None if kind == "n" else load(number, data)
                except ValueError as error:
                    raise ValueError(f"column {name!r} of {change.table.name}: {error}") from None
        return found

    old, new = values(change.old, only_key=change.only_key), values(change.new)
    if new is not None and old is not None:  # a long value that did not change is not sent again
        new = {name: new[name] if name in new else old[name] for name, *_ in columns if name in new or name in old}
    return {"op": change.op, "table": change.table.name, "time": change.time, "row": new, "old": old}
