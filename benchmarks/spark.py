"""Throughput on Spark: a running sum by key beside bare `repartition + sortWithinPartitions + mapInArrow`.

A bare job calls the same Python function for rows that have their order already. "bare" gets metas ready made and
payloads as bytes: it decodes a row, and encodes what it gives. "bare, columns" is given what drift is given of a
DataFrame, columns of numbers, and gives such. Neither orders its output or hashes it; "bare, in order" also does that.
drift does both, and gives the digest that every engine gives.

    python -m benchmarks --only spark
"""

from __future__ import annotations

import pickle
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from rich.table import Table

import drift
from benchmarks.rounds import Failed, Options, median
from benchmarks.tables import decimals, integer, medians, table
from benchmarks.workloads import ROOT

_KEYS = (1_000, 100_000)
_BARE = "bare"
_COLUMNS = "bare, columns"
_FRAME = "drift, a DataFrame"
_NAMES = (_BARE, "bare, in order", "drift, a record", "drift, a list", _COLUMNS, _FRAME)
_ROW_GROUPS = 8
_CAPTION = (
    "Items a second, over those of the bare job in the same round, the one on bytes and the one on columns; from input "
    f"on disk, Parquet in {_ROW_GROUPS} row groups (a list: in memory), to the digest of the output in order, and bare "
    "to rows that are thrown away. In a session that has run each before. {medians}."
)

Pair = tuple[int, int]


def key(pair: Pair) -> int:
    return pair[0]


def step(total: int, pair: Pair) -> tuple[int, Pair]:
    return total + pair[1], (pair[0], total + pair[1])


def sums() -> drift.Graph:
    graph = drift.Graph("sums")
    graph.source("pairs").scan(key=key, initial=0, step=step).sink("sums")
    return graph


def bare_sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows sorted by key and meta: a state at a time."""
    known: Any = None
    total = 0
    for batch in batches:
        metas: list[bytes] = []
        payloads: list[bytes] = []
        for each, meta, payload in zip(*(column.to_pylist() for column in batch.columns)):
            if each != known:
                known, total = each, 0
            total, output = step(total, pickle.loads(payload))
            metas.append(meta)
            payloads.append(pickle.dumps(output, 5))
        arrays = [pa.array(metas, pa.binary()), pa.array(payloads, pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, names=["meta", "payload"])


def bare_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same over columns of numbers."""
    known: Any = None
    total = 0
    for batch in batches:
        outputs: list[Pair] = []
        for pair in zip(*(column.to_pylist() for column in batch.columns[:2])):
            if pair[0] != known:
                known, total = pair[0], 0
            total, output = step(total, pair)
            outputs.append(output)
        arrays = [pa.array(list(values), pa.int64()) for values in zip(*outputs)]
        yield pa.RecordBatch.from_arrays([*arrays, batch.column(2)], names=["key", "sum", "time"])


def hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    state = xxhash.xxh3_128()
    for batch in batches:
        for meta, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
            state.update(meta)
            state.update(payload)
    yield pa.RecordBatch.from_pydict({"digest": [state.hexdigest()]})


class _Jobs:
    """The jobs over one input."""

    def __init__(self, session: Any, folder: Path, items: int, keys: int) -> None:
        self._session = session
        self._pairs = [(number * 2654435761 % keys, number % 1000) for number in range(items)]
        self._plain, self._typed, self._record = folder / f"plain{keys}", folder / f"typed{keys}", folder / f"rec{keys}"
        metas = [struct.pack(">Q", number) for number in range(items)]
        names = [str(pair[0]).encode() for pair in self._pairs]
        pickled = [pickle.dumps(pair, 5) for pair in self._pairs]
        binary = {name: pa.array(each, pa.binary()) for name, each in (("key", names), ("meta", metas))}
        rows = -(-items // _ROW_GROUPS)
        plain = pa.table({**binary, "payload": pa.array(pickled, pa.binary())})
        pq.write_table(plain, self._plain, row_group_size=rows)
        left, right = zip(*self._pairs)
        typed = pa.table({"key": left, "value": right, "time": range(items)})
        pq.write_table(typed, self._typed, row_group_size=rows)
        run = drift.run(sums(), {"pairs": self._pairs}, record=self._record)
        rows = [(*pair, number) for number, pair in enumerate(self._pairs)]
        timed = drift.run(sums(), {"pairs": rows}, times={"pairs": drift.EventTime(itemgetter(2))})
        self._digest, self._frame_digest = run.finish().digest, timed.finish().digest

    def run(self, name: str) -> None:
        """One of the jobs, to its end."""
        if name == _COLUMNS:
            self._bare_columns()
            return
        if name.startswith(_BARE):
            self._bare(in_order=name != _BARE)
            return
        if name == "drift, a record":
            report = drift.replay(self._record, sums(), engine="spark", spark=self._session).finish()
        elif name == "drift, a list":
            report = drift.run(sums(), {"pairs": self._pairs}, engine="spark", spark=self._session).finish()
        else:
            frame = self._session.read.parquet(str(self._typed))
            rows = drift.spark.source(frame, payload="tuple", time="time")
            report = drift.run(sums(), {"pairs": rows}, engine="spark", spark=self._session).finish()
        digest = self._frame_digest if name == _FRAME else self._digest
        if report.digest != digest:
            raise Failed(f"{name}: {report.items_out} items with digest {report.digest}, not {digest}")

    def _bare(self, *, in_order: bool) -> None:
        frame = self._session.read.parquet(str(self._plain)).select("key", "meta", "payload")
        tasks = self._session.sparkContext.defaultParallelism
        rows = frame.repartition(tasks, "key").sortWithinPartitions("key", "meta")
        out = rows.mapInArrow(bare_sums, "meta binary, payload binary")
        if in_order:
            out.repartition(1).sortWithinPartitions("meta").mapInArrow(hashed, "digest string").collect()
        else:
            out.write.format("noop").mode("overwrite").save()

    def _bare_columns(self) -> None:
        frame = self._session.read.parquet(str(self._typed)).select("key", "value", "time")
        tasks = self._session.sparkContext.defaultParallelism
        rows = frame.repartition(tasks, "key").sortWithinPartitions("key", "time")
        rows.mapInArrow(bare_columns, "key long, sum long, time long").write.format("noop").mode("overwrite").save()


def spark(options: Options) -> tuple[list[Table], dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="drift-benchmark-"))
    sys.path.append(str(ROOT))
    data: dict[str, Any] = {}
    try:
        with drift.spark.session("local[2]", **{"spark.driver.memory": "3g"}) as session:
            for keys in _KEYS:
                data[str(keys)] = _measured(_Jobs(session, folder, options.items, keys), options, keys)
    finally:
        shutil.rmtree(folder)
    made = table(
        "Spark", ("", "keys", "items/s", "of bare", "of columns"), _CAPTION.format(medians=medians(options.rounds))
    )
    for number, found in data.items():
        made.add_section()
        for name in _NAMES:
            rates = [options.items / seconds for seconds in found[name]]
            ratios = {of: median(bare / own for bare, own in zip(found[of], found[name])) for of in (_BARE, _COLUMNS)}
            made.add_row(name, integer(int(number)), integer(median(rates)), *map(decimals, ratios.values()))
    return [made], data


def _measured(jobs: _Jobs, options: Options, keys: int) -> dict[str, list[float]]:
    """Seconds of each job in each round; a first round only warms up."""
    found: dict[str, list[float]] = {name: [] for name in _NAMES}
    for number in range(options.rounds + 1):
        for name in _NAMES:
            options.report(f"spark: {name}, {keys:,} keys, round {number} of {options.rounds}")
            seconds = _timed(lambda name=name: jobs.run(name))  # type: ignore[misc]
            if number:
                found[name].append(seconds)
    return found


def _timed(job: Callable[[], None]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started
