"""The law of files: whatever happens to a folder, what is read of it is all that is there, once, and what is written to
it is a prefix of the output; or the reader, or the sink, has said what is wrong.

What happens is drawn, event by event: a writer appends, begins a file, replaces, shortens or writes over one; a reader
reads, dies and comes again; a disk is full at any byte, a process is killed at any byte of a write.
"""

from __future__ import annotations

import errno
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drift import InputError, SinkError, sinks, sources
from drift.sinks.base import Committing
from drift_graph.meta import global_time
from drift_graph.metas import Metas

texts = st.text(st.sampled_from("ab\n"), min_size=1, max_size=8)


class Folder:
    """A folder, and what was written to it, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, str] = {}

    def write(self, name: str, text: str, mode: str = "w") -> None:
        with (self.path / name).open(mode) as file:
            file.write(text)
        self.content[name] = (self.content.get(name, "") if mode == "a" else "") + text

    def replace(self, name: str, text: str) -> None:
        (self.path / f".{name}").write_text(text)
        (self.path / f".{name}").rename(self.path / name)
        self.content[name] = text

    def lines(self, *, grows: bool) -> list[str]:
        """Of all files; the last line of one that grows is not there before it ends."""
        found: list[str] = []
        for name in sorted(self.content):
            *ended, last = self.content[name].split("\n")
            found += ended
            if last and not (grows and name == max(self.content)):
                found.append(last)
        return found


def happens(data: st.DataObject, folder: Folder, *, grows: bool) -> bool:
    """One thing that a writer does; whether it may."""
    last = max(folder.content)
    kind = data.draw(st.sampled_from(["append", "begin", "append", "replace", "shorten", "write over", "delete"]))
    if kind == "append" and grows:
        folder.write(last, data.draw(texts), "a")
        return True
    if kind == "append" or kind == "begin":
        folder.write(f"{int(last) + 1:03}", data.draw(texts))
        return True
    if kind == "replace":
        old = folder.content[last]
        folder.replace(last, data.draw(texts.filter(lambda text: len(text) != len(old))))
    elif kind == "shorten":
        text = folder.content[last]
        folder.write(last, text[: data.draw(st.integers(0, max(len(text) - 1, 0)))])
    elif kind == "write over":
        old = folder.content[last]
        folder.write(last, "".join("b" if each == "a" else "a" for each in old) + data.draw(texts))
    elif len(folder.content) > 1 and not grows:
        (folder.path / last).unlink()
        del folder.content[last]
    return False


@given(data=st.data(), grows=st.booleans(), chunk_bytes=st.integers(1, 9))
@settings(max_examples=2 * settings.default.max_examples)
def test_what_is_read_of_a_folder_is_all_of_it_once_or_the_reader_says_what_is_wrong(
    data: st.DataObject, grows: bool, chunk_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("drift.sources.chunks._CHUNK_BYTES", chunk_bytes)
        folder = Folder(Path(path))
        folder.write("001", data.draw(texts))
        source = sources.text(path, follow=grows)
        received: list[str] = []
        reader: Any = source.open()
        honest = True
        try:
            for _ in range(data.draw(st.integers(1, 8))):
                for _ in range(data.draw(st.integers(0, 4))):
                    received += reader.read(data.draw(st.integers(1, 3))) or []
                comes_again = data.draw(st.booleans())
                position = reader.position()
                if comes_again:
                    reader.close()
                if grows or comes_again:  # a source that is not followed is read as it was when it was opened
                    honest &= happens(data, folder, grows=grows)
                if comes_again:
                    reader = source.open()
                    reader.seek(position)
            while payloads := reader.read(3):
                received += payloads
        except InputError:
            assert not honest, "nobody did what may not be done"
        else:
            assert received == folder.lines(grows=grows)
        finally:
            reader.close()


class Killed(BaseException):
    pass


@contextmanager
def disk(room_bytes: int, *, kills: bool) -> Iterator[None]:
    """A disk with room for so many bytes, or a process that is killed when it has written them."""

    class File(io.FileIO):
        def write(self, data: Any) -> int:
            nonlocal room_bytes
            written = super().write(memoryview(data)[:room_bytes]) if room_bytes else 0
            room_bytes -= written
            if not written and len(data):
                raise Killed if kills else OSError(errno.ENOSPC, "No space left on device")
            return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "FileIO", File)
        yield


def run(path: Path, kind: str, payloads: list[Any], edges: list[int], checkpoint: Any, committed: list[Any]) -> None:
    """A run that writes these payloads, from a checkpoint on, and takes a checkpoint after each batch."""
    sink: Any = getattr(sinks, kind)(path)
    assert isinstance(sink, Committing)
    start = 0
    if checkpoint is not None:
        start, state = checkpoint
        sink.resume_at(start, state)
    metas = Metas([global_time(at, 0, 0, 0) for at in range(len(payloads))])
    try:
        sink.open()
        for end in sorted({*(edge for edge in edges if start < edge < len(payloads)), len(payloads)}):
            if end > start:
                sink.write(range(start, end), metas[start:end], payloads[start:end])
                committed.append((end, sink.commit()))
                start = end
        sink.complete()
    finally:
        sink.close()


cells = st.fixed_dictionaries({"a": st.sampled_from([1, "", None, 'x"\r\n', "y,"]), "b": st.sampled_from([None, 2.5])})


@given(data=st.data(), kind=st.sampled_from(["jsonl", "csv"]), payloads=st.lists(cells, min_size=1, max_size=8))
@settings(max_examples=2 * settings.default.max_examples)
def test_what_is_written_is_a_prefix_of_the_output_or_the_sink_says_what_is_wrong(
    data: st.DataObject, kind: str, payloads: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder, "whole"), kind, payloads, [], None, [])
        whole = Path(folder, "whole").read_bytes()
        path = Path(folder, "out")
        checkpoints: list[Any] = [None]
        untouched = True
        for _ in range(data.draw(st.integers(1, 5))):
            edges = data.draw(st.lists(st.integers(1, len(payloads)), max_size=3))
            what = data.draw(st.sampled_from(["full", "killed", "shortened", "changed"]))
            if what in ("full", "killed"):
                with disk(data.draw(st.integers(0, len(whole))), kills=what == "killed"):
                    committed: list[Any] = []
                    try:
                        run(path, kind, payloads, edges, data.draw(st.sampled_from(checkpoints)), committed)
                    except Killed:
                        pass
                    except SinkError as error:
                        assert not untouched or "No space left" in str(error)
                    checkpoints += committed
            elif path.exists() and (before := path.read_bytes()):
                at = data.draw(st.integers(0, len(before) - 1))
                path.write_bytes(before[:at] + (b"" if what == "shortened" else b"\0" + before[at + 1 :]))
                untouched = False
            if untouched and path.exists():
                assert whole.startswith(path.read_bytes())
        checkpoint = data.draw(st.sampled_from(checkpoints))
        before = path.read_bytes() if path.exists() else b""
        try:
            run(path, kind, payloads, [], checkpoint, [])
        except SinkError:
            assert not untouched and path.read_bytes() == before, "what is wrong is left as it is"
        else:
            below = 0 if checkpoint is None else checkpoint[1]["bytes"]
            assert len(before) >= below, "what is missing below the checkpoint is not computed again"
            assert path.read_bytes()[below:] == whole[below:], "without a gap, and nothing twice"
