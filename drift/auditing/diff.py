"""Compares two records: graphs, versions, input, late items, outputs.

Invariant: nothing in either record is run or imported, so untrusted records can be compared; memory does not grow with
their size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import Any, NamedTuple

import xxhash

from drift.auditing.outputs import KINDS, Difference, Example, OutputRow, difference, rows_of_record
from drift.auditing.replay import changes_to
from drift.records.changes import Change
from drift.records.columns import GLOBAL_TIME, metas_of
from drift.records.environment import differences
from drift.records.reader import Record
from drift.records.shown import readable
from drift_graph.called import called
from drift_graph.functions import safe_text
from drift_graph.meta import MetaParts

_CHARACTERS_MAX = 500
_PAYLOAD_CHARACTERS_MAX = 2000


class InputRow(NamedTuple):
    """An input item in stored form."""

    source: str
    global_time: bytes
    data: bytes


@dataclass(frozen=True)
class InputDifference:
    """How two inputs differ.

    Attributes:
        counts: items of the one and of the other.
        same: whether all items are the same, with the same global times, in the same order of arrival.
        reordered: whether the items are the same, in another order of arrival.
        row: index of the first item, in the order of arrival, that differs; None if none does.
    """

    counts: tuple[int, int]
    same: bool
    reordered: bool = False
    row: int | None = None
    one: InputRow | None = None
    other: InputRow | None = None


@dataclass(frozen=True)
class RecordsDiffer:
    """How two records differ.

    Attributes:
        changes: of the graph, from the one to the other.
        versions: (name, in the one, in the other) of drift, Python, platform and packages that differ.
        settings: the same for engine, workers and other settings; these never change an output.
        input: of all input items.
        late: (diverted by the one, by the other), and whether these are the same items.
        outputs: item by item; the one is the old.
    """

    changes: tuple[Change, ...]
    versions: tuple[tuple[str, str, str], ...]
    settings: tuple[tuple[str, str, str], ...]
    input: InputDifference
    late: tuple[int, int, bool]
    outputs: Difference
    digests: tuple[str, str]

    @property
    def same(self) -> bool:
        """Whether both record one computation: same input in any order of arrival, same graph, same output."""
        return (
            self.outputs.same
            and (self.input.same or self.input.reordered)
            and not any(change.matters for change in self.changes)
        )

    def __str__(self) -> str:
        """What `drift diff` prints."""
        from drift.auditing.text import diff_lines

        return "\n".join(diff_lines(self))

    def as_dict(self) -> dict[str, Any]:
        return {
            "same": self.same,
            "graph": {
                "same": not any(change.matters for change in self.changes),
                "changes": [change.as_dict() for change in self.changes],
            },
            "versions": [list(each) for each in self.versions],
            "settings": [list(each) for each in self.settings],
            "input": {
                "same": self.input.same,
                "reordered": self.input.reordered,
                "items": list(self.input.counts),
                "row": self.input.row,
                "one": _row_as_dict(self.input.one),
                "other": _row_as_dict(self.input.other),
            },
            "late": {"same": self.late[2], "items": list(self.late[:2])},
            "output": {"digests": list(self.digests), **_difference_as_dict(self.outputs)},
        }


@called
def diff(one: Any, other: Any) -> RecordsDiffer:
    """Compare two records.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> for name, fares in (("monday", [30, 9]), ("tuesday", [30, 10])):
    ...     report = drift.run(graph, {"fares": fares}, record=name).finish()
    >>> print(drift.diff("monday", "tuesday"))
    graph     the same
    input     differs, 2 and 2 items; first at item 1:
        one    fares at 1  9
        other  fares at 1  10
    output    1 changed, 0 missing, 0 added, 1 the same
        first changed: sink 'out', time 1
            one    position 1  9
            other  position 1  10

    Args:
        one, other: paths of records.

    Raises:
        RecordError: one of them cannot be read.
    """
    left = one if isinstance(one, Record) else Record(one)
    right = other if isinstance(other, Record) else Record(other)
    manifests = left.manifest, right.manifest
    graphs = [manifest.fingerprint for manifest in manifests]
    return RecordsDiffer(
        changes=tuple(changes_to(left, graphs[1], right)) if graphs[1] is not None else (),
        versions=tuple(differences(*(manifest.environment for manifest in manifests))),
        settings=tuple(_settings(*manifests)),
        input=input_difference(left, right),
        late=(manifests[0].late_items, manifests[1].late_items, _same_late(left, right)),
        outputs=difference(rows_of_record(left), rows_of_record(right)),
        digests=(manifests[0].digest, manifests[1].digest),
    )


def _settings(one: Any, other: Any) -> Iterator[tuple[str, str, str]]:
    settings = [{"engine": each.engine, "workers": each.workers, **each.settings} for each in (one, other)]
    for name in dict.fromkeys([*settings[0], *settings[1]]):
        if settings[0].get(name) != settings[1].get(name):
            yield name, str(settings[0].get(name)), str(settings[1].get(name))


def input_difference(one: Record, other: Record) -> InputDifference:
    """Compare all input items in the order of their arrival."""
    counts = one.manifest.items_in, other.manifest.items_in
    same = _same_rows(one, other)
    first: tuple[int, InputRow | None, InputRow | None] | None = None
    sums = [0, 0]
    for row, pair in enumerate(zip_longest(_input_rows(one, same), _input_rows(other, same)), same):
        if first is None and pair[0] != pair[1]:
            first = row, *pair
        for side, each in enumerate(pair):
            if each is not None:  # a sum does not depend on the order
                sums[side] = (sums[side] + _hash(each)) % 2**128
    if first is None:
        return InputDifference(counts, same=True)
    return InputDifference(counts, False, counts[0] == counts[1] and sums[0] == sums[1], *first)


def _same_rows(one: Record, other: Record) -> int:
    """A lower bound, by blocks, on how many leading rows of the inputs are the same."""
    if one.manifest.algorithm != other.manifest.algorithm or one.manifest.sources != other.manifest.sources:
        return 0
    pairs = zip(one.blocks("input"), other.blocks("input"))
    return sum(mine.rows for mine, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _input_rows(record: Record, first: int) -> Iterator[InputRow]:
    for batch in record.input_rows(first, record.manifest.items_in):
        sources, metas = batch.column("source").to_pylist(), metas_of(batch, GLOBAL_TIME).to_pylist()
        yield from map(InputRow, sources, metas, batch.column("payload").to_pylist())


def _hash(row: InputRow) -> int:
    head = b"".join(len(part).to_bytes(4, "big") + part for part in (row.source.encode(), row.global_time))
    return xxhash.xxh3_128_intdigest(head + row.data)


def _same_late(one: Record, other: Record) -> bool:
    """Whether the same items were diverted, in the same order."""
    # without the reason, which is a text of this library
    rows = ((row[:4] for row in record.late_rows()) for record in (one, other))
    return all(left == right for left, right in zip_longest(*rows))


def _row_as_dict(row: InputRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    payload = safe_text(repr, readable(row.data), _CHARACTERS_MAX)
    return {"source": row.source, "time": MetaParts(row.global_time).time, "payload": payload,
            "global_time": row.global_time.hex()}  # fmt: skip


def _difference_as_dict(found: Difference) -> dict[str, Any]:
    return {
        "same": found.same,
        "counts": vars(found.counts),
        "by_sink": {sink: vars(counts) for sink, counts in found.by_sink.items()},
        "first": {kind: list(map(_example_as_dict, found.first[kind])) for kind in KINDS},
    }


def _example_as_dict(example: Example) -> dict[str, Any]:
    both = {side: _output_as_dict(row) for side, row in (("old", example.old), ("new", example.new))}
    return {"sink": example.row.sink, "time": example.time, **both}


def _output_as_dict(row: OutputRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    payload = safe_text(repr, readable(row.data), _PAYLOAD_CHARACTERS_MAX)
    return {"position": row.position, "meta": row.meta.hex(), "payload": payload}
