"""How values of Postgres come to Python.

Invariant: a value is the same Python value whatever the server, the role, the environment and the URL have set, through
queries and through changes; one that Python has no equal for is an error, never another value.

Why: each setting by which Postgres writes or computes a value otherwise is set when a connection is made. psycopg makes
30 days of each month of an interval, and 365 of each year: such intervals are refused.
"""

from __future__ import annotations

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
    from psycopg.adapt import AdaptersMap
    from psycopg.types.datetime import IntervalLoader

    class Interval(IntervalLoader):
        def load(self, data: Any) -> Any:
            text = bytes(data)
            if b"mon" in text or b"year" in text:
                raise psycopg.DataError(
                    f"the interval {text.decode()!r} has months or years, which are no fixed number of days; select "
                    f"it as text, or its parts: extract(year from ...)"
                )
            return super().load(data)

    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("interval", Interval)
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
