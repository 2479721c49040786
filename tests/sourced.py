"""Reading sources as an engine does: waiting only on what they say they can be waited for on."""

from __future__ import annotations

import select
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG_S

from drift import InputError
from drift.sources import Source


def drained(source: Source, items_max: int = 1000) -> tuple[list[Any], Exception | None]:
    """All that a source gives, waiting only on its descriptors, and the error it ends with."""
    reader = source.open()
    received: list[Any] = []
    try:
        while True:
            try:
                batch = reader.read(items_max)
            except Exception as error:
                with pytest.raises(type(error)):
                    reader.read(items_max)  # it does not look like the end of the input the next time
                return received, error
            if batch is None:
                assert not source.live or not select.select(reader.filenos(), (), (), 0)[0], "an engine would spin"
                return received, None
            assert len(batch) <= items_max
            assert batch or source.live
            received += batch
            if not batch:
                ready, _, _ = select.select(reader.filenos(), (), (), HANG_S)
                assert ready, "the source went to sleep"
    finally:
        reader.close()


def all_of(source: Source, items_max: int = 1000) -> list[Any]:
    payloads, error = drained(source, items_max)
    assert error is None
    return payloads


def fault_of(source: Source, items_max: int = 1000) -> tuple[list[Any], str]:
    payloads, error = drained(source, items_max)
    assert isinstance(error, InputError)
    return payloads, str(error)


class temporary:
    """A file with this content; Hypothesis and tmp_path do not go together."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "data"
        path.write_bytes(self._data)
        return path

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()


def connected(source: Any) -> socket.socket:
    return socket.create_connection(source.address)


def send(address: tuple[str, int], *pieces: bytes) -> None:
    with socket.create_connection(address) as connection:
        for piece in pieces:
            connection.sendall(piece)


def in_thread(function: Callable[..., object], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    return thread
