"""Laws of records, over generated dataflows and inputs: what is recorded replays, wherever the record ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from framed import frame, written
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Case, arrival_inputs, event_inputs, recipes

import drift
from drift.auditing.replay import replayed
from drift.auditing.reproduced import Inquiry, check_simulated
from drift.parent import head_of
from drift.records import recorder
from drift.records.messages import Begin, Message
from drift.records.reader import Record
from drift_graph.canonical import canonical, stored


class Kept(recorder.Recorder):
    """A recorder whose frames are kept, in place of a process that is given them."""

    frames: list[bytes]

    def start(self) -> None:
        self.frames = []
        self._process = mock.Mock(write=lambda body: self.frames.append(head_of(body) + body))
        self._manifest.started = "2026-01-01T00:00:00+00:00"

    def close(self) -> None:
        pass


class Found(NamedTuple):
    """What came out of a run."""

    items: list[tuple[int, bytes, str, bytes]]
    error: tuple[str, str] | None
    late: list[tuple[Any, ...]]


def taken(run: drift.Run) -> Found:
    items: list[tuple[int, bytes, str, bytes]] = []
    error = None
    try:
        items.extend((item.position, item.meta, item.sink, canonical(item.payload)) for item in run)
    except drift.DriftError as raised:
        assert not isinstance(raised, drift.DriftBug)
        error = type(raised).__name__, str(raised)
    return Found(items, error, late_rows(run.late))


@st.composite
def recorded_cases(draw: st.DrawFn) -> Case:
    recipe = draw(recipes(3, 6, failing=True))
    some = arrival_inputs() | event_inputs() | event_inputs(late="divert")
    return Case(recipe, draw(st.lists(some, min_size=recipe.sources, max_size=recipe.sources)))


def recorded(case: Case, folder: Path, **settings: Any) -> tuple[Found, list[bytes]]:
    """A run, and the frames that it told after the first one."""
    made: list[Kept] = []

    def keep(*arguments: Any) -> Kept:
        made.append(Kept(*arguments))
        return made[0]

    with mock.patch.object(recorder, "Recorder", keep):
        found = taken(drift.run(case.dataflow(), case.sources(), record=folder / "none", **settings))
    manifest = recorder.msgspec.json.encode(made[0]._manifest)
    begin: Message = Begin(str(folder), manifest, 5, 1 << 20, 1000.0)
    return found, [frame(begin), *made[0].frames]


@contextmanager
def writing(frames: list[bytes], folder: Path) -> Iterator[Record]:
    with mock.patch("os.fsync"):
        written(b"".join(frames))
    yield Record(folder)


def late_rows(late: Iterable[drift.Late]) -> list[tuple[Any, ...]]:
    """Late items with the bytes of their payloads: a NaN does not equal itself."""
    return [(each._replace(payload=None), stored(each.payload)) for each in late]


@given(recorded_cases(), st.sampled_from([1, 3, 100]), st.sampled_from([1, 2, 100]), st.integers(0, 99))
@settings(max_examples=settings.default.max_examples // 6)
def test_a_replay_gives_what_the_run_gave(case: Case, batch_items: int, again_items: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found, frames = recorded(case, folder, batch_items=batch_items)
        with writing(frames, folder) as record:
            rows = [(item.position, item.meta, item.sink, canonical(item.payload)) for item in record.items()]
            assert rows == found.items
            assert late_rows(record.late()) == found.late
            for engine in ("local", "reference"):
                run = replayed(record, case.dataflow(), {"batch_items": again_items}, engine=engine)
                assert taken(run) == found
            assert drift.audit(folder, reproduce=False).troubles == []
            assert check_simulated(record, case.dataflow(), seed, Inquiry()).result == "ok"


@given(recorded_cases(), st.sampled_from([1, 3]), st.integers(0, 10_000), st.integers(0, 30))
@settings(max_examples=settings.default.max_examples // 6)
def test_wherever_a_record_ends_its_replay_begins_with_what_it_has(
    case: Case, batch_items: int, cut: int, torn: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found, frames = recorded(case, folder, batch_items=batch_items)
        cut = 1 + cut % (len(frames) - 1)
        with writing([*frames[:cut], frames[cut][: min(torn, len(frames[cut]) - 1)]], folder) as record:
            assert record.manifest.outcome.state == "broken off"
            rows = [(item.position, item.meta, item.sink, canonical(item.payload)) for item in record.items()]
            assert rows == found.items[: len(rows)]
            again = taken(replayed(record, case.dataflow(), engine="local"))
            assert again.items[: len(rows)] == rows
            assert again.items == found.items[: len(again.items)]
            assert drift.audit(folder, reproduce=False).troubles == []
