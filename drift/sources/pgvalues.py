"""How values of Postgres come to Python.

Invariant: a value is the same Python value whatever the server, the role, the environment and the URL have set, through
queries and through changes; one that Python has no equal for is an error, never another value.

Why: each setting by which Postgres writes or computes a value otherwise is set when a connection is made. Intervals are
read here: psycopg makes 30 days of a month, 365 of a year and nothing of 'infinity', and reads none of changes, which
have no connection. JSON is read as that of files is: psycopg takes the last of two equal keys, and infinity for 1e400.
Addresses and ranges, of which psycopg makes objects that are no payloads, are texts, as are all types that it does not
know.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    from psycopg.adapt import AdaptersMap

_SETTINGS = (
    "set timezone = 'UTC'; set datestyle = 'ISO, MDY'; set intervalstyle = 'postgres'; set bytea_output = 'hex'; "
    "set extra_float_digits = 3; set client_encoding = 'UTF8'; set lc_monetary = 'C'; set lc_time = 'C'; "
    "set lc_numeric = 'C'; set xmlbinary = 'base64'; set xmloption = 'content'"
)
#: As `intervalstyle = 'postgres'` writes them.
_INTERVAL = re.compile(r"(?=.)(?:([-+]?\d+) days? ?)?(?:([-+]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")


_AS_TEXT = (
    "inet", "cidr", "int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange", "int4multirange",
    "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange",
)  # fmt: skip


def connected(url: str) -> psycopg.Connection[Any]:
    """A connection whose values are read so; without transactions."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True, context=_Context())
    try:
        connection.execute(_SETTINGS)
    except BaseException:
        connection.close()
        raise
    return connection


class _Context:
    """What psycopg adapts values by."""

    def __init__(self) -> None:
        self.adapters = _adapters()
        self.connection = None


@cache
def _adapters() -> AdaptersMap:
    import psycopg
    from psycopg.adapt import AdaptersMap, Loader
    from psycopg.types.string import TextLoader

    from drift.sources.json_values import NO_JSON, Values, why_none

    json = Values()

    class Json(Loader):
        def load(self, data: Any) -> Any:
            try:
                return json(bytes(data))
            except NO_JSON as error:
                raise psycopg.DataError(why_none(error, bytes(data))) from None

    class Interval(Loader):
        def load(self, data: Any) -> timedelta:
            text = bytes(data).decode()
            found = _INTERVAL.fullmatch(text)
            if found is None:
                why = "has months or years, which are" if "mon" in text or "year" in text else "is"
                raise psycopg.DataError(
                    f"the interval {text!r} {why} no fixed number of days; select it as text, or its parts: "
                    f"extract(year from ...)"
                )
            days, sign, hours, minutes, seconds, digits = found.groups("0")
            time = timedelta(
                hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=int(digits.ljust(6, "0"))
            )
            return timedelta(days=int(days)) + (-time if sign == "-" else time)

    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("interval", Interval)
    for name in ("json", "jsonb"):
        adapters.register_loader(name, Json)
    for name in _AS_TEXT:
        adapters.register_loader(name, TextLoader)
    return adapters


class Values:
    """Values from the texts in which Postgres writes them, where these settings hold."""

    def __init__(self) -> None:
        from psycopg.adapt import Transformer

        self._loaders = Transformer(_Context())

    def load(self, number: int, data: bytes) -> Any:
        """The value of a text. `number`: of the type. Raises ValueError: Python has no such value."""
        import psycopg
        from psycopg.pq import Format

        try:
            return self._loaders.get_loader(number, Format.TEXT).load(data)
        except (psycopg.DataError, ValueError, OverflowError) as error:
            known = psycopg.adapters.types.get(number)
            kind = f"type {number}" if known is None else known.name
            raise ValueError(f"{data.decode()!r:.80} of {kind} is no value of Python: {error}") from None
