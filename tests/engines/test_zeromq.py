"""The engine over ZeroMQ: the same output, and an end that leaves nothing behind, whatever happens to a run."""

from __future__ import annotations

import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import HANG_S, wait_until
from zmq.utils.monitor import recv_monitor_message

import drift
from drift.columns.rows import Frame
from drift.engines.zeromq.child import EngineChild
from drift.engines.zeromq.control import STOP, SignOfLife
from drift.engines.zeromq.engine import ZeromqEngine
from drift.engines.zeromq.process import _Signs
from drift.engines.zeromq.wire import FRAME_BYTES_MAX, Codec, Refused
from drift.machines.nodes.messages import AckMessage, Batch, CheckpointReply, Committed, MinimalTime
from drift_graph.canonical import hash64
from drift_graph.item import Columns
from drift_graph.metas import Metas

WORDS = ["to be or not to be", "that is the question", "to be"] * 40


def one(text: str) -> str:
    return text


def counted(count: int, word: str) -> tuple[int, tuple[str, int]]:
    return count + 1, (word, count + 1)


def wordcount() -> drift.Graph:
    graph = drift.Graph("wordcount")
    graph.source("lines").flat_map(str.split).scan(key=one, initial=0, step=counted).sink("counts")
    return graph


def numbers(step: Callable[[int], Any] = lambda n: n) -> drift.Graph:
    graph = drift.Graph("numbers")
    graph.source("numbers").map(step).group(key=lambda n: n % 3, window=2).sink("pairs")
    return graph


def engine_of(run: drift.Run) -> ZeromqEngine:
    engine = run._engine
    assert isinstance(engine, ZeromqEngine)
    return engine


def child(run: drift.Run, name: str) -> Any:
    return next(each for each in engine_of(run)._children if each.name == name)


def state(pid: int) -> str:
    """Of a process, in the letters of proc(5); Z, where it is only to be waited for, or is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def alive(pid: int) -> bool:
    return state(pid) != "Z"


def stop(child: Any) -> None:
    os.kill(child.process.pid, signal.SIGSTOP)
    wait_until(lambda: state(child.process.pid) == "T", f"{child.name} has stopped")


def silent(child: Any, seconds: float) -> None:
    """As if a process had given its last sign of life so long ago."""
    child.listen()
    child.last_sign_s -= seconds


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    tmp_path_factory.getbasetemp()  # pytest's own folder is not to be in ours
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    left = list(folder.glob("drift-*"))
    shutil.rmtree(folder)
    assert not left, "a run left its folder"


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


@pytest.mark.smoke
@pytest.mark.parametrize("workers", [1, 4])
def test_every_number_of_workers_gives_the_digest_of_the_reference(workers: int) -> None:
    expected = drift.run(wordcount(), {"lines": WORDS}, engine="reference").finish().digest
    report = drift.run(wordcount(), {"lines": WORDS}, engine="zeromq", workers=workers, batch_items=7).finish()
    assert report.digest == expected
    assert report.items_out == sum(len(line.split()) for line in WORDS)


def test_of_no_items_comes_none() -> None:
    assert drift.run(wordcount(), {"lines": []}, engine="zeromq").finish().items_out == 0


@pytest.mark.smoke
def test_tcp_with_keys_gives_the_same_digest() -> None:
    expected = drift.run(wordcount(), {"lines": WORDS}).finish().digest
    assert (
        drift.run(wordcount(), {"lines": WORDS}, engine="zeromq", workers=2, transport="tcp").finish().digest
        == expected
    )


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["worker 0", "worker 1"])
def test_a_killed_process_ends_the_run_with_its_name_and_what_was_released_stands(name: str) -> None:
    run = drift.run(numbers(), {"numbers": endless()}, engine="zeromq", recover=False, workers=2)
    released: list[Any] = []
    with pytest.raises(drift.ProcessError, match=f"{name} .*was killed by SIGKILL"):
        for item in run:
            released.append(item)
            if len(released) == 50:
                child(run, name).process.kill()
    expected = drift.run(numbers(), {"numbers": range(len(released) + 4096)})
    assert released == [item for item, _ in zip(expected, released)]


@pytest.mark.parametrize("name", ["worker 0", "worker 1"])
def test_a_stopped_process_ends_the_run_as_hung(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.engines.zeromq.child._STOP_S", 0.1)
    run = drift.run(numbers(), {"numbers": endless()}, engine="zeromq", recover=False, workers=2, silence_max_s=HANG_S)
    with pytest.raises(drift.ProcessError, match=rf"{name} .* is hung: no sign of life for \d{{3,}}"):
        for batch in run.batches():
            if batch.position >= 50:
                stop(child(run, name))
                silent(child(run, name), HANG_S)


def test_the_first_process_is_not_hung_where_the_last_was_slow_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    run = drift.run(numbers(), {"numbers": range(10)}, engine="zeromq", workers=2, silence_max_s=HANG_S)
    listen = EngineChild.listen
    slow = iter([True])

    def late(child: EngineChild) -> None:
        listen(child)
        if child.name == "worker 1" and child.address and next(slow, False):
            for each in engine_of(run)._children:
                each.last_sign_s -= 2 * HANG_S

    monkeypatch.setattr(EngineChild, "listen", late)
    assert run.finish().items_out == 10 and next(slow, None) is None


def test_what_a_process_said_last_is_heard_though_it_has_ended() -> None:
    run = drift.run(numbers(), {"numbers": endless()}, engine="zeromq", workers=1)
    next(run)
    children = list(engine_of(run)._children)
    for each in children:
        each.order(STOP)
        each.process.wait()
    run.close()
    assert all(each.sign.last for each in children)


def spin_at_7(number: int) -> int:
    while number == 7:
        pass
    return number


def test_a_function_that_never_returns_is_named_with_its_line() -> None:
    settings: Any = {"engine": "zeromq", "workers": 2, "recover": False, "call_max_s": 1.0}
    run = drift.run(numbers(spin_at_7), {"numbers": range(100)}, **settings)
    with pytest.raises(
        drift.ProcessError, match=r"is hung: it has been in one call of spin_at_7 \(.*test_zeromq.py:\d+"
    ):
        run.finish()


def test_how_long_a_call_takes_is_counted_from_its_own_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a slow function is not taken for a hung one, however long all its calls take together."""
    now_s = 0.0
    monkeypatch.setattr("drift.engines.zeromq.control.time", SimpleNamespace(monotonic=lambda: now_s))
    entered: Queue[int] = Queue()
    go_on: Queue[None] = Queue()

    def slow(number: int) -> int:
        entered.put(number)
        go_on.get()
        return number

    thread = threading.Thread(target=drift.run(numbers(slow), {"numbers": range(3)}).finish)
    thread.start()
    signs = _Signs(0, None)  # type: ignore[arg-type]
    signs._main = thread.ident
    calls = []
    for number in range(3):
        assert entered.get() == number
        for _ in range(2):
            calls.append(signs._in_call())
            now_s += 4
        go_on.put(None)
    thread.join()
    assert [round(seconds) for seconds, _ in calls] == [0, 4] * 3
    assert all(location.startswith(f"slow ({__file__}:") for _, location in calls)
    assert signs._in_call() == (0.0, "")


@pytest.mark.parametrize(("wake_s", "idle"), [(math.inf, True), (1e9, False)])
def test_a_process_that_waits_until_a_time_waits_for_no_message(wake_s: float, idle: bool) -> None:
    said: list[SignOfLife] = []
    node = SimpleNamespace(wake_s=wake_s)
    loop = SimpleNamespace(waits=True, turns=3, node=node, sign=SignOfLife)
    signs = _Signs(SimpleNamespace(say=said.append), loop)  # type: ignore[arg-type]
    signs.give()
    signs.give()
    assert [sign.idle for sign in said] == [False, idle]


def fail_at_50(number: int) -> int:
    if number == 50:
        raise ValueError("fifty")
    return number


def test_a_failing_function_ends_the_run_at_the_same_item_as_in_the_reference() -> None:
    outputs = []
    for engine in ("reference", "zeromq"):
        items: list[Any] = []
        run = drift.run(numbers(fail_at_50), {"numbers": range(100)}, engine=engine, batch_items=8)
        with pytest.raises(drift.StepError, match="fifty") as caught:
            items.extend(run)  # keeps what came before the error
        notes = getattr(caught.value, "__notes__", [])
        outputs.append((items, caught.value.meta, str(caught.value), notes, run.digest))
        assert notes
    assert len(outputs[0][0]) == 50
    assert outputs[0] == outputs[1]


def doubtful(n: int) -> Any:
    return (n, threading.Lock() if n == 40 else bytes(FRAME_BYTES_MAX) if n == 60 else n)


@pytest.mark.parametrize("to", ["grouping", "sink"])
@pytest.mark.parametrize(
    "first, bad, why", [(7, 40, "cannot pickle"), (41, 60, "longer than a frame may be")], ids=["lock", "huge"]
)
def test_what_is_before_a_payload_that_cannot_be_sent_is_released(to: str, first: int, bad: int, why: str) -> None:
    graph = drift.Graph("doubtful")
    doubts = graph.source("numbers").map(doubtful, name="doubt")
    doubts.map(itemgetter(0)).sink("seen")
    if to == "grouping":
        for worker in range(2):  # whichever makes the bad item has to send it to the other one
            its = next(key for key in range(9) if hash64(key) % 2 == worker)
            doubts.group(key=lambda pair, its=its: its, window=1).map(len).sink(f"sizes {worker}")
    else:
        doubts.sink("raw")
    sources = {"numbers": range(first, 100)}
    run = drift.run(graph, sources, engine="zeromq", workers=2, batch_items=7)
    released: list[Any] = []
    told = rf"cannot be sent to another process.*{why}"
    if (to, why) == ("sink", "cannot pickle"):  # as on every engine
        told = "cannot be compared between runs: a _thread.lock"
    with pytest.raises(drift.PayloadError, match=rf"(?s)step 'doubt' .*{told}"):
        released.extend((item.meta, item.payload) for item in run)
    sinks = len(graph.build().sinks)
    assert sinks * (bad - first) <= len(released) < sinks * (bad - first + 1)
    expected = drift.run(graph, sources)
    assert released == [(item.meta, item.payload) for _, item in zip(released, expected)]


def test_a_payload_from_a_source_that_cannot_be_sent_names_the_source() -> None:
    with pytest.raises(drift.PayloadError, match=r"step 'numbers' \(source, arrival time\) made a payload"):
        drift.run(numbers(), {"numbers": [1, threading.Lock()]}, engine="zeromq", workers=2).finish()


def test_a_function_that_cannot_be_sent_is_named_before_anything_starts() -> None:
    lock = threading.Lock()
    run = drift.run(numbers(lambda n: (n, lock)[0]), {"numbers": range(3)}, engine="zeromq")
    with pytest.raises(drift.GraphError, match=r"step 'map <lambda>' .*test_zeromq.py:\d+\) cannot be sent"):
        run.finish()
    assert engine_of(run)._children == []


def test_batches_longer_than_a_frame_are_split() -> None:
    graph = drift.Graph("big")
    graph.source("sizes").map(bytes).sink("blobs")
    sizes = [FRAME_BYTES_MAX // 3] * 5
    run = drift.run(graph, {"sizes": sizes}, engine="zeromq")
    assert [type(item.payload) is bytes and len(item.payload) for item in run] == sizes
    assert run.digest == drift.run(graph, {"sizes": sizes}).finish().digest


def test_an_item_longer_than_a_frame_is_a_clear_error() -> None:
    graph = drift.Graph("huge")
    graph.source("sizes").map(bytes).sink("blobs")
    with pytest.raises(drift.PayloadError, match="longer than a frame may be"):
        drift.run(graph, {"sizes": [FRAME_BYTES_MAX]}, engine="zeromq").finish()
    with pytest.raises(drift.PayloadError, match=r"(?s)step 'map bytes'.*help     keep such data in a file or a store"):
        drift.run(graph, {"sizes": [1, FRAME_BYTES_MAX]}, engine="zeromq").finish()


def test_no_more_is_read_than_a_slow_loop_over_the_run_takes() -> None:
    read = 0

    def counting() -> Iterator[int]:
        nonlocal read
        for number in range(1, 5_001):
            read = number
            yield number

    graph = drift.Graph("mapped")
    graph.source("numbers").map(abs).sink("out")  # nothing is corrected, so no batches are gathered
    taken, ahead = 0, []
    for batch in drift.run(graph, {"numbers": counting()}, engine="zeromq", workers=2, batch_items=100).batches():
        ahead.append(read - taken)  # the loop has not taken this batch yet
        taken += len(batch.metas)
    assert taken == 5_000
    assert max(ahead) <= 7 * 100  # two batches for each worker, two more, and the one being read


def test_cycles_that_change_keys_are_reported_to_be_slow_with_workers() -> None:
    graph = drift.Graph("hops")
    hops = graph.feedback("hops")
    items = graph.source("items").merge(hops).group(key=lambda n: n % 3, window=1).map(lambda window: window[-1] - 1)
    items.filter(lambda n: n > 0).feed(hops)
    items.sink("out")
    with pytest.warns(UserWarning, match="from worker to worker"):
        drift.run(graph, {"items": [5]}, engine="zeromq", workers=2).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drift.run(graph, {"items": [5]}, engine="zeromq", workers=1).close()
        drift.run(wordcount(), {"lines": WORDS}, engine="zeromq", workers=2).close()


def test_leaving_a_run_in_the_middle_ends_its_processes() -> None:
    run = drift.run(numbers(), {"numbers": endless()}, engine="zeromq", workers=2)
    next(run)
    pids = [each.process.pid for each in engine_of(run)._children]
    run.close()
    assert not any(alive(pid) for pid in pids)


def test_a_run_that_was_never_iterated_starts_nothing() -> None:
    run = drift.run(numbers(), {"numbers": range(3)}, engine="zeromq", workers=2)
    assert engine_of(run)._children == []
    run.close()


def send_as_strangers(run: drift.Run) -> int:
    """Frames to each process of a run that are none of it; how many were sent."""
    good = Codec(0, 12345).encode(Batch(b"\x80" * 11, 1, [("lines", Columns(Metas([b"\x80" * 11]), ["x"], None))]))
    frames = [b"", b"GET / HTTP/1.1\r\n\r\n", good, good[:-1], good[:20], b"DRFT" + good[4:][::-1], b"\0" * 1000]
    addresses = list(Path(engine_of(run)._folder).iterdir())
    context: zmq.Context[Any] = zmq.Context()
    for address in addresses:
        socket = context.socket(zmq.PUSH)
        socket.connect(f"ipc://{address}")
        for frame in frames:
            socket.send(frame)
        socket.send_multipart([good, good])
        socket.close(linger=-1)
    context.term()
    return len(addresses) * (len(frames) + 1)


@pytest.mark.smoke
def test_foreign_and_broken_frames_are_refused_and_counted_and_the_run_continues() -> None:
    counted_all = threading.Event()

    def lines() -> Iterator[str]:
        """They go on until every frame was counted: the end of a run does not wait for strangers."""
        yield from WORDS
        assert counted_all.wait(HANG_S), "frames of strangers were not counted"
        yield from WORDS

    run = drift.run(wordcount(), {"lines": drift.sources.live(lines())}, engine="zeromq", workers=2, batch_items=4)
    payloads: list[Any] = []
    sent = 0
    for batch in run.batches():
        payloads += batch.payloads
        sent = sent or (send_as_strangers(run) if payloads else 0)
        if sent and run.progress.refused_frames >= sent:
            counted_all.set()
    assert payloads == [item.payload for item in drift.run(wordcount(), {"lines": 2 * WORDS})]
    assert run.report.refused_frames == sent == 8 * 3  # two workers, caller


def test_over_tcp_a_peer_without_the_keys_gets_nothing_in() -> None:
    run = drift.run(wordcount(), {"lines": WORDS}, engine="zeromq", workers=1, transport="tcp", batch_items=4)
    items = [next(run)]
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.PUSH)
    events = socket.get_monitor_socket()
    socket.connect(engine_of(run)._inbox.address)
    refused = False
    while not refused:
        assert events.poll(int(HANG_S * 1000)), "no answer to the handshake"
        event = recv_monitor_message(events)["event"]
        assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
        refused = event in (
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
            zmq.EVENT_DISCONNECTED,
        )
    context.destroy(linger=0)
    items += list(run)
    assert items == list(drift.run(wordcount(), {"lines": WORDS}))


SCRIPT = """
import signal
from dataclasses import dataclass
import drift

@dataclass(frozen=True)
class Reading:
    value: int

def endless():
    number = 0
    while True:
        yield Reading(number)
        number += 1

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start background jobs with it ignored
graph = drift.Graph("readings")
graph.source("readings").map(lambda r: Reading(r.value + 1)).group(key=lambda r: r.value % 2, window=2).sink("pairs")
run = drift.run(graph, {"readings": endless()}, engine="zeromq", workers=2)
for item in run:
    assert type(item.payload[-1]) is Reading
    if item.position == 100:
        print(run._engine._folder, *(each.process.pid for each in run._engine._children), flush=True)
"""


def started_script() -> tuple[subprocess.Popen[str], str, list[int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    folder, *pids = process.stdout.readline().split()
    return process, folder, [int(pid) for pid in pids]


@pytest.mark.smoke
def test_ctrl_c_ends_every_process_and_removes_the_folder() -> None:
    process, folder, pids = started_script()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert "KeyboardInterrupt" in errors
    assert not any(alive(pid) for pid in pids)
    assert not Path(folder).exists()


def test_when_the_calling_process_is_killed_the_others_go_and_remove_the_folder() -> None:
    process, folder, pids = started_script()
    process.kill()
    process.communicate()
    wait_until(lambda: not any(alive(pid) for pid in pids), "all processes are gone")
    assert not Path(folder).exists()


def test_the_folder_of_the_sockets_is_private() -> None:
    run = drift.run(numbers(), {"numbers": endless()}, engine="zeromq")
    next(run)
    assert Path(engine_of(run)._folder).stat().st_mode & 0o777 == 0o700
    run.close()


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_run_without_a_place_for_its_folder_says_so_and_leaves_nothing(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    run = drift.run(numbers(), {"numbers": range(9)}, engine="zeromq", transport=transport)
    with pytest.raises(drift.SettingsError, match="Not a directory; TMPDIR names another place"):
        next(run)
    assert not any(alive(each.process.pid) for each in engine_of(run)._children)


def test_a_run_is_refused_where_its_process_may_not_open_all_that_it_needs() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    run = drift.run(numbers(), {"numbers": range(9)}, engine="zeromq", workers=2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, limits[1]))
    try:
        with pytest.raises(drift.SettingsError, match="opens up to 31 files and sockets, and this process may open "):
            next(run)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_that_cannot_be_started_leaves_no_descriptor() -> None:
    code = """if True:
        import os, sys, drift
        sys.executable = "/dev/null/python"
        graph = drift.Graph("n")
        graph.source("n").sink("out")
        list(drift.run(graph, {"n": range(9)}))  # what any run opens once
        opened = os.listdir("/dev/fd")
        try:
            next(drift.run(graph, {"n": range(9)}, engine="zeromq"))
        except NotADirectoryError:
            print(len(os.listdir("/dev/fd")) - len(opened))
    """
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "0\n"


def test_classes_of_the_running_script_travel_as_payloads(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from dataclasses import dataclass
        import drift

        @dataclass(frozen=True)
        class Point:
            x: int

        graph = drift.Graph("points")
        graph.source("numbers").map(Point).filter(lambda p: type(p) is Point).group(lambda p: p.x % 2, 2).sink("out")
        digests = [drift.run(graph, {"numbers": range(9)}, engine=e).finish().digest for e in ("local", "zeromq")]
        assert digests[0] == digests[1]
        print("same")
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("same\n", "", 0)


def test_a_message_that_is_lost_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineChild, "death", lambda *_: None)  # some may be slow, not hung
    run = drift.run(numbers(), {"numbers": endless()}, engine="zeromq", workers=2, batch_items=8, silence_max_s=0.3)
    next(run)
    boxes = engine_of(run)._carrier.boxes
    monkeypatch.setattr(boxes[0], "send", lambda frame: None)
    with pytest.raises(drift.ProcessError, match="a message was lost"):
        run.finish()


def test_a_consumer_that_takes_its_time_is_not_an_error() -> None:
    run = drift.run(wordcount(), {"lines": WORDS}, engine="zeromq", workers=1, batch_items=8, silence_max_s=HANG_S)
    items = [next(run)]
    for each in engine_of(run)._children:  # nobody listened for so long, and the signs of life wait in the pipe
        silent(each, 2 * HANG_S)
        zmq.select([each.numbers[0]], [], [])
    assert items + list(run) == list(drift.run(wordcount(), {"lines": WORDS}))


entries = st.tuples(st.binary(), st.integers(0, 2**64 - 1), st.integers(0, 9))
messages = st.one_of(
    st.builds(
        Batch, st.binary(), st.integers(0, 2**64 - 1), st.just([("a", Columns(Metas([b"x"]), [(1, "y")], None))])
    ),
    st.builds(
        AckMessage,
        st.lists(entries),
        st.lists(st.tuples(st.integers(0, 9), st.binary())),
        waiting=st.lists(entries),
    ),
    st.builds(MinimalTime, st.binary(), st.binary(), st.integers(-1, 9), st.integers(0, 9), st.tuples(st.binary())),
    st.builds(CheckpointReply, st.integers(0, 9), st.integers(0, 9), st.binary(), st.none(), st.text()),
    st.builds(Committed, st.binary(), st.booleans()),
)


@pytest.mark.smoke
@given(messages)
@settings(deadline=None)
def test_the_wire_gives_back_every_message(message: Any) -> None:
    assert Codec(1, 2).decode(Codec(3, 2).encode(message)) == message


@pytest.mark.smoke
@given(messages, st.data())
@settings(deadline=None)
def test_the_wire_refuses_every_changed_frame(message: Any, data: st.DataObject) -> None:
    frame = bytearray(Codec(3, 2).encode(message))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Refused):
        Codec(1, 2).decode(bytes(frame))
    with pytest.raises(Refused):
        Codec(1, 2).decode(bytes(Codec(3, 2).encode(message)[: data.draw(st.integers(0, len(frame) - 1))]))


def test_columns_are_read_where_they_are_in_a_frame_and_what_may_change_is_copied() -> None:
    rows: Any = Frame(pl.DataFrame({"text": ["a", "long enough to be beside its view", None], "of": [1, 2, 3]}))
    columns = Columns(Metas([b"a", b"b", b"c"]), rows, None)
    arrays: list[Any] = [np.arange(3), np.arange(3)]
    arrays[1].flags.writeable = False
    frame = Codec(3, 2).encode(Batch(b"x", 1, [("rows", columns), ("arrays", Columns(Metas([b"a"]), arrays, None))]))
    decoded: Any = Codec(1, 2).decode(frame)
    (_, found), (_, of_arrays) = decoded.parts
    assert found == columns and [each.tolist() for each in of_arrays.payloads] == [[0, 1, 2]] * 2
    assert [each.flags.writeable for each in of_arrays.payloads] == [True, False]

    start = np.frombuffer(frame, np.uint8).ctypes.data
    places = [
        found.payloads.frame.get_column("of").to_numpy().ctypes.data - start,
        of_arrays.payloads[1].ctypes.data - start,
    ]
    assert all(0 < place < len(frame) and not (start + place) % 8 for place in places)


@given(st.binary())
@settings(deadline=None)
def test_the_wire_refuses_any_bytes_of_strangers(frame: bytes) -> None:
    with pytest.raises(Refused):
        Codec(1, 2).decode(frame)
