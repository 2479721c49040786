"""What a run and a `drift worker` on another machine say to each other, and the key that both have.

Invariant: without the key nobody is heard, and nothing that was sent without it is decoded.

Why: both sides are CURVE sockets, with the one pair of the key file for themselves and for the other; ZeroMQ drops the
connection of a peer that has another. Inside are pickles, so whoever has the key may run what they like on every
machine of the run.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import msgspec
import zmq

from drift_graph.errors import SettingsError

#: Raised with each change of the messages, so that two versions of drift do not misunderstand each other.
PROTOCOL = 2
_KEY_CHARACTERS = 40  # 32 bytes in Z85


class Join(msgspec.Struct, tag=True):
    """To the run, first: a machine that offers to run a process.

    Attributes:
        host: name of the machine.
    """

    protocol: int
    host: str
    environment: dict[str, Any]


class Wrote(msgspec.Struct, tag=True):
    """To the run: a message of process `number` of this machine."""

    number: int
    body: bytes


class Gone(msgspec.Struct, tag=True):
    """To the run: process `number` has ended; the files say in which call, if that was watched."""

    number: int
    how: str
    files: dict[str, bytes]


class Start(msgspec.Struct, tag=True):
    """From the run: start a process; its number is new among those of the machine."""

    number: int
    title: str


class Write(msgspec.Struct, tag=True):
    """From the run: a message to a process."""

    number: int
    body: bytes


class File(msgspec.Struct, tag=True):
    """From the run: the next part of a file for the folder of a process; the first part makes the file."""

    number: int
    name: str
    is_first: bool
    data: bytes


class Kill(msgspec.Struct, tag=True):
    """From the run: kill a process."""

    number: int
    reason: str


class Ping(msgspec.Struct, tag=True):
    """From the run: nothing, by which it notices that the machine cannot be reached."""


class Stop(msgspec.Struct, tag=True):
    """From the run: leave it, since it is over, or since this machine cannot take part (`refused`)."""

    reason: str
    refused: bool = False


ToRun = Join | Wrote | Gone
FromRun = Start | Write | File | Kill | Ping | Stop
encode = msgspec.msgpack.Encoder().encode
decode_to_run = msgspec.msgpack.Decoder(ToRun).decode
decode_from_run = msgspec.msgpack.Decoder(FromRun).decode


class Key(NamedTuple):
    """A CURVE pair."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "Key(...)"


def write_new_key(path: Path) -> None:
    """Make a key, in a new file that only this user may read. Raises SettingsError: it cannot be written, or exists."""
    _, secret = zmq.curve_keypair()
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret + b"\n")
    except OSError as error:
        raise SettingsError(f"the key {path} cannot be written: {error.strerror}") from error


def key_of(path: Path) -> Key:
    """The key in a file. Raises SettingsError: it cannot be read, others may read it, or it is no key."""
    try:
        text, mode = path.read_bytes().strip(), path.stat().st_mode
    except OSError as error:
        raise SettingsError(
            f"the key {path} cannot be read: {error.strerror}; `drift key {quote(str(path))}` makes one, for all "
            f"machines of a run"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SettingsError(
            f"the key {path} may be read by others on this machine (mode {stat.S_IMODE(mode):o}), and whoever has it "
            f"may run anything as you: chmod 600 {path}, or make a new one"
        )
    try:
        if len(text) != _KEY_CHARACTERS:
            raise ValueError
        return Key(zmq.curve_public(text), text)
    except (ValueError, zmq.ZMQError):
        raise SettingsError(f"{path} is no key: `drift key FILE` makes one") from None
