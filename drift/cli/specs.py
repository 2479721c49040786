"""Makes sources, sinks and time policies from the options of `drift run`.

Invariant: a value NAME=REST belongs to the source or sink of that name; NAME= may be left out where there is one only.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

from drift import sinks, sources
from drift.load import load_function
from drift.sinks.base import Sink
from drift.sources.base import Source
from drift.sources.compressed import PACKINGS
from drift.sources.frames import FrameSource
from drift.urls import checked_url, without_secrets
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.moments import Field, span_from
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy

_NUMBER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*", re.ASCII)
OnExisting = Literal["continue", "replace", "error"]

_FILES: dict[str, Callable[..., Source]] = {
    "text": sources.text,
    "jsonl": sources.jsonl,
    "csv": sources.csv,
    "parquet": sources.parquet,
    "hive": partial(sources.parquet, hive=True),
    "delta": sources.delta,
}
_IN_SPARK = ("parquet", "orc", "table")
_URLS = ("redis://", "rediss://", "redis-json://", "kafka://", "kafka-json://", "postgresql://", "postgres://")
_ENDINGS = {
    ".txt": "text",
    ".log": "text",
    "": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
_WITH_OPTIONS = re.compile(r"(.+)\?([a-z_]+=.*)")
_SINK_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
SOURCE_FORMS = (
    "PATH.txt, .log, .jsonl or .csv (also .gz, .zst, .bz2, .xz, .lz4, .zip), PATH.parquet, text:PATH, jsonl:PATH, "
    "csv:PATH, parquet:PATH, "
    "hive:PATH (Parquet in folders COLUMN=VALUE), delta:PATH (a table), -, "
    "tcp://HOST:PORT, zmq:ADDRESS, zmq-json:ADDRESS, kafka://HOST:PORT[?group=NAME]#TOPIC, redis://HOST/DB#STREAM "
    "(kafka-json, redis-json), postgresql://USER@HOST/DB#TABLE:KEY, sqlite:PATH#TABLE:KEY, or with --engine spark "
    "orc:PATH, table:NAME; a PATH is a file, a pattern in quotes, or with its kind before it a folder; follow:PATH "
    "goes on with what is written; a PATH may be that of an object, s3://BUCKET/NAME.jsonl or s3://BUCKET/*.csv"
)
SINK_FORMS = (
    "PATH.jsonl, PATH.csv, PATH.parquet (a folder), jsonl:PATH, csv:PATH, parquet:PATH or delta:PATH (with "
    "?partition_by=COLUMN,COLUMN&part_every=5m&part_bytes=128MB&part_items=NUMBER), sqlite:PATH#TABLE, "
    "postgresql://USER@HOST/DB#TABLE, redis://HOST/DB#STREAM, kafka://HOST:PORT#TOPIC, - and text:-"
)


def by_name(option: str, values: Iterable[str], kind: str, known: Sequence[str]) -> dict[str, str]:
    """The values of a repeated option by the source or sink they are for."""
    spec_by_name: dict[str, str] = {}
    for value in values:
        name, spec = _named(option, value, kind, known)
        if name in spec_by_name:
            both = f"{without_secrets(spec_by_name[name])!r} and {without_secrets(spec)!r}"
            raise SettingsError(f"{option} is given twice for {kind} {name!r}: {both}")
        spec_by_name[name] = spec
    return spec_by_name


def _named(option: str, value: str, kind: str, known: Sequence[str]) -> tuple[str, str]:
    fitting = [name for name in known if value.startswith(f"{name}=")]
    if fitting:
        name = max(fitting, key=len)
        return name, value[len(name) + 1 :]
    names = ", ".join(map(repr, known))
    first = value.partition("=")[0]
    if first != value and "://" not in first and "?" not in first and not Path(value).exists():
        shown = without_secrets(value)
        raise SettingsError(f"{option} {shown}: the graph has no {kind} {first!r}; it has {names}")
    if len(known) != 1:
        shown = without_secrets(value)
        raise SettingsError(f"{option} {shown}: say which {kind}, as NAME={shown}; the graph has {names}")
    return known[0], value


def source_of(spec: str, name: str = "", *, as_frames: bool = False) -> Source:
    """A source for PATH, KIND:PATH, -, tcp://HOST:PORT, zmq:ADDRESS and so on.

    Args:
        name: of the source, which is also that of the topic or stream, if the spec has none.
        as_frames: the engine reads Parquet files as DataFrames.
    """
    kind, colon, value = spec.partition(":")
    if kind == "follow":
        return _of_path(value, follow=True)
    if colon and kind in _FILES and not (kind == "parquet" and as_frames):
        return _of_path(spec)
    if spec.startswith(_URLS):
        return _source_of_url(spec, name)
    if colon and kind == "sqlite":
        path, _, fragment = value.partition("#")
        table, key = _table_and_key(spec, fragment)
        return sources.sqlite(path, table, key=key)
    if colon and kind in _IN_SPARK:
        return FrameSource(lambda spark: spark.table(value) if kind == "table" else spark.read.format(kind).load(value))
    if colon and kind in ("zmq", "zmq-json"):
        return sources.zmq_pull(value, decode="json" if kind == "zmq-json" else "text")
    if spec.startswith("tcp://"):
        host, colon, port = spec[len("tcp://") :].rpartition(":")
        if not colon or not port.isdecimal():
            raise SettingsError(f"{without_secrets(spec)} is not of the form tcp://HOST:PORT")
        return sources.tcp_lines(host, int(port))
    if spec == "-":
        return sources.text("-")
    return _of_path(spec)


_PACKED = {ending for packing in PACKINGS for ending in packing.endings}


def _of_path(spec: str, *, follow: bool = False) -> Source:
    kind, colon, value = spec.partition(":")
    if colon and kind in _FILES:
        return _FILES[kind](value, follow=follow)
    path = Path(spec)
    ending = (path.with_suffix("") if path.suffix in _PACKED else path).suffix.lower()
    if ending not in _ENDINGS or (not ending and ("://" in spec or path.is_dir())):
        raise SettingsError(f"what is in {without_secrets(spec)}? a source is {SOURCE_FORMS}")
    return _FILES[_ENDINGS[ending]](spec, follow=follow)


def _source_of_url(spec: str, name: str) -> Source:
    url, _, fragment = checked_url(spec).partition("#")
    kind, _, value = url.partition("://")
    if kind in ("kafka", "kafka-json"):
        servers, _, query = value.partition("?")
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        group = parameters.pop("group", None)
        if parameters:
            unknown = next(iter(parameters))
            raise SettingsError(f"{without_secrets(spec)} has the parameter {unknown!r}; a topic takes ?group=NAME")
        return sources.kafka(servers, fragment or name, decode="json" if kind == "kafka-json" else "text", group=group)
    if kind == "redis-json":
        return sources.redis(f"redis://{value}", fragment or name, decode="json")
    if kind in ("redis", "rediss"):
        return sources.redis(url, fragment or name)
    table, key = _table_and_key(spec, fragment)
    return sources.postgres(url, table, key=key)


def _table_and_key(spec: str, fragment: str) -> tuple[str, str]:
    table, _, key = fragment.rpartition(":")
    if not table or not key:
        raise SettingsError(f"{without_secrets(spec)} is to end in #TABLE:KEY, a column that differs in each row")
    return table, key


def sink_of(spec: str, on_existing: OnExisting, name: str = "") -> Sink:
    """A sink for PATH.jsonl, KIND:PATH, - and text:-, and so on.

    Args:
        name: of the sink, which is also that of the table, topic or stream, if the spec has none.
    """
    if spec in ("-", "jsonl:-"):
        return sinks.stdout()
    if spec == "text:-":
        return sinks.stdout("text")
    if spec.startswith(_URLS):
        return _sink_of_url(spec, on_existing, name)
    kind, path = _kind_of_sink(spec)
    if kind == "csv":
        return sinks.csv(path, resume=on_existing)
    if kind in ("parquet", "delta"):
        return _sink_in_parts(spec, kind, path, on_existing)
    if kind == "sqlite":
        file, _, table = path.partition("#")
        return sinks.sqlite(file, table or name, resume=on_existing)
    if kind != "jsonl":
        raise SettingsError(f"sink {without_secrets(spec)} is none of {SINK_FORMS}")
    return sinks.jsonl(path, resume=on_existing)


def _kind_of_sink(spec: str) -> tuple[str, str]:
    """What is written, or "", and where."""
    kind, colon, path = spec.partition(":")
    if colon and kind in ("jsonl", "csv", "parquet", "delta", "sqlite"):
        return kind, path
    path = found[1] if (found := _WITH_OPTIONS.fullmatch(spec)) and found[1].lower().endswith(".parquet") else spec
    return _SINK_ENDINGS.get(Path(path).suffix.lower(), ""), spec


def _sink_in_parts(spec: str, kind: str, path: str, on_existing: OnExisting) -> Sink:
    """A folder of Parquet files or a Delta table, with options behind a question mark."""
    found = _WITH_OPTIONS.fullmatch(path)
    options = dict(parse_qsl(found[2], keep_blank_values=True)) if found is not None else {}
    columns, items = options.pop("partition_by", ""), options.pop("part_items", "1000000")
    size, every = options.pop("part_bytes", None), options.pop("part_every", None)
    if options or not items.isdecimal():
        wrong = next(iter(options), f"part_items={items}")
        raise SettingsError(f"{without_secrets(spec)} has {wrong!r}; a sink is {SINK_FORMS}")
    made: Callable[..., Sink] = sinks.parquet if kind == "parquet" else sinks.delta
    return made(
        found[1] if found is not None else path,
        part_items=int(items),
        part_bytes=size,
        part_every=every,
        partition_by=columns.split(",") if columns else None,
        resume=on_existing,
    )


def _sink_of_url(spec: str, on_existing: OnExisting, name: str) -> Sink:
    url, _, fragment = checked_url(spec).partition("#")
    kind, _, value = url.partition("://")
    if kind in ("postgres", "postgresql"):
        return sinks.postgres(url, fragment or name, resume=on_existing)
    if kind in ("redis", "rediss"):
        return sinks.redis(url, fragment or name, resume=on_existing)
    if kind != "kafka" or on_existing == "replace":
        raise SettingsError(f"sink {without_secrets(spec)} is none of {SINK_FORMS}; what Kafka has cannot be replaced")
    return sinks.kafka(value, fragment or name, resume=on_existing)


def refuse_one_file(specs: Mapping[str, str]) -> None:
    """Raises SettingsError: two sinks would write to one file."""
    writer: dict[Path | str, str] = {}
    for name, spec in specs.items():
        if writes_to_stdout(spec):
            continue
        kind, path = _kind_of_sink(spec)
        if kind in ("parquet", "delta") and (found := _WITH_OPTIONS.fullmatch(path)):
            path = found[1]
        target: Path | str = Path(path).resolve()
        if kind == "sqlite" or spec.startswith(_URLS):  # these name a table, topic or stream in it
            path = target = spec if "#" in spec else f"{spec}#{name}"
        other = writer.setdefault(target, name)
        if other != name:
            raise SettingsError(
                f"sinks {other!r} and {name!r} are given one file, {without_secrets(str(path))}; give each its own"
            )


def writes_to_stdout(spec: str) -> bool:
    return spec in ("-", "jsonl:-", "text:-")


@dataclasses.dataclass(frozen=True)
class TimeOptions:
    """The values of the options on time, unparsed."""

    event_time: Sequence[str] = ()
    tie: Sequence[str] = ()
    lateness: Sequence[str] = ()
    allowed: Sequence[str] = ()
    late: Sequence[str] = ()
    idle: Sequence[str] = ()
    future_max: Sequence[str] = ()
    zone: Sequence[str] = ()
    unit: Sequence[str] = ()
    arrival: Sequence[str] = ()


def policies(dataflow: Dataflow, options: TimeOptions) -> dict[str, TimePolicy]:
    """The time policies that differ from the graph's: an option that is not set keeps the graph's value."""
    known = [source.name for source in dataflow.sources]
    changes: dict[str, dict[str, Any]] = {}

    def change(option: str, values: Sequence[str], field: str, made: Callable[[str, str], Any]) -> None:
        for name, text in by_name(option, values, "source", known).items():
            changes.setdefault(name, {})[field] = made(f"{option} {name}={text}", text)

    change("--event-time", options.event_time, "time", partial(_function, as_int=True))
    change("--tie", options.tie, "tie", partial(_function, as_int=False))
    change("--lateness", options.lateness, "lateness", _lateness)
    change("--allowed", options.allowed, "allowed", _duration)
    change("--late", options.late, "late", lambda option, text: text)
    change("--idle", options.idle, "idle_after_ms", _duration)
    change("--future-max", options.future_max, "future_max", _duration)
    change("--unit", options.unit, "unit", lambda option, text: text)
    change("--zone", options.zone, "zone", lambda option, text: text)
    made: dict[str, TimePolicy] = {}
    for source in dataflow.sources:
        if source.name in changes:
            made[source.name] = _changed(source.name, source.time, changes[source.name])
    for name in options.arrival:
        if name not in known:
            raise SettingsError(f"--arrival {name}: the graph has no such source; it has {', '.join(map(repr, known))}")
        if name in made:
            raise SettingsError(f"--arrival {name}: other options give that source event time")
        made[name] = ArrivalTime()
    return made


def _changed(name: str, policy: TimePolicy, changes: dict[str, Any]) -> EventTime:
    if policy.reads_payloads:
        return dataclasses.replace(policy, **changes)
    if "time" not in changes:
        raise SettingsError(f"source {name!r} is in arrival time, where nothing is late; add --event-time {name}=FIELD")
    return EventTime(**changes)


def _duration(option: str, text: str) -> int:
    """A whole number, or one with a unit, in milliseconds."""
    span = span_from(text)
    if span is None:
        raise SettingsError(f"{option}: {text!r} is not a whole number, or one with ms, s, m, h, d or w")
    return span


def _lateness(option: str, text: str) -> int | str:
    return text if text == "all" else _duration(option, text)


def _function(option: str, text: str, *, as_int: bool) -> Callable[[Any], Any]:
    return load_function(text) if ":" in text else _field(option, text, as_int=as_int)


def _field(option: str, field: str, *, as_int: bool) -> Callable[[Any], Any]:
    """A function that takes a field out of a payload; in messages its file is the option."""

    take = Field(field)

    def value(payload: Any) -> Any:
        found = take(payload)
        return int(found) if as_int and isinstance(found, str) and _NUMBER.fullmatch(found.strip()) else found

    value.__code__ = value.__code__.replace(co_filename=option, co_firstlineno=1)
    assert isinstance(value, types.FunctionType)
    return value
