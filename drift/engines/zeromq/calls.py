"""Calls of users' functions in a process: which one it is in, and which one it was in when it died.

Invariant: the file of a watched process has the call that it is in, from before the first line of the function until
after its last; and a call that was refused raises `EndsItsProcess` before its first line.

Why: a profiler's hook is called at both ends of each call, and what it writes into mapped memory outlives the process.
Only who takes the place of one that has died again and again is watched, since the hook costs more than most functions.
"""

from __future__ import annotations

import mmap
import pickle
import struct
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import xxhash

from drift.machines.nodes.recovery import Call
from drift_graph.canonical import NoCanonicalForm, stored
from drift_graph.failures import EndsItsProcess
from drift_graph.functions import is_ours, safe_text

_FILE_BYTES = 4096
_TEXT_CHARACTERS_MAX, _SHORT_MAX = 500, 400  # of one argument; of all where they do not fit
_length = struct.Struct(">I")
#: Modules of ours that call users' functions, and not something that calls them (to pickle something, say).
_CALLERS = (
    "drift.machines.", "drift.purity.", "drift.engines.by_value", "drift.flow.", "drift.operators", "drift.diverting",
    "drift_graph.operators",
)  # fmt: skip


def is_called_by_us(frame: FrameType) -> bool:
    """Whether a frame is a user's function that this library has called."""
    caller, code = frame.f_back, frame.f_code
    if caller is None or is_ours(code.co_filename):
        return False
    if code.co_filename == "<string>" and (code.co_varnames[:1] == ("_cls",) or code.co_name == "__init__"):
        return False  # what Python makes for named tuples and dataclasses
    return str(caller.f_globals.get("__name__")).startswith(_CALLERS)


def call_of(frame: FrameType) -> Call:
    """The call that a frame is of, at its beginning."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    given = tuple(frame.f_locals[name] for name in code.co_varnames[:count] if name in frame.f_locals)
    text = ", ".join(safe_text(repr, each, _TEXT_CHARACTERS_MAX) for each in given)
    place = f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    try:
        form = stored(given)
    except NoCanonicalForm:
        form = text.encode(errors="replace")
    return Call(place, text, xxhash.xxh3_128_digest(place.encode(errors="replace") + b"\0" + form))


class Watch:
    """Writes down the calls of this process.

    Args:
        path: of the file.
        refused: identities of calls that are not to be made, and why.
    """

    def __init__(self, path: Path, refused: dict[bytes, str]) -> None:
        with path.open("w+b") as file:
            file.truncate(_FILE_BYTES)
            self._written = mmap.mmap(file.fileno(), _FILE_BYTES)
        self._refused = refused
        self._frame: FrameType | None = None

    def begin(self) -> None:
        """From now on, in this thread."""
        sys.setprofile(self._hook)
        sys.settrace(self._again)

    def end(self) -> None:
        """Of watching."""
        sys.settrace(None)
        sys.setprofile(None)
        self._written[: _length.size] = _length.pack(0)

    def _again(self, frame: FrameType, event: str, arg: Any) -> None:
        """Python lets go of a hook that raises; and what was refused may be called again at once."""
        if sys.getprofile() is None:
            sys.setprofile(self._hook)

    def _hook(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "return" and frame is self._frame:
            self._written[: _length.size] = _length.pack(0)
            self._frame = None
        elif event == "call" and self._frame is None and is_called_by_us(frame):
            self._note(frame)

    def _note(self, frame: FrameType) -> None:
        call = call_of(frame)
        why = self._refused.get(call.identity)
        if why is not None:
            raise EndsItsProcess(why)
        self._frame = frame
        data = pickle.dumps(tuple(call), 5)
        if len(data) > _FILE_BYTES - _length.size:
            data = pickle.dumps((call.place[-_SHORT_MAX:], call.given[:_SHORT_MAX], call.identity), 5)
        end = _length.size + len(data)
        self._written[_length.size : end] = data
        self._written[: _length.size] = _length.pack(len(data))


def last_call(path: Path) -> Call | None:
    """The call that a process was in when it died, where it was watched and in one."""
    try:
        data = path.read_bytes()
        path.unlink()
    except FileNotFoundError:
        return None
    (length,) = _length.unpack_from(data)
    return Call(*pickle.loads(data[_length.size : _length.size + length])) if length else None
