"""Files wherever they are: on this machine, or behind a URL, in an object store or on a web server.

Invariant: a path of this machine goes straight to the operating system, a URL to fsspec; whatever fails is an OSError.
What is read of an object is of one content, or reading fails.

Why: fsspec asks an object store for the ETag that it has opened. Who reads compares it at the end, and when it goes on.
A web server may replace a file between two requests: a part is given only once the server says, after the part, that
the file still has the strong ETag that it was opened with; a file without one is taken with a single request.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from drift.extras import need
from drift.urls import cleaned, without_secrets
from drift_graph.errors import InputError, SettingsError

_REQUEST_BYTES = 1 << 23  # of an object, read at once
_BUFFER_BYTES = 1 << 18
_REPLACED = "it was replaced or removed while it was read; run again, from the beginning if it is another file now"
_SILENT_S = 60.0  # a web server may be, in the middle of a file
_HIDDEN = (".", "_")
_ONE_FILE = ("http", "https")  # servers that list nothing, and whose URLs may have a question mark
_LOCAL = "file://"
_EFFECTIVE = os.access in os.supports_effective_ids

Result = TypeVar("Result")


def found_at(path: str | os.PathLike[str]) -> Literal["file", "folder", "other", ""]:
    """What is at a path of this machine; "" if nothing is, or if one may not look there: then reading it says why."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return ""
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def _check_open(pattern: str) -> None:
    """Raises PermissionError: one may not look into a folder that a pattern has; `glob` takes it for an empty one."""
    parts = Path(pattern).parts
    first = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    for at in range(first, len(parts)):
        needed = os.R_OK | os.X_OK if glob.has_magic(parts[at]) else os.X_OK
        for folder in glob.glob(str(Path(*parts[:at])), recursive=True):  # noqa: PTH207
            if found_at(folder) == "folder" and not os.access(folder, needed, effective_ids=_EFFECTIVE):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


class Stat(NamedTuple):
    """A file as it is now.

    Attributes:
        size: in bytes.
        identity: differs between two files that are there one after the other under one name.
        etag: of an object: names its content; "" if that is not known.
    """

    size: int
    identity: str
    etag: str = ""


class Opened(NamedTuple):
    """A file that is read.

    Attributes:
        file: with peek, read1, seek and tell.
        size: in bytes; 0 if it is not known.
        pipe: the descriptor, if it is a pipe or a device.
    """

    file: Any
    size: int
    etag: str = ""
    pipe: int | None = None


class Storage(Protocol):
    """Where files are.

    Attributes:
        remote: whether it is behind a URL: files there are complete when they appear, and never change in place.
    """

    remote: bool

    def open(self, path: str) -> Opened:
        """A file, or standard input: "-".

        Raises:
            AttributeError: there is no standard input, or it has no bytes.
            OSError: it cannot be opened.
        """

    def stat(self, path: str) -> Stat | None:
        """None if there is no such file. Raises OSError: that is not known."""

    def is_folder(self, path: str) -> bool: ...

    def is_pattern(self, path: str) -> bool:
        """Whether it stands for files that match it."""

    def find(self, path: str) -> list[str]:
        """The files in a folder (except hidden ones), or those that match a pattern, in no order."""

    def all_in(self, folder: str) -> list[str]:
        """The names of all files in a folder, however deep, relative to it. Raises OSError: they cannot be listed."""

    def put(self, file: Path, path: str) -> None:
        """Put a file of this machine to its place, durable and as a whole or not at all, in place of what is there.

        Raises:
            OSError: it may be there or not.
        """

    def remove(self, path: str) -> None:
        """Remove a file for good. Raises OSError: it may be there or not."""


def is_named(storage: Storage, path: str, file: Path) -> bool:
    """Whether a path names a file of this machine, which may not be there yet: as it is, its folder, or a pattern."""
    if storage.remote or path == "-":
        return False
    named = Path(path).resolve()
    if storage.is_pattern(path):
        return fnmatch(str(file), str(named)) and ("**" in path or len(file.parts) == len(named.parts))
    return named in (file, file.parent)


class Local:
    """The files of this machine."""

    remote = False

    def open(self, path: str) -> Opened:
        file = sys.stdin.buffer if path == "-" else Path(path).open("rb")  # noqa: SIM115
        try:
            number = file.fileno()
            found = os.fstat(number)
        except (OSError, AttributeError):  # standard input may be replaced by something without a descriptor
            return Opened(file, 0)
        return Opened(file, found.st_size) if stat.S_ISREG(found.st_mode) else Opened(file, 0, pipe=number)

    def stat(self, path: str) -> Stat | None:
        try:
            found = Path(path).stat()
        except OSError:
            return None
        return Stat(found.st_size, f"{found.st_dev}:{found.st_ino}")

    def is_folder(self, path: str) -> bool:
        return found_at(path) == "folder"

    def is_pattern(self, path: str) -> bool:
        return glob.has_magic(path) and not found_at(path)

    def find(self, path: str) -> list[str]:
        if self.is_folder(path):
            seen = (each for each in Path(path).iterdir() if not each.name.startswith(_HIDDEN))
            return [str(each) for each in seen if found_at(each) == "file"]
        _check_open(path)
        return [each for each in glob.glob(path, recursive=True) if found_at(each) == "file"]  # noqa: PTH207

    def all_in(self, folder: str) -> list[str]:
        found: list[str] = []
        for inside, _, names in os.walk(folder, onerror=_raise):
            found += [str(Path(inside, name).relative_to(folder)) for name in names]
        return found

    def put(self, file: Path, path: str) -> None:
        sync(file)
        folder = Path(path).parent
        new = [each for each in (folder, *folder.parents) if not found_at(each)]
        folder.mkdir(parents=True, exist_ok=True)
        file.rename(path)
        for each in (folder, *(made.parent for made in new)):
            sync(each)

    def remove(self, path: str) -> None:
        Path(path).unlink()
        sync(Path(path).parent)


def _raise(error: OSError) -> None:
    raise error


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_safely(path: Path, data: bytes) -> None:
    """Replace a file in one step: after a crash the old file or the new one is there, complete."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


class Remote:
    """What fsspec knows under the scheme of a URL.

    Args:
        url: some URL of it.
        options: for the class of fsspec, for instance {"endpoint_url": ...}.

    Raises:
        SettingsError: fsspec, or what it needs for the scheme, is not installed, or the scheme is unknown.
    """

    remote = True

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        need("cloud", without_secrets(url))
        import fsspec

        self._scheme = url.partition("://")[0]
        self._options = {**(options or {})}
        try:
            fsspec.get_filesystem_class(self._scheme)
        except (ImportError, ValueError) as error:
            raise SettingsError(f"{without_secrets(url)} cannot be reached: {error}") from None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "files"}

    @cached_property
    def files(self) -> Any:
        """The filesystem of fsspec, which keeps no listings: what others write is seen."""
        import fsspec

        return fsspec.filesystem(self._scheme, use_listings_cache=False, **self._options)

    def open(self, path: str) -> Opened:
        if self._scheme in _ONE_FILE:
            return self._open_page(path)
        file = asked(path, lambda: self.files.open(path, "rb", block_size=_REQUEST_BYTES))
        known = getattr(file, "details", None) or {}
        return Opened(io.BufferedReader(_Object(path, file), _BUFFER_BYTES), known.get("size") or 0, _etag(known))

    def _open_page(self, path: str) -> Opened:
        """A file of a web server: by parts, if each can be told to be of the same content, else all of it now."""
        info = asked(path, lambda: self.files.info(path))
        etag, size = _etag(info), info["size"] or 0
        if not etag or not size or not info.get("partial", True):
            return self._open_copy(path)

        def fetch(start: int, end: int) -> bytes:
            data: bytes = asked(path, lambda: self.files.cat_file(path, start=start, end=end))
            now = self.stat(path)
            if now is None or now.etag != etag or len(data) != end - start:
                raise OSError(errno.ESTALE, _REPLACED, without_secrets(path))
            return data

        return Opened(io.BufferedReader(_Page(size, fetch), _BUFFER_BYTES), size)

    def _open_copy(self, path: str) -> Opened:
        import aiohttp

        unlimited = aiohttp.ClientTimeout(total=None, sock_read=_SILENT_S)  # for all of it; between two pieces of it
        copy = tempfile.TemporaryFile(buffering=_BUFFER_BYTES)  # noqa: SIM115 (who reads closes it)
        try:
            # with a size it is not asked for the file's, by a call that has a `timeout` of its own
            file = asked(path, lambda: self.files.open(path, "rb", block_size=0, size=1, timeout=unlimited))
            try:
                while data := asked(path, lambda: file.read(_BUFFER_BYTES)):
                    copy.write(data)
            finally:
                file.close()
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return Opened(copy, os.fstat(copy.fileno()).st_size)

    def stat(self, path: str) -> Stat | None:
        try:
            found = asked(path, lambda: self.files.info(path))
        except FileNotFoundError:
            return None
        if found["type"] != "file":
            return None
        etag = _etag(found)
        return Stat(found["size"] or 0, etag or str(found.get("created") or found.get("mtime") or ""), etag)

    def is_folder(self, path: str) -> bool:
        if self._scheme in _ONE_FILE:
            return False
        try:
            return path.endswith("/") or asked(path, lambda: self.files.info(path))["type"] == "directory"
        except FileNotFoundError:
            return False

    def is_pattern(self, path: str) -> bool:
        return self._scheme not in _ONE_FILE and glob.has_magic(path)

    def find(self, path: str) -> list[str]:
        def found() -> list[str]:
            files = self.files
            name = files._strip_protocol(path)
            if not self.is_pattern(path):
                listed = self._in(name, 1)
                return [each for each in listed if not _name(each).startswith(_HIDDEN)]
            from fsspec.utils import glob_translate

            folders = name.split("/")
            fixed = next(at for at, part in enumerate(folders) if glob.has_magic(part))
            depth = None if "**" in name else len(folders) - fixed
            matches = re.compile(glob_translate(name)).match
            listed = [each for each in self._in("/".join(folders[:fixed]), depth) if matches(each)]
            # as in a folder of this machine, where a pattern matches no hidden names
            return listed if "/." in path else [each for each in listed if "/." not in each]

        try:
            return [self.files.unstrip_protocol(each) for each in asked(path, found)]
        except FileNotFoundError:
            return []

    def _in(self, folder: str, depth: int | None) -> list[str]:
        """The names of the objects in a folder, however deep, or in so many folders below each other.

        Why: `glob` and `find` of fsspec leave out folders that cannot be listed.
        """
        found = []
        for each in self.files.ls(folder, detail=True):
            name = each["name"].rstrip("/")
            if each["type"] == "file":
                found.append(name)
            elif depth != 1 and name != folder:
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    found += self._in(name, depth and depth - 1)
        return found

    def all_in(self, folder: str) -> list[str]:
        from fsspec.asyn import AsyncFileSystem

        def found() -> list[str]:
            of_store = getattr(type(self.files), "_find", AsyncFileSystem._find)
            if of_store is not AsyncFileSystem._find:  # an object store, which lists them all at once
                return list(self.files.find(inside))
            with suppress(FileNotFoundError):  # there is no such folder yet
                return self._in(inside, None)
            return []

        inside = self.files._strip_protocol(folder)
        return [name[len(inside) + 1 :] for name in asked(folder, found)]

    def put(self, file: Path, path: str) -> None:
        asked(path, lambda: self.files.put_file(str(file), path))

    def remove(self, path: str) -> None:
        asked(path, lambda: self.files.rm_file(path))


class _Read(io.RawIOBase):
    """A file that is read, from any place."""

    def readable(self) -> bool:
        return True

    seekable = readable


class _Object(_Read):
    """An object of fsspec, whose errors are OSErrors."""

    def __init__(self, path: str, file: Any) -> None:
        self._path = path
        self._file = file

    def readinto(self, buffer: Any) -> int:
        data = asked(self._path, lambda: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(asked(self._path, lambda: self._file.seek(offset, whence) or self._file.tell()))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _Page(_Read):
    """A file of so many bytes that is read by parts. `fetch`: the bytes from one place to another one."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._fetch = fetch
        self._at = 0
        self._part, self._part_at = b"", 0  # what was fetched last, and where that begins

    def readinto(self, buffer: Any) -> int:
        if not self._part_at <= self._at < self._part_at + len(self._part):
            end = min(self._at + max(len(buffer), _REQUEST_BYTES), self._size)
            self._part, self._part_at = self._fetch(self._at, end) if self._at < end else b"", self._at
        begin = self._at - self._part_at
        data = self._part[begin : begin + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def tell(self) -> int:
        return self._at


def is_url(path: str) -> bool:
    """Whether a path is that of an object, and not of a file of this machine."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.isalnum() and scheme != "file"


def storage_of(path: str, options: Mapping[str, Any] | None = None) -> tuple[Storage, str]:
    """Where the files of a path are, and the path there.

    Raises:
        SettingsError: as of `Remote`; or there are options for files of this machine.
    """
    if is_url(path):
        return Remote(path, options), path
    if options:
        raise SettingsError(f"storage_options= is for URLs such as s3://BUCKET/NAME, and {path!r:.80} is a local path")
    return Local(), path.removeprefix(_LOCAL)


class Files:
    """The files that a path names: itself, those in a folder, or those that match a pattern.

    Attributes:
        one: whether it names itself.
        folder: their common one, to which the names of files are relative.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage = storage
        self.path = path
        is_folder = storage.is_folder(path)
        self.one = not is_folder and not storage.is_pattern(path)
        parts = path.rstrip("/").split("/") if storage.remote else list(Path(path).parts)
        if not is_folder:
            parts = parts[: -1 if self.one else next(at for at, part in enumerate(parts) if glob.has_magic(part))]
        self.folder = "/".join(parts) if storage.remote else str(Path(*parts))
        self._start = "" if self.folder == "." else f"{self.folder.rstrip('/')}/"

    def names(self) -> list[str]:
        """The names of those that are there, in order; of a file itself also where it is not there.

        Raises:
            InputError: they cannot be listed.
        """
        try:
            found = [self.path] if self.one else self.storage.find(self.path)
        except OSError as error:
            raise InputError(f"{self.path} cannot be listed: {error.strerror}; check the path") from None
        return sorted(map(self._inside, found))

    def path_of(self, name: str) -> str:
        return self._start + name

    def stat(self, name: str) -> Stat | None:
        """Raises InputError: that is not known."""
        path = self.path_of(name)
        try:
            return self.storage.stat(path)
        except OSError as error:
            shown = without_secrets(path)
            raise InputError(f"it is not known whether {shown} is still there: {error.strerror}; run again") from None

    def _inside(self, path: str) -> str:
        return path[len(self._start) :] if self.storage.remote else Path(path).relative_to(self.folder).as_posix()


def asked(path: str, call: Callable[[], Result]) -> Result:
    """What a library of an object store returns. Raises OSError: it did not; libraries raise whatever they like."""
    try:
        return call()
    except Exception as error:
        shown, refusal = without_secrets(path), _refusal(error)
        if isinstance(error, FileNotFoundError) and refusal is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown) from error
        failed = refusal or error
        text = without_secrets(str(getattr(cleaned(failed), "strerror", None) or failed) or type(failed).__name__)
        number = getattr(failed, "errno", None) or errno.EIO
        raise OSError(number, text, shown) from error


def _refusal(error: Exception) -> BaseException | None:
    """Why a server did not say whether there is a file: fsspec says of that, too, that there is none."""
    why = error.__cause__ if isinstance(error, FileNotFoundError) else None
    is_refused = isinstance(why, OSError) or getattr(why, "status", 404) not in (404, 410)
    return why if is_refused and not isinstance(why, FileNotFoundError) else None


def _etag(found: Mapping[str, Any]) -> str:
    """The strong ETag of an object; "" if there is none."""
    etag = str(found.get("ETag") or found.get("etag") or "")
    return "" if etag.startswith("W/") else etag.strip('"')


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
