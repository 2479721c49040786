"""Items that a table does not take, which are set apart in the table drift_errors of the same database.

Invariant: of the items up to the stored position each is in its table or in drift_errors, once; of neither anything is
lost where a run is aborted, since both are written in the transaction that stores the position.

Why: whether an item is refused depends on it and on the rows before it. A batch that is refused is halved, in order,
until the refused items are by themselves, so that it does not depend on batches either.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from drift_graph.errors import SettingsError
from drift_graph.functions import safe_text
from drift_graph.meta import time_of
from drift_graph.metas import Metas

OnError = Literal["error", "divert"]
TABLE = "drift_errors"
_COLUMNS = "sink, position, time, meta, error, payload, shown, fields, statement"
_SHOWN_CHARACTERS = 1000
_VALUE = "drift.value"
_MADE: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.datetime.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda parts: datetime.timedelta(*parts),
    "UUID": uuid.UUID,
    "tuple": lambda parts: tuple(map(_given_back, parts)),
    "dict": dict,
}


class Refused(NamedTuple):
    """An item that was refused.

    Attributes:
        error: why, in the words of the database; None once it was put in again, which a checkpoint from before does not
            know.
        payload: as JSON; None where JSON would not give it back, for instance bytes or NaN.
        shown: what is printed where there is no JSON.
        fields: the names and values for the columns, as JSON; None where the payload has no such fields. Who puts the
            item in again knows neither the names that a tuple's values have nor what a class leaves out of its JSON.
        statement: by which it was to be put in, in place of an insert.
    """

    sink: str
    position: int
    time: int
    meta: bytes
    error: str | None
    payload: str | None
    shown: str | None
    fields: str | None
    statement: str | None

    @property
    def value(self) -> Any:
        """The fields, or the payload, of which an array is a tuple. Raises ValueError: it was not stored as JSON."""
        if self.payload is None:
            raise ValueError(f"the payload was not stored as JSON, only as it is shown: {self.shown}")
        if self.fields is not None:
            return {name: _given_back(each) for name, each in json.loads(self.fields).items()}
        value = json.loads(self.payload)
        return tuple(value) if isinstance(value, list) else value


class Statements:
    """The SQL for drift_errors. `bytes_type`: of the column for a meta."""

    def __init__(self, mark: str, bytes_type: str) -> None:
        self.mark = mark
        self.create = (
            f"create table if not exists {TABLE} (sink text, position bigint, time bigint, meta {bytes_type}, "
            f"error text, payload text, shown text, fields text, statement text, primary key (sink, position))"
        )
        self.insert = f"insert into {TABLE} ({_COLUMNS}) values ({', '.join([mark] * 9)})"
        self.select_all = f"select {_COLUMNS} from {TABLE} where error is not null order by sink, position"
        self.select = f"select {_COLUMNS} from {TABLE} where sink = {mark} and error is not null order by position"
        self.explain = f"update {TABLE} set error = {mark} where sink = {mark} and position = {mark}"
        self.take = f"update {TABLE} set error = null where sink = {mark} and position = {mark}"
        self.taken = f"select position from {TABLE} where sink = {mark} and error is null"
        self.delete_all = f"delete from {TABLE} where sink = {mark}"


def check_on_error(on_error: object) -> bool:
    """Whether what is refused is set apart. Raises SettingsError: it is not valid."""
    if on_error not in get_args(OnError):
        raise SettingsError(f"on_error={on_error!r:.80} is neither 'error' nor 'divert'")
    return on_error == "divert"


def put_or_set_apart(
    put: Callable[[Sequence[int], Metas, Sequence[Any]], None],
    set_apart: Callable[[int, bytes, Any, Exception], None],
    refusals: tuple[type[Exception], ...],
    positions: Sequence[int],
    metas: Metas,
    payloads: Sequence[Any],
) -> None:
    """Put items, and set apart those that are refused.

    Args:
        put: takes items, or leaves everything as it was and raises one of the refusals.
        set_apart: takes one item, and why it was refused.
    """
    try:
        put(positions, metas, payloads)
    except refusals as error:
        if len(positions) == 1:
            set_apart(positions[0], metas[0], payloads[0], error)
            return
        half = len(positions) // 2
        for part in (slice(half), slice(half, None)):
            put_or_set_apart(put, set_apart, refusals, positions[part], metas[part], payloads[part])


def refused_item(
    sink: str,
    position: int,
    meta: bytes,
    payload: Any,
    why: str,
    fields: dict[str, Any] | None = None,
    statement: str | None = None,
) -> Refused:
    shown = None
    as_json, of_fields = _as_json(payload), None if fields is None else _as_json(fields)
    if as_json is None:
        shown = safe_text(repr, payload, _SHOWN_CHARACTERS).encode("ascii", "backslashreplace").decode()
    return Refused(sink, position, time_of(meta), meta, why, as_json, shown, of_fields, statement)


def kept(value: Any) -> Any:
    """A value of a field, so that what JSON makes of it gives it back, if a client sends it otherwise than its text:
    moments with or without a zone, lengths of time, UUIDs, and tuples, which Postgres has as rows, also within lists.
    """
    if isinstance(value, list):
        return [kept(each) for each in value]
    if isinstance(value, tuple):
        return {_VALUE: ["tuple", [kept(each) for each in value]]}
    if isinstance(value, dict) and value.keys() == {_VALUE}:
        return {_VALUE: ["dict", value]}
    if isinstance(value, datetime.timedelta):
        return {_VALUE: ["timedelta", [value.days, value.seconds, value.microseconds]]}
    if isinstance(value, datetime.datetime | datetime.time):
        return {_VALUE: ["datetime" if isinstance(value, datetime.datetime) else "time", value.isoformat()]}
    return {_VALUE: ["UUID", str(value)]} if isinstance(value, uuid.UUID) else value


def _given_back(value: Any) -> Any:
    if isinstance(value, list):
        return [_given_back(each) for each in value]
    if not isinstance(value, dict) or value.keys() != {_VALUE}:
        return value
    kind, found = value[_VALUE]
    return _MADE[kind](found)


def _as_json(value: Any) -> str | None:
    """None, where JSON would not give it back."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True, order="deterministic")
        return json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
