"""The barrier and its digest, against a model that is too simple to be wrong."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from columns import columns_of, meta_at
from hypothesis import given
from hypothesis import strategies as st
from strategies import payloads

import drift
from drift.columns.rows import Frame
from drift_barrier.barrier import FAILURES, Barrier, Released
from drift_barrier.digest import BLOCK_ITEMS, Digest, block_head, hash_block
from drift_graph.canonical import NoCanonicalForm, canonical, canonical_each, encode_many
from drift_graph.item import Columns, Failure
from drift_graph.meta import END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.payloads import Interleaved


def _rows_of(numbers: list[int]) -> Frame:
    return Frame(pl.DataFrame({"n": numbers}, schema={"n": pl.Int64}))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 900)), max_size=6), st.data())
def test_payloads_of_several_sinks_are_those_of_one_list_however_they_are_cut(
    stretches: list[tuple[int, int]], data: st.DataObject
) -> None:
    owners = [owner for owner, count in stretches for _ in range(count)]
    owners += data.draw(st.lists(st.integers(0, 2), max_size=9))
    of_each: list[list[int]] = [[at for at, each in enumerate(owners) if each == owner] for owner in range(3)]
    made = Interleaved([_rows_of(of_each[0]), of_each[1], _rows_of(of_each[2])], bytes(owners))
    expected = [at if owner == 1 else {"n": at} for at, owner in enumerate(owners)]
    count = len(owners)
    start, end = sorted(data.draw(st.tuples(st.integers(0, count), st.integers(0, count))))
    assert list(made) == expected and list(made[start:end]) == list(made[:end][start:]) == expected[start:end]
    assert made.encoded(start, end) == encode_many(expected[start:end])
    assert made.forms() == list(map(canonical, expected))
    at = data.draw(st.integers(-count, count - 1)) if count else 0
    assert not count or made[at] == expected[at]
    wanted = bytes(data.draw(st.lists(st.integers(0, 1), min_size=end - start, max_size=end - start)))
    assert list(made[start:end].chosen(wanted)) == [value for value, one in zip(expected[start:end], wanted) if one]
    of_first = bytes(owner == 0 for owner in owners)
    assert not of_each[0] or type(made.chosen(of_first)) is Frame


@pytest.mark.parametrize("sinks", [2, 300])
@pytest.mark.parametrize("make", [_rows_of, list])
def test_each_sink_gets_its_own_items_of_a_release(sinks: int, make: Any) -> None:
    barrier, count = Barrier(), 3 * sinks
    numbers = {f"sink {sink}": [*range(sinks - 1 - sink, count, sinks)] for sink in range(sinks)}
    for name, own in numbers.items():
        barrier.add(name, Columns(Metas(map(meta_at, own)), make(own), None))
    released = barrier.release(END_OF_TIME)
    assert released is not None and released.counts == dict.fromkeys(numbers, 3)
    assert list(released.sinks) == [f"sink {sinks - 1 - at % sinks}" for at in range(count)]
    digest = Digest()
    digest.add(released.metas, list(make([*range(count)])))
    assert barrier.digest.hexdigest() == digest.hexdigest()
    rest = released.since(sinks).before(3 * sinks - 1)
    assert rest.counts == {**dict.fromkeys(numbers, 2), released.sinks[-1]: 1}
    for name, own in numbers.items():
        positions, metas, values = released.of(name)
        assert (list(positions), list(metas), list(values)) == (own, list(map(meta_at, own)), list(make(own)))
        assert list(rest.of(name)[2]) == [each for each in make(own[1:]) if each not in make([count - 1])]
    assert [len(each) for each in released.of("another")] == [0, 0, 0]


@given(
    st.dictionaries(st.integers(0, 9), payloads, max_size=6),
    st.lists(st.tuples(st.integers(0, 9), payloads), max_size=6),
    st.data(),
)
def test_the_barrier_releases_what_tombstones_leave_in_order(
    final: dict[int, Any], cancelled: list[tuple[int, Any]], data: st.DataObject
) -> None:
    """Any items, and items with their tombstones, in any order and any batches, over two sinks."""
    changes = [(number, payload, 1) for number, payload in final.items()]
    for number, payload in cancelled:
        changes += [(number, payload, 1), (number, payload, -1)]
    changes = data.draw(st.permutations(changes))
    barrier = Barrier()
    while changes:
        size = data.draw(st.integers(1, len(changes)))
        batch, changes = changes[:size], changes[size:]
        for parity, sink in enumerate(("even", "odd")):
            columns = columns_of([change for change in batch if change[0] % 2 == parity])
            barrier.add(sink, columns)
        if data.draw(st.booleans()):
            barrier._compact()
    released: list[tuple[int, bytes, bytes, str]] = []
    for bound in [*sorted(data.draw(st.lists(st.integers(0, 10), max_size=3))), None]:
        time = END_OF_TIME if bound is None else meta_at(bound)
        piece = barrier.release(time)
        if piece is not None:
            released += rows(piece)
        assert [row[1] for row in released] == [meta_at(number) for number in sorted(final) if meta_at(number) < time]
    assert released == [
        (position, meta_at(number), canonical(final[number]), ("even", "odd")[number % 2])
        for position, number in enumerate(sorted(final))
    ]
    digest = Digest()
    digest.add(Metas([meta_at(number) for number in sorted(final)]), [final[number] for number in sorted(final)])
    assert barrier.digest.hexdigest() == digest.hexdigest()
    assert len(barrier) == 0 and barrier.tombstones == len(cancelled)


def rows(piece: Released) -> list[tuple[int, bytes, bytes, str]]:
    names = [piece.sinks] * len(piece.metas) if isinstance(piece.sinks, str) else piece.sinks
    return [
        (piece.position + at, meta, form, sink)
        for at, (meta, form, sink) in enumerate(zip(piece.metas, canonical_each(piece.payloads), names))
    ]


@pytest.mark.parametrize(
    "changes",
    [
        [(1, "a", 1), (1, "b", 1)],
        [(1, "a", 1), (1, "a", 1)],
        [(1, "a", -1)],
        [(1, "a", 1), (1, "b", -1)],
        [(1, 1, 1), (1, True, -1)],
        [(1, "a", 1), (1, "a", -1), (1, "a", -1)],
    ],
)
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("others", [[], [(0, "c", 1), (2, "c", 1)]])
def test_what_does_not_add_up_at_release_is_a_bug(
    changes: list[tuple[int, Any, int]], apart: bool, others: list[tuple[int, Any, int]]
) -> None:
    barrier = Barrier()
    barrier.add("other", columns_of(others))
    for batch in [[change] for change in changes] if apart else [changes]:
        barrier.add("out", columns_of(batch))
    with pytest.raises(drift.DriftBug):
        barrier.release(END_OF_TIME)


@given(st.permutations([("first", 1), ("first", -1), ("second", 1), ("second", -1), ("third", 1)]), st.booleans())
def test_of_equal_failures_the_last_one_is_reported(changes: list[tuple[str, int]], compacted: bool) -> None:
    barrier = Barrier()
    barrier.add("out", columns_of([(0, "before", 1), (2, "after", 1)]))
    for words, diff in changes:
        barrier.add(FAILURES, columns_of([(1, Failure("step", "ValueError", words, "file:1"), diff)]))
        if compacted:
            barrier._compact()
    piece = barrier.release(END_OF_TIME)
    assert piece is not None and piece.payloads == ["before"]
    assert isinstance(piece.error, drift.StepError) and str(piece.error).startswith("third\n")


def test_what_comes_after_the_release_of_a_greater_item_is_a_bug() -> None:
    barrier = Barrier()
    barrier.add("out", columns_of([(2, "a", 1)]))
    assert barrier.release(meta_at(3)) is not None
    barrier.add("out", columns_of([(1, "b", 1)]))
    with pytest.raises(drift.DriftBug, match="came after"):
        barrier.release(meta_at(3))


def test_an_item_at_minimal_time_is_not_released() -> None:
    barrier = Barrier()
    barrier.add("out", columns_of([(1, "a", 1), (2, "b", 1)]))
    piece = barrier.release(meta_at(2))
    assert piece is not None and piece.payloads == ["a"]


@given(st.lists(payloads | st.text(max_size=2), max_size=30), st.data(), st.sampled_from(["xxh3_128", "sha256"]))
def test_a_digest_does_not_depend_on_batches(given_payloads: list[Any], data: st.DataObject, algorithm: Any) -> None:
    metas = Metas([meta_at(number) for number in range(len(given_payloads))])
    whole, pieces = Digest(algorithm), Digest(algorithm)
    whole.add(metas, given_payloads)
    at = 0
    while at < len(metas):
        size = data.draw(st.integers(1, len(metas)))
        pieces.add(metas[at : at + size], given_payloads[at : at + size])
        at += size
    assert whole.hexdigest() == pieces.hexdigest()


@pytest.mark.parametrize("make", [_rows_of, lambda numbers: [{"n": number} for number in numbers]])
@pytest.mark.parametrize("sizes", [[15_000], [1000] * 15, [96, 4000, 4096, 1, 6807], [1000, 14_000]])
def test_items_of_several_blocks_are_in_the_digest_once_and_their_bytes_are_kept_if_asked(
    make: Any, sizes: list[int]
) -> None:
    metas = Metas([meta_at(number) for number in range(15_000)])
    expected, digest, kept = Digest(), Digest(), Digest()
    for number in range(15_000):
        expected.add(metas[number : number + 1], [{"n": number}])
    start = 0
    for size in sizes:
        items = metas[start : start + size], make([*range(start, start + size)])
        assert digest.add(*items) == []
        parts = kept.add(*items, keeps=True)
        assert sum(part.items for part in parts) == size
        assert b"".join(part.metas for part in parts) == items[0].encoded()
        assert b"".join(part.payloads for part in parts) == encode_many(list(items[1]))
        start += size
    for made in (digest, kept):
        assert made.blocks == expected.blocks and made.open_block() == expected.open_block()
        assert made.hexdigest() == expected.hexdigest()


class _WithoutForms(Frame):
    """Rows of which those from one on have no form, as it shows when it is asked for."""

    __slots__ = ()

    def encoded(self, start: int = 0, stop: int | None = None) -> bytes:
        if stop is None or stop > 2 * BLOCK_ITEMS:
            raise NoCanonicalForm(object)
        return super().encoded(start, stop)


@pytest.mark.parametrize("before", [0, 10])
def test_where_a_later_block_has_no_form_no_item_is_in_the_digest(before: int) -> None:
    metas = Metas([meta_at(number) for number in range(before + 3 * BLOCK_ITEMS)])
    digest = Digest()
    digest.add(metas[:before], [*range(before)])
    had = digest.blocks.copy(), digest.open_block()
    rows = _WithoutForms(pl.DataFrame({"n": range(3 * BLOCK_ITEMS)}))
    with pytest.raises(NoCanonicalForm):
        digest.add(metas[before:], rows)  # type: ignore[arg-type]
    assert (digest.blocks, digest.open_block()) == had


def test_blocks_of_a_digest_can_be_hashed_separately() -> None:
    count = 2 * BLOCK_ITEMS + 5
    metas = Metas([meta_at(number) for number in range(count)])
    given_payloads = [(number, None, float(number)) for number in range(count)]
    digest = Digest()
    for start in range(0, count, 1000):
        digest.add(metas[start : start + 1000], given_payloads[start : start + 1000])
    hashes = []
    for start in range(0, count, BLOCK_ITEMS):
        block = slice(start, start + BLOCK_ITEMS)
        head, between = block_head(len(metas[block]))
        data = head + metas[block].encoded() + between + encode_many(given_payloads[block])
        hashes.append(hash_block("xxh3_128", data))
    assert digest.blocks == hashes[:2]
    assert digest.hexdigest() == hash_block("xxh3_128", b"".join(hashes)).hex()


def test_a_barrier_lets_go_of_what_it_released_where_an_item_of_the_batch_is_far_ahead() -> None:
    barrier = Barrier()
    for start in range(0, 2000, 20):
        batch = [(number, number, 1) for number in range(start, start + 20)]
        barrier.add("out", columns_of([*batch, (10**6 + start, start, 1)]))
        barrier.release(meta_at(start + 20))
    assert len(barrier) == 100 and sum(len(run.metas) for _, _, run in barrier._heap) == 100
    assert all(len(run.payloads) == 1 for _, _, run in barrier._heap)
