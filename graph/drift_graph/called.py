"""Calls whose arguments do not fit: what they take, and what an argument is called here that others call otherwise.

Invariant: a function or class with `called` that is called with arguments which its signature does not have raises a
`CallError`, whatever they are, and its body has not begun. A call that fits costs nothing more than one call.

An argument of another type than the signature says, or a larger int than 64 bits hold, raises one too, if the body can
do nothing with it; a flag that is neither True nor False always, since a body can do something with whatever it is
given: "no" is true.

Why: Python binds arguments before the body has a frame, so a TypeError with no frame below the call is of the binding.
Types are compared where the body has failed, so no call that works costs more or is refused. The body of a generator
runs when it is read, so what reads it compares them, too.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from drift_graph.errors import CallError, DriftError
from drift_graph.functions import caller, safe_text

F = TypeVar("F", bound=Callable[..., Any])

#: What others call parameters, by what they are called here: in any function that has it, or in one.
_ELSEWHERE = {
    "source.time": ("timestamp", "watermark", "lateness", "event_time", "time_column", "ts"),
    "time": ("column", "field", "timestamp", "ts", "time_column", "event_time", "timestamp_column", "key", "on", "by"),
    "lateness": ("watermark", "delay", "max_out_of_orderness", "out_of_orderness", "grace"),
    "allowed": ("allowed_lateness", "allowedLateness"),
    "idle_after_ms": ("idle_timeout", "idleness", "idle_after"),
    "zone": ("tz", "timezone", "time_zone"),
    "key": ("by", "on", "left_on", "left_by", "keys", "key_selector", "group_by", "partition_by", "subset", "columns"),
    "other_key": ("right_on", "right_by"),
    "table_key": ("right_on", "right_by"),
    "within": ("tolerance", "max_gap", "ttl", "interval", "window"),
    "direction": ("strategy",),
    "allow_exact": ("allow_exact_matches",),
    "how": ("type", "kind", "join_type"),
    "nulls_equal": ("join_nulls",),
    "of": ("column", "col", "columns", "field", "expr", "value", "on", "key", "by", "selector", "function"),
    "by": ("column", "col", "columns", "field", "expr", "of", "key", "on", "order_by", "sort_by"),
    "where": ("filter", "predicate", "condition"),
    "descending": ("reverse", "desc"),
    "n": ("k", "size", "count", "periods", "limit", "rows", "lag"),
    "count": ("n", "k", "size", "limit", "rows"),
    "q": ("quantile", "p", "percentile", "probability"),
    "nulls": ("skipna", "ignore_nulls", "skip_nulls"),
    "sliding.size": ("length", "period", "width", "duration", "window_size", "range", "span", "window"),
    "size": (
        "length", "period", "width", "duration", "window_size", "range", "span", "window", "every", "interval", "freq",
    ),
    "every": ("slide", "step", "hop", "period", "freq", "frequency", "interval", "unit", "size"),
    "offset": ("origin", "start", "align_to"),
    "closed": ("inclusive",),
    "gap": ("timeout", "inactivity", "inactivity_gap", "session_gap", "max_gap", "duration", "size"),
    "span": ("window", "window_size", "period", "size", "length", "windows"),
    "windows": ("size", "every", "period", "window", "windower", "assigner", "span", "length", "freq"),
    "early": ("trigger", "emit"),
    "preceding": ("before",),
    "following": ("after",),
    "aggregate": ("agg", "aggregation", "aggregator", "function", "func"),
    "function": ("func", "fn", "f", "callback", "mapper", "reducer"),
    "predicate": ("function", "func", "fn", "f", "condition", "where"),
    "initial": ("init", "start", "seed", "zero", "state", "initial_value"),
    "step": ("function", "func", "fn", "update", "folder", "mapper"),
    "ask": ("function", "func", "fn"),
    "concurrency": ("max_concurrency", "workers", "parallelism", "capacity"),
    "timeout_s": ("timeout",),
    "retries": ("max_retries", "tries", "attempts"),
    "rate_per_s": ("rate", "rate_limit"),
    "batch": ("batch_size", "max_batch_size"),
    "path": ("file", "filename", "filepath", "source", "location", "folder", "path_or_buf", "root_path"),
    "delimiter": ("sep", "separator"),
    "csv.null_values": ("na_values", "nullstr", "nullValue"),
    "csv.columns": ("names", "header", "fieldnames", "new_columns"),
    "csv.schema": ("usecols", "select", "dtype", "dtypes", "schema_overrides", "types"),
    "columns": ("usecols", "select", "names", "fieldnames", "schema"),
    "schema": ("dtype", "dtypes", "schema_overrides", "types"),
    "convert": ("converters",),
    "hive": ("hive_partitioning", "partitioning"),
    "follow": ("tail", "watch", "live", "streaming"),
    "partition_by": ("partition_cols", "partition_columns", "partitioning", "partitionBy"),
    "part_items": ("rows_per_file", "max_rows_per_file", "batch_size"),
    "resume": ("mode", "if_exists", "if_table_exists", "overwrite", "append"),
    "merge_schema": ("schema_mode", "mergeSchema"),
    "storage_options": ("filesystem", "fs", "credentials"),
    "servers": ("bootstrap_servers", "brokers", "broker"),
    "topic": ("topics",),
    "stream": ("topic", "key"),
    "group": ("group_id", "consumer_group"),
    "start": ("auto_offset_reset", "offset", "offsets", "starting_offsets", "startingOffsets", "last_id", "start_from"),
    "config": ("consumer_config", "producer_config", "options"),
    "encode": ("serializer", "value_serializer"),
    "decode": ("deserializer", "value_deserializer"),
    "until_end": ("bounded", "stop_at_end"),
    "url": ("dsn", "uri", "connection", "conninfo"),
    "query": ("sql",),
    "table": ("table_name", "name"),
    "host": ("address", "hostname"),
    "name": ("title", "label", "id", "uid", "step_id"),
    "workers": ("parallelism", "n_jobs", "num_workers", "n_workers", "threads", "processes", "proc_count"),
    "state": ("checkpoint", "checkpoints", "checkpoint_dir", "checkpoint_location", "recovery_config", "state_dir"),
    "checkpoint": ("checkpoint_location", "checkpointLocation", "checkpoint_dir"),
    "sources": ("source", "input", "inputs"),
    "sinks": ("sink", "output", "outputs"),
    "engine": ("backend", "runner", "executor"),
    "batch_items": ("batch_size", "chunk_size", "chunksize", "max_batch_size"),
    "Checkpoints.where": ("path", "folder", "location", "state_dir"),
    "every_s": ("interval", "every", "interval_s", "checkpoint_interval"),
    "keep": ("retain", "max_checkpoints", "keep_checkpoints", "keep_last"),
}  # fmt: skip

#: What is written for a parameter, where its name does not say it.
_WRITTEN = {
    "windows": "drift.windows.tumbling('1 minute'), or another of drift.windows",
    "source.time": "drift.EventTime(time=..., lateness=...)",
    "resume": '"continue", "replace" or "error"',
}


def called_here(function: str, name: str, parameters: Iterable[str]) -> str:
    """The end of an error: what the parameter is called here that has this name in other libraries; "" if it has none.

    Args:
        function: its name.
        parameters: of the function, those that are left.
    """
    for here in parameters:
        of_function = f"{function}.{here}"
        if name in _ELSEWHERE.get(of_function, _ELSEWHERE.get(here, ())):
            written = _WRITTEN.get(of_function, _WRITTEN.get(here))
            return f"; it is called {here} here" + (f": {here}={written}" if written else "")
    return ""


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """The names of its parameters, without `self` and those that stand for any number."""
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.name != "self" and each.kind not in _ANY]


_INTS = 1 << 63  # ints are taken that fit 64 bits
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def takes_no(function: str, name: str, parameters: Collection[str], given: Collection[str] = ()) -> CallError:
    """The error of an argument that a function does not have.

    Args:
        given: the arguments that it was called with.
    """
    here = called_here(function, name, [each for each in parameters if each not in given])
    return CallError(
        f"{function} takes no {name}= (at {caller()}){here}; it takes {', '.join(parameters) or 'nothing'}"
    )


def no_attribute(module: str, name: str, elsewhere: Mapping[str, Sequence[str]]) -> AttributeError:
    """The error of a name that a module does not have.

    Args:
        elsewhere: what others call what it has, by what it is called here.
    """
    found = "".join(f"; it is called {here} here" for here, names in elsewhere.items() if name in names)
    return AttributeError(f"{module} has no {name!r}{found}", name=name)


def _error_of(function: Callable[..., Any], shown: str, given: dict[str, Any], error: TypeError) -> CallError:
    named = parameters_of(function)
    others = [name for name in given if name not in named]
    if others and "unexpected keyword" in str(error):
        return takes_no(shown, others[0], named, given)
    hints = [f"; {name}" + hint[4:] for name in others if (hint := called_here(shown, name, named))]
    said = str(error).split(f"{function.__name__}() ", 1)[-1]
    return CallError(f"{shown}: {said} (at {caller()}){''.join(hints)}; it takes {', '.join(named) or 'nothing'}")


def _misfit(function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> str | None:
    """The first argument whose type is none of those that the signature names; None if there is none."""
    signature = inspect.signature(function)
    for name, value in signature.bind(*given, **named).arguments.items():
        parameter = signature.parameters[name]
        written = parameter.annotation
        if not isinstance(written, str):
            written = "Any" if written is parameter.empty else inspect.formatannotation(written)
        if parameter.kind not in _ANY and not _is_of(written, value, getattr(function, "__globals__", {})):
            return f"{name}: {written}, not {safe_text(repr, value, 80)}"
    return None


def _is_of(written: str, value: object, names: Mapping[str, Any]) -> bool:
    """Whether a value may be of a type, as annotations write it; what is not known of a type is taken to fit."""
    alternatives = _cut(written, "|")
    if len(alternatives) > 1:
        return any(_is_of(each, value, names) for each in alternatives)
    head, _, inside = written.strip().strip("'").partition("[")
    parts = _cut(inside.removesuffix("]"), ",")
    if head in ("None", "Any", "Callable"):
        return {"None": value is None, "Any": True, "Callable": callable(value)}[head]
    if head in ("int", "float", "bool"):
        fits = type(value) in {"int": (int,), "float": (int, float), "bool": (bool,)}[head]
        return fits and (type(value) is not int or -_INTS <= value < _INTS)
    if head in ("Sequence", "Iterable"):
        fits = isinstance(value, Sequence if head == "Sequence" else Iterable) and not isinstance(value, (str, bytes))
        return fits and (not isinstance(value, (list, tuple)) or all(_is_of(parts[0], each, names) for each in value))
    if head == "Mapping":
        return isinstance(value, Mapping) and all(_is_of(parts[0], each, names) for each in value)
    if head == "Literal":
        return isinstance(value, str) and any(each.strip("'\"") == value for each in parts)
    first, *inner = head.split(".")
    kind: Any = {"str": str, "bytes": bytes}.get(first, names.get(first, sys.modules.get(first)))
    for each in inner:
        kind = getattr(kind, each, None)
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if isinstance(kind, UnionType):
        return any(_is_of(inspect.formatannotation(each), value, {each.__name__: each}) for each in get_args(kind))
    kind = getattr(kind, "__origin__", kind)  # of an alias
    return isinstance(value, kind) if isinstance(kind, type) else True


def _flags_of(function: Callable[..., Any]) -> list[tuple[str, int]]:
    """The parameters that are True or False, and where they are if they are given by place."""
    found = enumerate(inspect.signature(function).parameters.values())
    by_name, flag = inspect.Parameter.KEYWORD_ONLY, (bool, "bool")
    return [(each.name, sys.maxsize if each.kind is by_name else at) for at, each in found if each.annotation in flag]


def _cut(written: str, by: str) -> list[str]:
    """The parts of a text between the separators that are in no brackets."""
    parts, depth = [""], 0
    for each in written:
        depth += (each in "[(") - (each in "])")
        if each == by and not depth:
            parts.append("")
        else:
            parts[-1] += each
    return [each.strip() for each in parts]


def called(what: F) -> F:
    """A function, or a class with its constructor and its public methods, that raises `CallError` as said above.

    >>> @called
    ... def tumbling(size): ...
    >>> tumbling(every=10)
    Traceback (most recent call last):
    ...
    drift_graph.errors.CallError: tumbling takes no every= (at ...); it is called size here; it takes size
    """
    if isinstance(what, type):
        for name, method in list(vars(what).items()):
            if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
                setattr(what, name, _checked(method, what.__name__ if name == "__init__" else name))
        return cast(F, what)
    return cast(F, _checked(what, what.__name__))


def called_in(names: dict[str, Any], exported: Iterable[str]) -> None:
    """Have the functions of a module, of its `globals()`, raise `CallError` as `called` says."""
    for name in exported:
        if inspect.isfunction(names.get(name)):
            names[name] = called(names[name])


def _checked(function: Callable[..., Any], shown: str) -> Callable[..., Any]:
    def refuse(error: Exception, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Raise a `CallError` if an argument's type is why the body has failed."""
        is_told = isinstance(error, DriftError) and (not isinstance(error, CallError) or error.__cause__ is None)
        why = None if is_told else _misfit(function, given, named)
        if why is not None:
            raise CallError(f"{shown} takes {why} (at {caller()})") from error

    def read(rows: Iterable[Any], given: Sequence[Any], named: Mapping[str, Any]) -> Iterator[Any]:
        try:
            yield from rows
        except Exception as error:
            refuse(error, given, named)
            raise

    is_generator = inspect.isgeneratorfunction(function)
    flags = _flags_of(function)

    @wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        for name, place in flags:
            flag = named[name] if name in named else given[place] if place < len(given) else True
            if type(flag) is not bool:
                raise CallError(f"{shown} takes {name}: True or False, not {safe_text(repr, flag, 80)} (at {caller()})")
        try:
            found = function(*given, **named)
        except Exception as error:
            trace = error.__traceback__
            if type(error) is TypeError and trace is not None and trace.tb_next is None:
                raise _error_of(function, shown, named, error) from None
            refuse(error, given, named)
            raise
        return read(found, given, named) if is_generator else found

    return checked
