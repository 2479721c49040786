"""What a user may not read or write is said in drift's own words, wherever it is, and no file is left out for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import drift
from drift.state.run_checkpoints import known
from drift.state.settings import store_of

NOBODY = 65534


def passed() -> drift.Graph:
    graph = drift.Graph("passed")
    graph.source("rows").sink("out")
    return graph


def ran(source: Any = ({"k": 1},), **settings: Any) -> list[Any]:
    return [item.payload for item in drift.run(passed(), {"rows": source}, **settings)]


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who may do only what files allow, which root need not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with `open` and `shut`, which hold the same; nobody may look into `shut`."""
    at = Path(tempfile.mkdtemp())
    for inside in ("open", "shut"):
        (at / inside / "x").mkdir(parents=True)
        (at / inside / "x" / "rows.jsonl").write_text('{"k":1}\n')
        ran(record=at / inside / "record")
        ran(state=at / inside / "state", complete=False)
        ran(sinks={"out": drift.sinks.jsonl(at / inside / "out.jsonl")})
    if os.geteuid() == 0:
        for each in (at, *at.rglob("*")):
            os.chown(each, NOBODY, NOBODY)
    (at / "shut").chmod(0)
    yield at
    (at / "shut").chmod(0o755)
    shutil.rmtree(at)


SHUT: dict[str, Callable[[Path], object]] = {
    "a file": lambda shut: ran(drift.sources.jsonl(shut / "x" / "rows.jsonl")),
    "a folder": lambda shut: ran(drift.sources.jsonl(shut / "x")),
    "a record": lambda shut: drift.Record(shut / "record"),
    "an audit": lambda shut: drift.audit(shut / "record", passed()),
    "a new record": lambda shut: ran(record=shut / "new"),
    "a state": lambda shut: ran(state=shut / "state", complete=False),
    "a state that is looked at": lambda shut: store_of(drift.Checkpoints(shut / "state")).open_to_read(),
    "a sink": lambda shut: ran(sinks={"out": drift.sinks.jsonl(shut / "out.jsonl")}),
    "a new sink": lambda shut: ran(sinks={"out": drift.sinks.parquet(shut / "new")}),
    "a pattern": lambda shut: ran(drift.sources.jsonl(shut.parent / "*" / "x" / "*.jsonl")),
    "a pattern in it": lambda shut: ran(drift.sources.jsonl(shut.parent / "s*" / "?" / "rows.jsonl")),
    "a pattern of any depth": lambda shut: ran(drift.sources.jsonl(shut.parent / "**" / "*.jsonl")),
}


@pytest.mark.parametrize("what", SHUT)
def test_what_nobody_may_look_into_is_refused_in_words(what: str, folder: Path) -> None:
    SHUT[what](folder / "shut" if os.geteuid() else folder / "open")  # what is loaded when it is needed is there
    with without_rights(), pytest.raises(drift.DriftError, match="Permission denied"):
        SHUT[what](folder / "shut")


def test_a_pattern_that_does_not_want_what_is_shut_is_read(folder: Path) -> None:
    with without_rights():
        assert ran(drift.sources.jsonl(folder / "o*" / "x" / "*.jsonl")) == [{"k": 1}]


def test_a_record_and_a_state_that_may_only_be_read_are_read(folder: Path) -> None:
    for each in ((folder / "open"), *(folder / "open").rglob("*")):
        each.chmod(0o555 if each.is_dir() else 0o444)
    drift.audit(folder / "open" / "record", passed())
    with without_rights():
        record = drift.Record(folder / "open" / "record")
        assert [item.payload for item in record.items()] == [{"k": 1}]
        assert drift.audit(folder / "open" / "record", passed()).ok
        assert len(known(folder / "open" / "state")) == 1
    for each in ((folder / "open"), *(folder / "open").rglob("*")):
        each.chmod(0o755)
