"""Sinks from which somebody has removed items between two runs: that is said, and nothing is written behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis as redis_client
from servers import postgres_server, redis_server
from test_delta import write

import drift
from drift import SinkError

Cut = Callable[[int, int], None]
Make = Callable[..., Any]


@contextmanager
def sqlite_in(folder: Path, **more: Any) -> Iterator[tuple[Make, Cut]]:
    def cut(first: int, last: int) -> None:
        with sqlite3.connect(folder / "a.db") as database:
            database.execute("delete from t where position between ? and ?", (first, last))
        database.close()

    yield lambda **others: drift.sinks.sqlite(folder / "a.db", "t", **more, **others), cut


@contextmanager
def postgres_in(folder: Path) -> Iterator[tuple[Make, Cut]]:
    import psycopg

    with postgres_server() as url:

        def cut(first: int, last: int) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("delete from t where position between %s and %s", (first, last))

        yield lambda **others: drift.sinks.postgres(url, "t", **others), cut


@contextmanager
def delta_in(folder: Path) -> Iterator[tuple[Make, Cut]]:
    deltalake = pytest.importorskip("deltalake")

    def cut(first: int, last: int) -> None:
        deltalake.DeltaTable(str(folder)).delete(f"position >= {first} and position <= {last}")

    yield lambda **others: drift.sinks.delta(folder, **others), cut


@contextmanager
def iceberg_in(folder: Path) -> Iterator[tuple[Make, Cut]]:
    catalog = pytest.importorskip("pyiceberg.catalog")
    named = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}

    def cut(first: int, last: int) -> None:
        catalog.load_catalog("default", **named).load_table("a.t").delete(f"position >= {first} and position <= {last}")

    yield lambda **others: drift.sinks.iceberg("a.t", catalog=named, **others), cut


@contextmanager
def parquet_in(folder: Path, **more: Any) -> Iterator[tuple[Make, Cut]]:
    """Files are removed where all of their rows are."""

    def cut(first: int, last: int) -> None:
        for file in folder.rglob("*.parquet"):
            if {*pq.read_table(file, partitioning=None)["position"].to_pylist()} <= {*range(first, last + 1)}:
                file.unlink()

    yield lambda **others: drift.sinks.parquet(folder, part_items=2, **more, **others), cut


@contextmanager
def redis_in(folder: Path) -> Iterator[tuple[Make, Cut]]:
    with redis_server() as server, redis_client.Redis.from_url(server.url) as client:

        def cut(first: int, last: int) -> None:
            client.xdel("t", *(f"{position + 1}-0" for position in range(first, last + 1)))

        yield lambda **others: drift.sinks.redis(server.url, "t", **others), cut


TABLES = [sqlite_in, postgres_in, delta_in, iceberg_in]


def run(make: Make, items: int, *, resume: str = "continue", **more: Any) -> int | None:
    """Run, and ask up to which position the items are stored then."""
    graph = drift.Graph("cut")
    graph.source("s").map(lambda n: {"n": n, "part": str(n % 2)}).sink("out")
    drift.run(graph, {"s": range(items)}, sinks={"out": make(resume=resume)}, batch_items=2, **more).finish()
    sink = make()
    sink.open()
    try:
        return sink.committed_position()  # type: ignore[no-any-return]
    finally:
        sink.close()


@pytest.mark.parametrize("place", [*TABLES, redis_in, parquet_in])
def test_only_the_oldest_items_may_be_removed_between_two_runs(tmp_path: Path, place: Any) -> None:
    with place(tmp_path) as (make, cut):
        assert run(make, 10) == 9
        cut(0, 1)
        assert run(make, 14) == 13
        cut(6, 7)
        with pytest.raises(SinkError, match=r"has 10 of the 12 items from position 2 to 13, .*resume='replace'"):
            run(make, 18)
        assert run(make, 12, resume="replace") == 11
        cut(11, 11)
        if place is parquet_in:  # the name of the last part is what the folder says of its end
            cut(10, 11)
            assert run(make, 12) == 11
            return
        with pytest.raises(SinkError, match=r"position 11, and that one is gone|the last entry .* was deleted"):
            run(make, 18)
        assert run(make, 4, resume="replace") == 3


@pytest.mark.parametrize("place", TABLES)
def test_nor_are_items_lost_behind_a_checkpoint(tmp_path: Path, place: Any) -> None:
    with place(tmp_path) as (make, cut):
        state: dict[str, Any] = {"state": tmp_path / "state", "complete": False}
        assert run(make, 10, **state) == 9
        cut(0, 4)
        assert run(make, 14, **state) == 13
        cut(5, 13)
        for _ in range(2):
            with pytest.raises(
                SinkError, match=r"up to position 13, and that one is gone: .* another state and resume="
            ):
                run(make, 18, **state)


def test_what_a_table_has_refused_is_not_missing(tmp_path: Path) -> None:
    with sqlite_in(tmp_path, on_error="divert") as (make, cut), sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table t (position integer primary key, time integer, n integer check (n <> 4), part)")
        database.commit()
        assert run(make, 10) == 9
        assert run(make, 14) == 13
        cut(0, 5)
        assert run(make, 16) == 15
        cut(8, 8)
        with pytest.raises(SinkError, match=r"has 9 of the 10 items from position 6 to 15"):
            run(make, 18)
    database.close()


def test_of_a_folder_with_partitions_rows_that_are_gone_from_one_of_them_are_missing(tmp_path: Path) -> None:
    with parquet_in(tmp_path, partition_by="part") as (make, cut):
        assert run(make, 10) == 9
        cut(0, 0)
        assert run(make, 12) == 11
        cut(3, 3)
        with pytest.raises(SinkError, match=r"has 10 of the 11 items from position 1 to 11"):
            run(make, 14)


@pytest.mark.parametrize("place", [sqlite_in, delta_in, redis_in, parquet_in])
@pytest.mark.parametrize(("first", "is_missed"), [(2, False), (6, True)])
def test_of_what_came_behind_a_checkpoint_all_that_is_given_again_is_to_be_there(
    tmp_path: Path, place: Any, first: int, is_missed: bool
) -> None:
    with place(tmp_path) as (make, cut):
        sink = make()
        sink.open()
        write(sink, 0, 4)
        committed = sink.commit()
        for at in (4, 6, 8):
            write(sink, at, at + 2)
        sink.close()
        cut(first, first + 1)
        again = make()
        again.resume_at(4, committed)
        again.open()
        if is_missed:
            with pytest.raises(SinkError, match=r"has 4 of the 6 items from position 4 to 9"):
                write(again, 4, 12)
        else:
            write(again, 4, 12)
            assert again.committed_position() == (9 if place is delta_in else 11)  # what is gathered is not there yet
        again.close()
