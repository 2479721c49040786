"""Sinks that come back with older data between two runs with state."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client
from servers import redis_server

import drift
from drift.state.run_checkpoints import known

ITEMS = 400


def graph_of(*, durable: bool) -> drift.Graph:
    graph = drift.Graph("older")
    numbers = graph.source("s").map(lambda number: number + 1)
    summed = numbers.reduce(lambda number: number % 3, lambda total, number: total + number, durable=durable)
    summed.sink("sums")
    summed.map(str).sink("texts")
    return graph


def run_up_to(end: int | None, state: drift.Checkpoints, sinks: dict[str, Any], *, durable: bool) -> drift.Run:
    """Run up to a checkpoint behind a position of the output, or to the end."""
    run = drift.run(graph_of(durable=durable), {"s": range(ITEMS)}, sinks=sinks, state=state, batch_items=10)
    with run:
        for item in run:
            if item.position == end:
                run.stop()
    return run


@pytest.mark.parametrize("durable", [False, True])
def test_a_database_and_a_file_that_come_back_older_get_what_they_lack_from_an_earlier_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, durable: bool
) -> None:
    def sinks(folder: Path) -> dict[str, Any]:
        return {
            "sums": drift.sinks.sqlite(folder / "sums.db", "sums"),
            "texts": drift.sinks.jsonl(folder / "texts.jsonl"),
        }

    def rows(folder: Path) -> list[tuple[Any, ...]]:
        with sqlite3.connect(folder / "sums.db") as database:
            found = database.execute("SELECT * FROM sums ORDER BY position").fetchall()
        database.close()
        return found

    caplog.set_level(logging.WARNING, "drift")
    state = drift.Checkpoints(tmp_path / "state", every_s=0, every_items=10, keep=100)
    target, older, whole = (tmp_path / name for name in ("target", "older", "whole"))
    target.mkdir()
    whole.mkdir()
    run_up_to(300, state, sinks(target), durable=durable)
    shutil.copytree(target, older)
    number = known(state)[-1].number
    run_up_to(600, state, sinks(target), durable=durable)
    os.truncate(target / "texts.jsonl", (target / "texts.jsonl").stat().st_size - 1000)
    shutil.copy(older / "sums.db", target / "sums.db")
    caplog.clear()
    last = run_up_to(None, state, sinks(target), durable=durable)
    assert last.resumed_from is not None and last.resumed_from.number == number
    assert "sums.db" in caplog.text and f"resumes from checkpoint {number} " in caplog.text
    expected = run_up_to(None, drift.Checkpoints(tmp_path / "another"), sinks(whole), durable=durable)
    assert rows(target) == rows(whole)
    assert (target / "texts.jsonl").read_bytes() == (whole / "texts.jsonl").read_bytes()
    assert last.digest == expected.digest


def test_a_stream_of_redis_that_comes_back_older_gets_what_it_lacks_and_an_empty_one_is_refused(
    tmp_path: Path,
) -> None:
    with redis_server() as server, redis_client.Redis.from_url(server.url) as client:
        url = server.url
        sinks = {"sums": drift.sinks.redis(url, "sums"), "texts": drift.sinks.jsonl(tmp_path / "texts.jsonl")}
        state = drift.Checkpoints(tmp_path / "state", every_s=0, every_items=10, keep=100)
        run_up_to(300, state, sinks, durable=False)
        older = {key: client.dump(key) for key in client.scan_iter()}
        number = known(state)[-1].number
        run_up_to(600, state, sinks, durable=False)
        for key, value in older.items():
            client.restore(key, 0, value, replace=True)
        last = run_up_to(None, state, sinks, durable=False)
        assert last.resumed_from is not None and last.resumed_from.number == number
        run_up_to(
            None, drift.Checkpoints(tmp_path / "another"), {"sums": drift.sinks.redis(url, "whole")}, durable=False
        )
        assert [fields for _, fields in client.xrange("sums")] == [fields for _, fields in client.xrange("whole")]
        client.delete(*older)
        with pytest.raises(drift.SinkBehind, match=r"now it is empty.* Neither can the run .* down to 1: .*is empty"):
            run_up_to(None, state, sinks, durable=False)
        assert client.exists(*older) == 0
