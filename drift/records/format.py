"""What is in the folder of a record: its manifest, its files, and how each is checked.

Invariant: the record consists of the files that a manifest lists. They hold the input up to some moment, every
decision that depended on a clock until then, and only output that this input causes. So a manifest is a
valid record at any time, and a later one holds all of an earlier one.

Why: a file gets its name when it is complete and safe on the disk, and after that a manifest that lists it replaces the
one before, or a line of the journal adds it. One seal covers consecutive messages of the run; and a run
sends its input to the record before the output that this input causes.

    PATH/manifest.json              what ran, where, with what; the list of files; hash over itself
    PATH/manifest.log               while the record grows: what was sealed since, a line for each seal; see `journal`
    PATH/input/part-00000.parquet   every input item: batch, source, time, tie, payload
    PATH/late/...                   every item that a time policy diverted, with the reason
    PATH/arrivals/...               every batch and heartbeat of a source, with the clock's time
    PATH/answers/...                every answer of a call that was used: call, meta, answer, whether it is a failure
    PATH/output/...                 every item released: position, sink, time, tie, path, payload
    PATH/blocks/...                 of every block of 4096 items of input or output, a hash, and a check of each item;
                                    a block that was not full when it was sealed comes again

A global time is time | tie, and a meta time | tie | path; see `metas`.
Payloads are MessagePack with extensions (`drift_graph.canonical`); in `input` and `late` the entries of dicts are in
the dict's own order, since a function may go by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from drift.records.journal import Journal, read_journal
from drift_barrier.digest import Algorithm, new_hash
from drift_graph.errors import InputError

#: Of the format; a reader refuses any other. Formats 1 and 2 were before the first release.
VERSION = 3
CODEC = "canonical-msgpack-1"
MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
#: In the order in which a seal writes them.
TABLES = ("arrivals", "input", "late", "answers", "output", "blocks")

#: In the error about a payload that a run can carry but a record cannot.
NOT_STORABLE = "that a record cannot store"

_GROWING = (
    "classes", "settings", "ended", "outcome", "items_in", "late_items", "items_out", "digest", "input_digest"
)  # fmt: skip

State = Literal["running", "finished", "failed", "stopped", "broken off"]
_HASHED_AT_ONCE = 1 << 20


class RecordError(InputError):
    """A record cannot be read: a file is missing, damaged or of a later version."""


class RecordEdited(RecordError):
    """Its manifest is not as it was written."""


class File(msgspec.Struct, frozen=True):
    """A sealed file.

    Attributes:
        path: relative to the record, with `/`.
        table: the folder it is in.
        first: number of its first row, counted over all files of the table; in `output` the position.
        rows: number of rows.
        hash: of its bytes.
    """

    path: str
    table: str
    first: int
    rows: int
    bytes: int
    hash: str


class SourceInfo(msgspec.Struct, frozen=True):
    """A source of the run: its index in the list is its rank."""

    name: str
    live: bool
    policy: dict[str, Any]


class Outcome(msgspec.Struct, frozen=True):
    """How the run ended.

    Attributes:
        state: "running" until it has ended; "finished": the input ended and all output was released; "failed": see
            `error`; "stopped": by its caller; "broken off": the process of the run died, or the record could no longer
            be written. A manifest also says "running" if its writer was killed: `drift.Record` checks whether the
            writer lives.
        kind: class of the error.
        by_input: whether the input was at fault, so that a replay ends with the same error.
    """

    state: State
    error: str = ""
    kind: str = ""
    by_input: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether a replay ends with the same error: the graph or the input was at fault, not the environment."""
        of_graph = self.kind in ("StepError", "ImpureStep", "PayloadError") and NOT_STORABLE not in self.error
        return self.state == "failed" and (self.by_input or of_graph)


class Manifest(msgspec.Struct, kw_only=True):
    """What a record holds besides its items.

    Attributes:
        target: "file.py:name" or "module:name" of the graph, "" if unknown.
        graph_text: as `drift show` prints it.
        fingerprint: of the graph's structure and of each function's code; see `drift.records.fingerprint`.
        classes: of payloads, by qualified name: "module:qualified name".
        sources: by rank.
        sinks: in the order of their numbers in the writer.
        algorithm: of every hash here.
        digest: of the sealed output.
        input_digest: of the input, of its global times and payloads in the order of arrival.
        self_hash: over the manifest without this field; for a record that grows, the hash of its journal's last line.
    """

    format: int = VERSION
    codec: str = CODEC
    graph: str
    target: str = msgspec.field(default="", name="place")
    graph_text: str = ""
    graph_mermaid: str = ""
    fingerprint: Any = None
    classes: dict[str, str] = {}
    sources: list[SourceInfo]
    sinks: list[str]
    engine: str
    workers: int
    settings: dict[str, Any]
    drift: str = ""
    python: str = ""
    platform: str = ""
    packages: dict[str, str] = {}
    started: str = ""
    ended: str = ""
    outcome: Outcome = Outcome("running")
    algorithm: Algorithm = "xxh3_128"
    items_in: int = 0
    late_items: int = 0
    items_out: int = 0
    digest: str = ""
    input_digest: str = ""
    files: list[File] = []
    self_hash: str = ""

    @property
    def environment(self) -> dict[str, Any]:
        """The versions around the run, as `drift.records.environment` has those of now."""
        return {name: getattr(self, name) for name in ("drift", "python", "platform", "packages")}

    def growing(self) -> dict[str, Any]:
        """The fields that change as a record grows, except its files, as plain data."""
        return {name: msgspec.to_builtins(getattr(self, name)) for name in _GROWING}

    def of(self, table: str) -> list[File]:
        """The record's files of one table, in order."""
        return [file for file in self.files if file.table == table]

    @property
    def complete(self) -> bool:
        """Whether the run ended by itself, so that nothing is missing."""
        return self.outcome.state in ("finished", "failed")


def hash_file(path: Path, algorithm: Algorithm) -> str:
    """Hash of a file's bytes, in hexadecimal."""
    state = new_hash(algorithm)
    buffer = bytearray(_HASHED_AT_ONCE)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            state.update(view[:count])
    text: str = state.hexdigest()
    return text


def encoded(manifest: Manifest) -> bytes:
    """The manifest as a file, with its hash."""
    return as_file(sealed(manifest))


def as_file(manifest: Manifest | Mapping[str, Any]) -> bytes:
    """A manifest that has its hash, or its fields, as a file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with the hash of its content."""
    return msgspec.structs.replace(manifest, self_hash=hash_of(msgspec.to_builtins(manifest), manifest.algorithm))


def hash_of(plain: Mapping[str, Any], algorithm: Algorithm) -> str:
    """The hash of a manifest's content: its fields without `self_hash` as compact JSON, sorted."""
    rest = {name: value for name, value in plain.items() if name != "self_hash"}
    state = new_hash(algorithm)
    state.update(msgspec.json.encode(rest, order="sorted"))
    text: str = state.hexdigest()
    return text


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a record.

    Raises:
        RecordError: it is missing or cannot be read; edits are only found by an audit.
    """
    return read_snapshot(folder).manifest


class Snapshot(NamedTuple):
    """The content of a record at one moment; it stays valid while the record grows.

    Attributes:
        manifest: including the entries of the journal.
        data: the bytes of manifest.json.
    """

    manifest: Manifest
    journal: Journal
    data: bytes


def read_snapshot(folder: Path) -> Snapshot:
    """The manifest and its journal.

    Read in this order they fit: a journal begun after this manifest was replaced does not follow it.

    Raises:
        RecordError: as `read_manifest`.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        what = "is no record: it has no manifest.json" if folder.is_dir() else "does not exist"
        raise RecordError(f"{folder} {what}; give the folder that drift.run(..., record=PATH) made") from None
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != VERSION:
            other = "a newer drift" if version > VERSION else "the drift that wrote it, whose version is in that file"
            raise RecordError(f"{path} is of format {version}, and this drift reads format {VERSION}; install {other}")
        manifest = msgspec.json.decode(data, type=Manifest)
        journal = read_journal(folder, manifest.self_hash, manifest.algorithm)
        manifest = _grown(manifest, journal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise RecordError(f"{error.filename} cannot be read: {error.strerror}") from error
    wrong = _wrong_in(manifest)
    if wrong:
        raise RecordError(f"{path} is damaged: {wrong}")
    return Snapshot(manifest, journal, data)


def _grown(manifest: Manifest, journal: Journal) -> Manifest:
    if not journal.lines:
        return manifest
    fields: dict[str, Any] = {}
    files = list(manifest.files)
    for line in journal.lines:
        fields |= {name: value for name, value in line.fields.items() if name in _GROWING}
        files += msgspec.convert(line.files, list[File])
    grown = msgspec.convert({**msgspec.to_builtins(manifest), **fields, "files": []}, Manifest)
    return msgspec.structs.replace(grown, files=files, self_hash=journal.hash)


def _wrong_in(manifest: Manifest) -> str:
    """Why a manifest cannot be used: another form of payloads, or a file outside of the record's own folder."""
    if manifest.codec != CODEC:
        return f"it has payloads as {manifest.codec!r}; this drift writes {CODEC!r}"
    for file in manifest.files:
        if file.table not in TABLES or re.fullmatch(rf"{file.table}/part-\d{{5,18}}\.parquet", file.path) is None:
            return (
                f"it lists {file.path[:200]!r} as a file of {file.table[:200]!r}; a file is TABLE/part-NUMBER.parquet"
            )
    return ""


class _Version(msgspec.Struct):
    format: int
