"""Tables of lakes: rows and position are one version, and a version after the other is read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from dying import Death, Taken, dying, write_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from lakes import Delta, Iceberg, Lake, drained, expected, meta_at, opened, row_at, rows_in, write, wrote

import drift
from drift import InputError, SinkError
from drift_graph.meta import global_time
from drift_graph.metas import Metas


@pytest.fixture(params=[Delta, Iceberg])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    pytest.importorskip(request.param.library)
    made: Lake = request.param(tmp_path)
    return made


@pytest.mark.parametrize("kind", [Delta, Iceberg])
@given(
    deaths=st.lists(st.integers(0, 9), max_size=3),
    steps=st.lists(st.integers(1, 6) | st.none(), min_size=1, max_size=7),
    by=st.sampled_from([None, "day"]),
    part_items=st.integers(1, 9),
)
@settings(max_examples=15)
def test_a_death_before_or_after_a_version_loses_nothing_and_doubles_nothing(
    kind: type[Lake], deaths: list[int], steps: list[int | None], by: str | None, part_items: int
) -> None:
    """Steps are batches, by their numbers of items, or checkpoints."""
    pytest.importorskip(kind.library)
    end = sum(step or 0 for step in steps)
    taken: Taken = []
    left = [-1]

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lake = kind(Path(folder))
        owner, name = resolve_name(kind.commits[0]), kind.commits[1]
        patch.setattr(owner, name, dying(getattr(owner, name), left))

        def run() -> None:
            sink = opened(lake.sink(part_items=part_items, partition_by=by), taken[-1] if taken else None)
            write_steps(sink, write, steps, taken)
            sink.close()

        for calls in deaths:
            left[0] = calls
            try:
                run()
            except Death:
                pass
            left[0] = -1
            found = [] if opened(lake.sink()).committed_position() is None else rows_in(lake)
            assert found == expected(len(found)) and (not taken or len(found) >= taken[-1][0])
        run()
        assert (rows_in(lake) if end else []) == expected(end)
        if taken:
            assert "by their positions" in lake.sink().compare(taken[-1][1])


def test_a_checkpoint_reads_no_rows_from_before_the_last_one(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, read = opened(lake.sink()), list[tuple[int, int]]()
    between = sink._positions_between
    monkeypatch.setattr(sink, "_positions_between", lambda *ends: (read.append(ends), between(*ends))[1])
    write(sink, 0, 3)
    early = sink.commit()
    write(sink, 3, 5)
    late = sink.commit()
    assert read == [(0, 2), (3, 4)] and sink.commit() == late
    sink.close()
    assert "has its 3 rows" in lake.sink().compare(early)
    again = opened(lake.sink(), (3, early))  # what is behind the checkpoint is there
    write(again, 3, 5)
    assert again.commit() == late
    again.close()


def test_another_run_that_has_written_since_is_noticed(lake: Lake) -> None:
    wrote(lake, 0, 2)
    one, other = opened(lake.sink(part_items=2)), opened(lake.sink(part_items=2))
    write(one, 2, 4)
    with pytest.raises(SinkError, match=r"another run writes to .* which now ends at position 3"):
        write(other, 2, 4)
    assert rows_in(lake) == expected(4)


def test_another_output_is_refused_and_replaced_on_request(lake: Lake) -> None:
    wrote(lake, 0, 4)
    other = opened(lake.sink())
    with pytest.raises(SinkError, match="has an item at position 3 that this run does not give"):
        other.write(range(5), Metas([global_time(7, 0, 0, n) for n in range(5)]), [row_at(n) for n in range(5)])
    with pytest.raises(SinkError, match="has items already"):
        lake.sink(resume="error").open()
    wrote(lake, 0, 2, lambda n: {"n": n, "day": "z"}, resume="replace")
    assert rows_in(lake) == [(0, "z"), (1, "z")]
    empty = opened(lake.sink(resume="replace"))
    empty.complete()
    empty.close()
    assert rows_in(lake) == [] and opened(lake.sink()).committed_position() is None


def test_a_table_that_somebody_emptied_is_replaced(lake: Lake) -> None:
    wrote(lake, 0, 4)
    lake.table().delete("position >= 0")
    with pytest.raises(SinkError, match="up to position 3, and that one is gone"):
        lake.sink().open()
    opened(lake.sink(resume="replace")).close()
    assert opened(lake.sink()).committed_position() is None
    wrote(lake, 0, 2, resume="replace")
    assert rows_in(lake) == expected(2)


@pytest.mark.parametrize(
    ("then", "now", "says"),
    [
        ({"x": 1}, {"x": "1"}, "'x' is int64, and a payload has something else: '1'"),
        ({"x": "a"}, {"x": b"a"}, "a payload has something else: b'a'"),
        ({"x": 1}, {"x": 1, "y": 2}, "the table has no column 'y'; it has 'position', 'time', 'x'; .*merge_schema"),
    ],
)
def test_rows_that_the_table_has_no_types_for_are_refused(lake: Lake, then: Any, now: Any, says: str) -> None:
    wrote(lake, 0, 1, lambda n: then)
    sink = opened(lake.sink(part_items=1))
    sink.write([0], Metas([meta_at(0)]), [then])
    with pytest.raises(SinkError, match=f"positions 1 to 1: .*{says}.*up to 0 are safe"):
        write(sink, 1, 2, lambda n: now)
    sink.close()
    assert lake.all_rows().num_rows == 1
    wrote(lake, 0, 2, lambda n: {"x": then["x"], "y": 2}, merge_schema=True)
    assert lake.all_rows().sort_by("position").select(["x", "y"]).to_pylist() == [
        {"x": then["x"], "y": None},
        {"x": then["x"], "y": 2},
    ]


def test_a_run_writes_each_item_once_and_another_reads(lake: Lake) -> None:
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    rows = [row_at(n) for n in range(20)]
    for _ in range(2):
        drift.run(graph, {"rows": rows}, sinks={"out": lake.sink(part_items=7)}, batch_items=3).finish()
        assert rows_in(lake) == expected(20)
    assert [item.payload for item in drift.run(graph, {"rows": lake.source(columns=["n", "day"])})] == rows


def test_a_reader_goes_on_from_any_row_and_with_later_versions(lake: Lake) -> None:
    for start in range(0, 12, 3):
        wrote(lake, 0, start + 3, partition_by="day")
    numbers = [row["n"] for row in drained(lake.source())[0]]
    assert sorted(numbers) == list(range(12)) and sorted(numbers[:3]) == [0, 1, 2], "in the order of versions"
    found = [drained(lake.source(), most=most) for most in range(13)]
    wrote(lake, 0, 14, partition_by="day")
    lake.compact()
    wrote(lake, 0, 15, partition_by="day")
    for rows, position in found:
        rest, _ = drained(lake.source(), position)
        assert [row["n"] for row in rows + rest][:12] == numbers
        assert sorted(row["n"] for row in rest[12 - len(rows) :]) == [12, 13, 14]
    pairs, position = drained(lake.source(columns=["day", "n"], payload="tuple"))
    assert sorted(pairs) == sorted((row_at(n)["day"], n) for n in range(15))
    lake.table().delete("n = 2")
    with pytest.raises(InputError, match=r"(?i)\((delete|overwrite)\) takes rows away that were read"):
        drained(lake.source(columns=["day", "n"], payload="tuple"), position)


def test_versions_that_appear_are_followed(lake: Lake) -> None:
    sink = opened(lake.sink(part_items=2))
    write(sink, 0, 2)
    follow = {"follow": True, "payload": "value", "columns": ["n"]}
    reader: Any = lake.source(**follow).open()
    found: list[Any] = []
    try:
        for n in range(2, 10, 2):
            while len(found) < n:
                found += reader.read(7)
            write(sink, n, n + 2)
        position = reader.position()
    finally:
        reader.close()
    assert found == list(range(8))
    assert drained(lake.source(**follow), position, 2)[0] == [8, 9]
