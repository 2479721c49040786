"""Stored payloads as values for display, also of classes that are not loaded.

Invariant: nothing is imported or run; a value has the `repr` of the payload, as far as it follows from the bytes.
"""

from __future__ import annotations

from typing import Any

from drift_graph.restore import CannotRestore, Restoring, restored

_SETS = {2: "{%s}", 3: "frozenset({%s})"}
_ENUM, _FAMILIES = 12, (12, 13, 14, 15)


class _Text:
    """Something whose repr is this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def readable(data: bytes) -> Any:
    """A payload from its canonical or stored bytes; if a class is unknown, an object with its repr."""
    try:
        return restored(data)
    except CannotRestore:
        pass
    try:
        (value,) = _Showing({}).values(data)
        return value
    except Exception:  # the bytes may have been edited in any way
        return _Text(f"<{len(data)} bytes that are no payload: {data[:40].hex()}>")


class _Showing(Restoring):
    """Restores what needs no class, and formats the rest as text."""

    def _extension(self, code: int, body: bytes) -> Any:
        if code in _SETS:
            return _Text(_SETS[code] % ", ".join(map(repr, self.values(body))))
        if code not in _FAMILIES:
            return super()._extension(code, body)
        name, *rest = self.values(body)
        if code == _ENUM:
            return _Text(f"{name}.{rest[0]}" if type(rest[0]) is str else f"{name}({rest[0]})")
        pairs = [*zip(rest[:-1:2], rest[1::2]), *(rest[-1].items() if len(rest) % 2 else ())]
        return _Text(f"{name}({', '.join(f'{field}={value!r}' for field, value in pairs)})")
