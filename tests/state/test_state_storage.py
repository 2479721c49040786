"""Where the state of a run is stored, in trouble: damaged, full, read-only, removed, away, or back with older data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import psycopg
import pytest
import redis
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.client import Pipeline
from servers import Redis, redis_server
from waiting import HANG_S, wait_until, wait_until_stored

import drift
import drift.state.store
from drift.cli.check import check_command
from drift.cli.errors import exit_code
from drift.cli.state import state_group
from drift.sinks.contents import BLOCK_BYTES, ContentHash
from drift.state import base, by_hash
from drift.state.backend import Away, Expected
from drift.state.base import Base
from drift.state.checkpoint import StateDamaged
from drift.state.files import FilesBackend
from drift.state.folding import Folding
from drift.state.patience import Patience
from drift.state.redis import RedisBackend
from drift.state.run_checkpoints import RunCheckpoints, known

ITEMS = 2000


def counting(state: int, item: int) -> tuple[int, tuple[int, int]]:
    return state + 1, (item, state + 1)


def counted() -> drift.Graph:
    """Counts by key, sessions with timers, and items for later."""
    graph = drift.Graph("counted")
    items = graph.source("items", time=drift.EventTime(int, lateness=0))
    items.scan(lambda item: item % 97, 0, counting, name="counting").sink("counts")
    items.key_by(lambda item: item % 7).window(drift.windows.session(gap=5)).count().sink("sessions")
    items.map(lambda item: drift.at(item + 30, item), later=True).sink("later")
    return graph


graph = counted().build()


def items_of(run: drift.Run) -> list[Any]:
    return [(item.position, item.sink, item.meta, item.payload) for item in run]


def started(state: Any, **more: Any) -> drift.Run:
    return drift.run(graph, {"items": range(ITEMS)}, state=state, batch_items=100, **more)


class Whole:
    """What a run without trouble gives."""

    def __init__(self, items: list[Any], digest: str) -> None:
        self.items = items
        self.digest = digest


@pytest.fixture(scope="module")
def whole() -> Whole:
    run = drift.run(graph, {"items": range(ITEMS)})
    return Whole(items_of(run), run.report.digest)


def some_checkpoints(where: Path | str, keep: int, *, kill: bool = False) -> None:
    """A run that is broken off behind some checkpoints, the oldest of which were merged."""
    with mock.patch.object(drift.state.store, "_FOLDED_BYTES", 1):
        run = drift.run(
            graph, {"items": range(ITEMS)}, state=drift.Checkpoints(where, every_s=0, keep=keep), batch_items=200
        )
        for batch in run.batches():
            wait_until_stored(run)
            if batch.position > 2.5 * ITEMS:
                break
        run.close()


# Damages.


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("templates")
    for keep in (1, 3):
        some_checkpoints(folder / str(keep), keep)
        assert sorted(path.name for path in (folder / str(keep) / "hashes").iterdir()) == ["0000000000"]
    return {keep: folder / str(keep) for keep in (1, 3)}


DAMAGES = ("flip", "noise", "truncate", "zero", "remove", "swap", "append", "folder")


def damage(kind: str, path: Path, other: Path, at: float, bit: int) -> None:
    data = bytearray(path.read_bytes())
    begin = min(int(at * len(data)), max(len(data) - 1, 0))
    if kind == "remove":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind == "swap":
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif kind == "truncate":
        os.truncate(path, begin)
    elif kind == "append":
        path.write_bytes(data + bytes([bit]) * 100)
    elif data:
        if kind == "flip":
            data[begin] ^= 1 << bit
        elif kind == "zero":
            data[begin : begin + 16] = bytes(len(data[begin : begin + 16]))
        else:
            data[begin : begin + 64] = bytes((each * 31 + bit) % 256 for each in data[begin : begin + 64])
        path.write_bytes(data)


@given(
    st.sampled_from([1, 3]),
    st.sampled_from(DAMAGES),
    st.integers(0, 99),
    st.integers(0, 99),
    st.floats(0, 1),
    st.integers(0, 7),
)
@settings(
    max_examples=2 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_whatever_is_damaged_there_is_one_clear_error_or_the_right_output(
    templates: dict[int, Path],
    whole: Whole,
    tmp_path_factory: pytest.TempPathFactory,
    keep: int,
    kind: str,
    file: int,
    other: int,
    at: float,
    bit: int,
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "state"
    shutil.copytree(templates[keep], folder)
    # The base is half of what is drawn: it has the most to lose.
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    of_base = sorted((folder / "base").iterdir())
    paths += of_base * (len(paths) // len(of_base))
    damage(kind, paths[file % len(paths)], paths[other % len(paths)], at, bit)
    for command, arguments in (
        (state_group, ["list", str(folder)]),
        (state_group, ["show", str(folder)]),
        (check_command, [f"{__file__}:graph", "--state", str(folder)]),
    ):
        done = CliRunner().invoke(command, arguments)
        if not isinstance(done.exception, SystemExit):
            check_clear(done.exception)
    run: drift.Run | None = None
    try:
        run = drift.run(graph, {"items": range(ITEMS)}, state=folder)
        begin = run.resumed_from.output.position if run.resumed_from is not None else 0
        found = items_of(run)
    except drift.DriftError as error:
        check_clear(error)
    else:
        assert found == whole.items[begin:] and run.report.digest == whole.digest
    finally:
        if run is not None:
            run.close()


_ADVICE = ("start a new run", "resume", "run again", "name the one", "name a folder", "has no checkpoints")


def check_clear(error: BaseException | None) -> None:
    """One error of storage, or of settings, which says what to do."""
    if error is None:
        return
    assert isinstance(error, (drift.StorageError, drift.SettingsError)), repr(error)
    assert exit_code(error) in (2, 9)
    assert any(said in str(error) for said in _ADVICE)


@given(st.lists(st.dictionaries(st.binary(max_size=3), st.binary(max_size=40) | st.none(), max_size=60), max_size=8))
@settings(deadline=None)
def test_a_base_has_what_a_dictionary_has(tmp_path_factory: pytest.TempPathFactory, writes: list[Any]) -> None:
    path = tmp_path_factory.mktemp("base") / "base"
    written, expected = Base(path), {}
    reader = Base(path)
    for rows in writes:
        written.write({"one": rows, "other": {key: value for key, value in rows.items() if value}})
        expected.update(rows)
        expected = {key: value for key, value in expected.items() if value is not None}
        assert reader.sizes("one") == {key: len(value) for key, value in expected.items()}
    keys = [*expected, b"no such key", *(key for rows in writes for key in rows)]
    assert reader.read("one", keys) == [expected.get(key) for key in keys]
    assert reader.read("none", keys) == [None] * len(keys) and reader.sizes("none") == {}
    with mock.patch.object(by_hash, "_KEYS", 1):  # many chunks
        for number in range(40):
            written.write({"one": {b"new %d" % number: b"x"}})
        assert len(reader.sizes("one")) == len(expected) + 40
        assert reader.read("one", keys) == [expected.get(key) for key in keys]
    assert len(list(path.iterdir())) < 10  # files are merged
    written.close()
    reader.close()


class Killed(BaseException):
    """The process ends here."""


class Steps:
    """Calls functions, up to the nth call."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left <= 0:
                raise Killed
            return function(*arguments, **named)

        return called


@pytest.mark.parametrize("merges_all", [False, True])
def test_a_write_that_ends_anywhere_leaves_all_tables_as_they_were_or_as_they_are_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merges_all: bool
) -> None:
    kept = Base(tmp_path / "base")
    expected: dict[bytes, bytes | None] = {}
    for number in range(7):
        rows: dict[bytes, bytes | None] = {b"%d" % key: b"%d" % number for key in range(number, 40)}
        expected.update(rows)
        kept.write({"one": rows})
    done = 0
    for nth in count(1):  # the write ends at its nth step
        folder = tmp_path / f"at {nth}"
        shutil.copytree(tmp_path / "base", folder)
        steps = Steps(nth)
        new: dict[bytes, bytes | None] = {b"3": None, b"4": b"new", b"more": b"new"}
        with monkeypatch.context() as patched:
            for owner, name in ((os, "fsync"), (base, "sync"), (Path, "replace"), (Path, "unlink")):
                patched.setattr(owner, name, steps.of(getattr(owner, name)))
            try:
                Base(folder, merges_all=merges_all).write({"one": new, "other": {b"x": b"y"}})
                killed = False
            except Killed:
                killed = True
        found = {key: value for key, value in zip(KEYS, Base(folder).read("one", KEYS)) if value is not None}
        after = {key: value for key, value in {**expected, **new}.items() if value is not None}
        assert found in (expected, after)
        assert (Base(folder).read("other", [b"x"]) == [b"y"]) == (found == after)
        done += found == after
        Base(folder).write({"one": new})  # what was left over is in nobody's way
        assert [Base(folder).read("one", [key])[0] for key in after] == list(after.values())
        names = {path.name for path in folder.iterdir()}
        assert names == {"list", *(file.name for file in Base(folder)._opened())}
        if not killed:
            break
    assert 1 < done < nth


KEYS = [*(b"%d" % key for key in range(40)), b"more"]


def test_no_byte_of_a_base_can_change_and_make_a_key_look_new_or_old(tmp_path: Path) -> None:
    written = Base(tmp_path / "base")
    written.write({"one": {b"%d" % key: b"first" for key in range(60)}})
    written.write({"one": {b"1": b"second", b"2": None}, "other": {b"x": b"y"}})
    keys = [b"%d" % key for key in range(61)]
    expected = written.read("one", keys)
    chosen = Random(1)
    refused = 0
    for path in sorted((tmp_path / "base").iterdir()):
        data = path.read_bytes()
        for at in sorted(chosen.sample(range(len(data)), min(len(data), 300))):
            changed = bytearray(data)
            changed[at] ^= 1 << chosen.randrange(8)
            path.write_bytes(changed)
            for key, value in zip(keys, expected):
                try:
                    assert Base(tmp_path / "base").read("one", [key]) == [value]
                except StateDamaged as error:
                    refused += 1
                    assert str(path) in str(error)
        path.write_bytes(data)
    assert refused > 1000


def test_a_small_write_does_not_rewrite_what_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Base._written

    def noted(self: Base, *arguments: Any, **named: Any) -> Any:
        listed = write(self, *arguments, **named)
        written.append(listed.size)
        return listed

    monkeypatch.setattr(Base, "_written", noted)
    monkeypatch.setattr(base, "_MERGED_BYTES", 1 << 14)
    kept = Base(tmp_path / "base")
    kept.write({"one": {b"%d" % key: b"0" for key in range(20_000)}})
    large = written.pop()
    for number in range(1, 200):
        kept.write({"one": {b"%d" % key: b"%d" % number for key in range(20 * number, 20 * number + 20)}})
    assert max(written) < (1 << 14) + 4096 < large and sum(written) < 4 * 200 * written[0]
    assert kept.is_behind
    deputy = Base(tmp_path / "base", merges_all=True)
    for key in (b"5", *[b"6"] * 8):
        deputy.write({"one": {key: None}})
    assert not kept.is_behind and len(list((tmp_path / "base").iterdir())) < 24
    assert kept.read("one", [b"4", b"5", b"20", b"3999", b"4000"]) == [b"0", None, b"1", b"199", b"0"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_process_that_cannot_fold_says_why(tmp_path: Path, killed: bool) -> None:
    some_checkpoints(tmp_path, 3)
    backend = FilesBackend(tmp_path)
    backend.open()
    newest = known(tmp_path)[-1]
    for path in (tmp_path / "snapshots").iterdir():
        path.unlink()
    folding = Folding(backend, newest, away_max_s=1.0)
    if killed:
        folding._process.kill()
    why = "process .* was killed by SIGKILL" if killed else "snapshot .* was removed"
    with pytest.raises(drift.StorageError, match=f"older checkpoints in {tmp_path} cannot be merged: {why}"):
        folding.is_done(wait=True)
    backend.close()


def test_the_form_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    some_checkpoints(tmp_path, 3)
    with (
        mock.patch.object(drift.state.checkpoint, "FORMAT", 4),
        pytest.raises(drift.StorageError, match="has format 3"),
    ):
        drift.run(graph, {"items": range(ITEMS)}, state=tmp_path)


# A folder that cannot be written.


def full(path: Path, data: bytes) -> None:
    raise OSError(28, "No space left on device")


def over_quota(path: Path, data: bytes) -> None:
    raise OSError(122, "Disk quota exceeded")


def read_only(path: Path, data: bytes) -> None:
    raise OSError(30, "Read-only file system")


def removed(path: Path, data: bytes) -> None:
    shutil.rmtree(path.parent.parent, ignore_errors=True)
    path.write_bytes(data)


@pytest.mark.parametrize("fault", [full, over_quota, read_only, removed])
@pytest.mark.parametrize("engine", ["local", "zeromq"])
def test_a_folder_that_cannot_be_written_is_an_error_of_storage(
    tmp_path: Path, fault: Callable[[Path, bytes], None], engine: str
) -> None:
    folder = tmp_path / "state"
    run = drift.run(
        graph, {"items": range(ITEMS)}, engine=engine, state=drift.Checkpoints(folder, every_s=0), batch_items=100
    )  # type: ignore[call-overload]
    batches = run.batches()
    next(batches)
    wait_until_stored(run)
    with (
        mock.patch.object(drift.state.files, "_write", fault),
        pytest.raises(drift.StorageError, match=r"cannot be written to .*state: .*; .* run again") as ended,
    ):
        for _ in batches:
            pass
    assert exit_code(ended.value) == 9


def test_what_ctrl_c_leaves_to_be_written_is_written_before_what_is_told_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the thread that writes has its work, and nobody has noted yet that there is some."""
    graph, state = drift.Graph("interrupted"), tmp_path / "state"
    graph.source("numbers").sink("out")
    write, told, steps = FilesBackend.write, threading.Event(), list[str]()

    class Interrupted(drift.state.store.ThreadPoolExecutor):
        def submit(self, *arguments: Any, **more: Any) -> Any:
            super().submit(*arguments, **more)
            wait_until(lambda: steps, "the checkpoint is being written")
            raise KeyboardInterrupt

        def shutdown(self, *arguments: Any, **more: Any) -> None:
            told.set()
            super().shutdown(*arguments, **more)

    def watched(self: FilesBackend, *arguments: Any) -> None:
        steps.append("begins")
        if len(steps) == 1:
            assert told.wait(HANG_S)
        told.set()
        write(self, *arguments)
        steps.append("ends")

    monkeypatch.setattr(drift.state.store, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(FilesBackend, "write", watched)
    with pytest.raises(KeyboardInterrupt):
        drift.run(graph, {"numbers": range(50)}, state=drift.Checkpoints(state, every_s=0), batch_items=10).finish()
    assert len(steps) > 2 and steps == ["begins", "ends"] * (len(steps) // 2), "one write ends before the next begins"


@pytest.mark.parametrize(
    ("items", "store", "stored"),
    [(10**9, "state", 1), (10**9, "state/segments/1", 1), (1000, "state", 1), (5, "state", 2)],
    ids=["running", "of a segment", "all read", "all but its history stored"],
)
def test_the_first_ctrl_c_ends_a_run_whose_state_is_away(
    items: int,
    store: str,
    stored: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph, write, calls = drift.Graph("away"), FilesBackend.write, count()
    numbers = graph.source("numbers")
    (numbers if store == "state" else numbers.call(abs, name="abs", timeout_s=None)).sink("out")
    checkpoints = list[bytes]()  # in that store

    def run() -> drift.Run:
        state = drift.Checkpoints(tmp_path / "state", every_s=0, away_max_s=60)
        return drift.run(graph, {"numbers": range(items)}, state=state, batch_items=10)

    def away(self: FilesBackend, changes: Any, *arguments: Any) -> None:
        if self.where != str(tmp_path / store) or len(checkpoints) < stored:
            write(self, changes, *arguments)
            checkpoints.extend(changes.get("cuts", {}) if self.where == str(tmp_path / store) else ())
            return
        if next(calls) == 5:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        raise Away("no route")

    monkeypatch.setattr(FilesBackend, "write", away)
    with pytest.raises(KeyboardInterrupt):
        run().finish()
    said = [line for line in caplog.messages if "waited for" in line]
    assert ["is waited for" in line for line in said] == [True, False] and "not waited for any more" in said[1]
    monkeypatch.setattr(FilesBackend, "write", write)
    with run() as again:
        position = again.resumed_from.output.position if again.resumed_from is not None else 0
        assert (position > 0) or store != "state"
        assert [item.payload for item in islice(again, 10_000)] == list(range(position, min(position + 10_000, items)))


def test_ctrl_c_at_any_line_of_the_end_of_a_run_whose_state_is_away_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, here = FilesBackend.write, str(Path(drift.__file__).parent)
    stored, commits, lines, attempts, at, waits = list[bytes](), 0, count(), count(), 0, False

    def away(self: FilesBackend, changes: Any, *arguments: Any) -> None:
        if not stored:
            write(self, changes, *arguments)
            stored.extend(changes.get("cuts", {}))
            return
        if waits and next(attempts) == 5:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        raise Away("no route")

    def interrupt(frame: Any, event: str, argument: Any) -> Any:
        nonlocal commits, waits
        code = frame.f_code
        if code.co_filename == drift.state.store.__file__:
            commits += (event, code.co_name) == ("return", "commit")
            waits = waits or (commits >= 2 and (code.co_name, frame.f_back.f_code.co_name) == ("wait", "wait"))
        counts = commits >= 2 and not waits and event in ("call", "line") and code.co_filename.startswith(here)
        if counts and next(lines) == at:
            raise KeyboardInterrupt
        return interrupt

    monkeypatch.setattr(FilesBackend, "write", away)
    graph = drift.Graph("away")
    graph.source("numbers").sink("out")
    while not waits:
        commits, lines, attempts, state = 0, count(), count(), tmp_path / f"{at}"
        stored.clear()
        caplog.clear()
        run = drift.run(graph, {"numbers": range(60)}, state=drift.Checkpoints(state, every_s=0), batch_items=10)
        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                run.finish()
        finally:
            sys.settrace(None)
        assert sum("not waited for any more" in line for line in caplog.messages) == 1, at
        at += 9
    assert at > 90


def test_a_folder_that_was_removed_and_made_again_during_the_run_gets_no_checkpoint_above_the_gap(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    run = started(drift.Checkpoints(folder, every_s=0))
    batches = run.batches()
    next(batches)
    next(batches)
    wait_until_stored(run)
    shutil.rmtree(folder)
    shutil.copytree(Path(__file__).parents[1] / "data", folder, ignore=lambda *_: [])
    for each in ("cuts", "snapshots", "opened", "hashes"):
        (folder / each).mkdir()
    with pytest.raises(drift.StorageError, match="lacks what this run has stored there"):
        for _ in batches:
            pass
    assert not list((folder / "cuts").iterdir())


# Servers that are away, or come back with older data.


@pytest.fixture
def restarting() -> Iterator[Redis]:
    """A server of a test's own, which keeps what it is told to save."""
    with redis_server() as server:
        yield server


@contextmanager
def merging_at_once() -> Iterator[None]:
    with mock.patch.object(drift.state.store, "_FOLDED_BYTES", 1):
        yield


@pytest.mark.parametrize("saved", [2, 4])
def test_a_server_that_comes_back_with_older_data_ends_the_run_and_the_next_one_resumes(
    restarting: Redis, whole: Whole, saved: int
) -> None:
    checkpoints = drift.Checkpoints(f"{restarting.url}#run", every_s=0, keep=2)
    with merging_at_once():
        run = started(checkpoints)
        seen: list[Any] = []
        with pytest.raises(drift.StorageError, match="lacks what this run has stored there") as ended:
            for number, batch in enumerate(run.batches()):
                seen += batch.payloads
                wait_until_stored(run)
                if number == saved:
                    restarting.save()
                if number == 8:
                    restarting.kill()
                    restarting.start()
    run.close()
    assert exit_code(ended.value) == 9 and "appendonly" in str(ended.value)
    items, digest = whole.items, whole.digest
    assert seen == [payload for *_, payload in items[: len(seen)]]
    again = started(checkpoints)
    assert again.resumed_from is not None and 0 < again.resumed_from.output.position < len(seen)
    assert items_of(again) == items[again.resumed_from.output.position :] and again.report.digest == digest


@pytest.mark.parametrize("has_lock", [False, True], ids=["no lock", "that of an earlier run"])
@pytest.mark.parametrize("number", [0, 6])
def test_a_server_that_comes_back_without_the_lock_of_the_run_has_older_data_and_no_other_process(
    restarting: Redis, whole: Whole, number: int, has_lock: bool
) -> None:
    """Before the first checkpoint as well: a sink there has lost what it had; no run resumes from a checkpoint above
    that.
    """
    checkpoints = drift.Checkpoints(f"{restarting.url}#run", every_s=0)

    def run() -> drift.Run:
        sinks = {"counts": drift.sinks.redis(restarting.url, "counts")}
        return drift.run(graph, {"items": range(ITEMS)}, state=checkpoints, batch_items=100, sinks=sinks)

    if has_lock:
        run().close()
        restarting.save()
    first = run()
    assert isinstance(first._run_checkpoints, RunCheckpoints)
    store = first._run_checkpoints._store
    commits, commit = count(), store.commit

    def restarted(*arguments: Any) -> None:
        if next(commits) == number:  # when the sink has seen that its stream is there
            restarting.kill()
            restarting.start()
        commit(*arguments)
        store.wait()  # while one is written no other is taken

    with (
        mock.patch.object(store, "commit", restarted),
        pytest.raises((drift.StorageError, drift.SinkError), match=r"lacks what this run has|from older data"),
    ):
        first.finish()
    again = run()
    assert again.resumed_from is None
    assert again.finish().digest == whole.digest


def test_a_connection_that_is_lost_while_the_lock_is_renewed_is_no_other_process(restarting: Redis) -> None:
    backend = RedisBackend(f"{restarting.url}#run")
    backend.open()
    backend.write({"cuts": {b"1": b"one"}})
    backend._own_lock = b""  # as another connection has it: it is renewed
    renewing = Pipeline.execute

    def lost(pipe: Pipeline, *arguments: Any) -> Any:
        with redis.Redis.from_url(restarting.url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        return renewing(pipe, *arguments)

    with mock.patch.object(Pipeline, "execute", lost), pytest.raises(Away):
        backend.write({"cuts": {b"2": b"two"}})
    Patience(backend.where, HANG_S).call(
        lambda: backend.write({"cuts": {b"2": b"two"}}, [Expected("cuts", b"1", b"one")])
    )
    assert backend.reader().read("cuts", [b"1", b"2"]) == [b"one", b"two"]
    backend.close()


def test_a_server_that_comes_back_without_the_stream_of_a_sink_is_said_to_have_older_data(
    restarting: Redis,
) -> None:
    run = drift.run(
        graph, {"items": range(ITEMS)}, batch_items=100, sinks={"counts": drift.sinks.redis(restarting.url, "s")}
    )
    batches = run.batches()
    next(batches)
    restarting.kill()
    restarting.start()
    with pytest.raises(drift.SinkError, match="is empty: it was restored from older data"):
        deque(batches, maxlen=0)


def test_states_are_not_looked_up_in_older_data(restarting: Redis) -> None:
    checkpoints = drift.Checkpoints(f"{restarting.url}#run", every_s=0, keep=1)
    with merging_at_once():
        run = started(checkpoints)
        for number, _ in enumerate(run.batches()):
            wait_until_stored(run)
            if number == 3:
                restarting.save()
            if number == 12:
                break
        run.close()
    run = started(drift.Checkpoints(f"{restarting.url}#run", every_s=1000))
    assert run.resumed_from is not None
    restarting.kill()
    restarting.start()
    with pytest.raises(drift.StorageError, match="older data was put in their place"):
        run.finish()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "postgresql://me@127.0.0.1:1/none"])
@pytest.mark.parametrize("command", ["list", "show", "check"])
def test_a_server_that_is_away_is_one_clear_error_of_a_command(url: str, command: str) -> None:
    done = (
        CliRunner().invoke(check_command, [f"{__file__}:graph", "--state", url])
        if command == "check"
        else CliRunner().invoke(state_group, [command, url])
    )
    assert isinstance(done.exception, drift.StorageError), repr(done.exception)
    assert "could not be reached" in str(done.exception) and exit_code(done.exception) == 9


def test_a_server_that_goes_away_during_a_run_ends_it_with_a_clear_error(restarting: Redis) -> None:
    checkpoints = drift.Checkpoints(f"{restarting.url}#run", every_s=0, away_max_s=0.2)
    run = started(checkpoints)
    batches = run.batches()
    next(batches)
    restarting.kill()
    with pytest.raises(drift.StorageError, match="could not be reached for"):
        for _ in batches:
            pass
    restarting.start()


# Outputs below a checkpoint.

plain = drift.Graph("plain")
plain.source("items").sink("out")


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("at", ["far below the checkpoint", "near the checkpoint"])
def test_a_byte_that_was_flipped_below_the_checkpoint_is_found_on_request_and_in_the_last_block_always(
    tmp_path: Path, kind: str, at: str
) -> None:
    out, state = tmp_path / f"out.{kind}", tmp_path / "state"
    make = getattr(drift.sinks, kind)
    inputs = {"items": [{"n": number} for number in range(30_000)]}
    for number in range(3):
        run = drift.run(
            plain, inputs, state=drift.Checkpoints(state, every_s=0), sinks={"out": make(out)}, batch_items=2000
        )
        for batch in run.batches():
            if batch.position > 8000 * (number + 1):
                break
        run.close()
    arguments = [f"{__file__}:plain", "--state", str(state), "--sink", str(out), "--outputs"]
    done = CliRunner().invoke(check_command, arguments)
    assert done.exit_code == 0 and "as of the checkpoint unchanged" in done.output, done.output
    checkpoint = known(state)[-1]
    data = bytearray(out.read_bytes())
    data[100 if at == "far below the checkpoint" else checkpoint.sinks["out"]["bytes"] - 5] ^= 1
    out.write_bytes(data)
    done = CliRunner().invoke(check_command, arguments)
    assert isinstance(done.exception, drift.SinkError) and "changed below the checkpoint" in str(done.exception)
    is_in_last_block = at == "near the checkpoint" or checkpoint.sinks["out"]["bytes"] < BLOCK_BYTES
    with pytest.raises(drift.SinkError, match="changed below") if is_in_last_block else nullcontext():
        drift.run(plain, inputs, state=state, sinks={"out": make(out)}).finish()
    done = CliRunner().invoke(check_command, arguments)
    assert isinstance(done.exception, drift.SinkError)


@given(st.lists(st.binary(max_size=30)), st.integers(0, 100))
def test_the_hash_of_a_content_does_not_depend_on_its_parts(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], begun: int
) -> None:
    path = tmp_path_factory.mktemp("content") / "file"
    data = b"".join(parts)
    path.write_bytes(data)
    with mock.patch("drift.sinks.contents.BLOCK_BYTES", 16), path.open("rb") as file:
        content = ContentHash()
        for part in parts:
            content.add(part)
        assert content.form() == ContentHash.of(file.fileno(), len(data)).form()
        begin = ContentHash()
        begin.add(data[:begun])
        again = ContentHash.resumed(begin.form(), file.fileno(), len(data[:begun]))
        again.add(data[begun:])
        assert again.form() == content.form()


LIMITED = """
import itertools, resource, sys
from unittest import mock
import drift, drift.state.store
from test_state_storage import counting

graph = drift.Graph("limited")
items = graph.source("items", time=drift.EventTime(int, lateness=0))
if sys.argv[3] == "durable":
    items = items.map(lambda item: item, durable=True)
items.scan(lambda item: item % 5000, 0, counting).sink("out")
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with mock.patch.object(drift.state.store, "_FOLDED_BYTES", 50_000):
        checkpoints = drift.Checkpoints(sys.argv[1], every_s=0, every_items=2000)
        for item in drift.run(graph, {"items": itertools.count()}, state=checkpoints, batch_items=500):
            assert item.position < 1_000_000
except drift.StorageError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [10_000, 100_000, 300_000])
@pytest.mark.parametrize("durable", ["plain", "durable"])
def test_a_disk_that_takes_no_more_is_an_error_of_storage_wherever_it_is_met(
    tmp_path: Path, limit: int, durable: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "state"), str(limit), durable],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "too large" in done.stdout or "disk" in done.stdout, done.stdout
    assert "again" in done.stdout and "changed" not in done.stdout


def test_a_table_of_postgres_that_was_restored_from_a_backup_ends_the_run(
    postgres_url: str, tmp_path: Path, whole: Whole
) -> None:
    checkpoints = drift.Checkpoints(f"{postgres_url}#{tmp_path.name}", every_s=0, keep=2)
    run = started(checkpoints)
    assert isinstance(run._run_checkpoints, RunCheckpoints)
    of_run = "from drift_state_rows where run = %s"
    with (
        psycopg.connect(postgres_url, autocommit=True) as connection,
        pytest.raises(drift.StorageError, match="lacks what this run has stored there"),
    ):
        for number, _ in enumerate(run.batches()):
            wait_until_stored(run)
            if number == 3:
                backup = connection.execute(f"select * {of_run}".encode(), (tmp_path.name,)).fetchall()
            if number == 8:
                with connection.transaction():
                    connection.execute(f"delete {of_run}".encode(), (tmp_path.name,))
                    for row in backup:
                        connection.execute("insert into drift_state_rows values (%s, %s, %s, %s, %s)", row)
    run.close()
    again = drift.run(graph, {"items": range(ITEMS)}, state=checkpoints)
    assert again.resumed_from is not None
    assert items_of(again) == whole.items[again.resumed_from.output.position :]
    assert again.report.digest == whole.digest


@pytest.mark.parametrize("table", ["history", "hashes", "cuts"])
def test_a_file_that_is_written_over_is_replaced_whole(tmp_path: Path, table: str) -> None:
    """A kill in the middle leaves the one before: hashes that are committed may not be cut off by those that follow."""
    backend = FilesBackend(tmp_path)
    backend.open()
    key = b"0000000001.cut" if table == "cuts" else b"0000000001"
    backend.write({table: {key: b"before"}})
    with (tmp_path / table / key.decode()).open("rb") as before:
        backend.write({table: {key: b"after it"}})
        assert before.read() == b"before"
    assert (tmp_path / table / key.decode()).read_bytes() == b"after it"
    backend.close()
