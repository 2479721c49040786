"""Workers on other machines: they join, die, are cut off and come back, and the output is the reference's."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq
from networks import KINDS, Namespaces, Network, network
from test_recovery import ITEMS, acted, expected, run_of
from waiting import HANG_S, command_of, wait_until

import drift
from drift.engines.zeromq.hosts import Hosts
from drift.engines.zeromq.remote import key_of, write_new_key
from drift.engines.zeromq.sockets import Inbox, Outbox, Transport
from drift.engines.zeromq.wire import Codec
from drift_graph.errors import GraphError, SettingsError

assert expected  # a fixture

NET = KINDS[-1]
SILENCE_S = 5.0  # as without the setting


class Joining(logging.Handler):
    """Starts `drift worker` on machines when the run says that it waits for some.

    Args:
        first: started at once.
        later: one when the run waits again; more than a test takes away, since on a busy machine others may be lost.

    Attributes:
        lines: what the run has logged.
        at_lines: called when a line with this text is logged.
    """

    def __init__(
        self, net: Network, path: Path, first: Sequence[int], later: Sequence[int] = (), **options: Any
    ) -> None:
        super().__init__()
        self.net = net
        self.key = path / "run.key"
        write_new_key(self.key)
        self.lines: list[str] = []
        self.joined = 0
        self.at_lines: dict[str, Callable[[], None]] = {}
        self._first, self._later, self._all = list(first), list(later), len(first)
        self._options = options

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        self.lines.append(line)
        self.joined += "has joined" in line
        for text, act in self.at_lines.items():
            if text in line:
                act()
        if " waits for " not in line:
            return
        now, self._first = self._first, []
        if self.joined >= self._all and self._later:
            now = [self._later.pop(0)]
        for machine in now:
            self.net.join(machine, int(line.split(" (")[0].rpartition(":")[2]), self.key, **self._options)

    @property
    def settings(self) -> dict[str, Any]:
        """Of the run; only what is cut off is silent for long."""
        return {"listen": f"tcp://{self.net.address}:0", "key": self.key, "silence_max_s": 60.0}

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines)


@contextmanager
def joining(
    net: Network, path: Path, monkeypatch: pytest.MonkeyPatch, *machines: Sequence[int], **options: Any
) -> Iterator[Joining]:
    """Workers have their temporary files in a folder of the test, and leave nothing in it."""
    monkeypatch.setenv("TMPDIR", str(temporary := path / "temporary"))
    temporary.mkdir()
    handler = Joining(net, path, *machines, **options)
    logger = logging.getLogger("drift")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        for machine in list(net.workers):
            net.workers[machine].kill()
            net.left(machine)
    wait_until(lambda: not list(temporary.iterdir()), f"{temporary} is empty")


def processes_of(net: Network, machine: int) -> list[int]:
    """What runs for the run on a machine."""
    pid = net.workers[machine].pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def at_work(net: Network) -> list[int]:
    """Machines whose process is a worker, and no spare one."""
    return [
        machine
        for machine in net.workers
        if any(b"drift worker" in command_of(pid) for pid in processes_of(net, machine))
    ]


def kill_process(net: Network, machine: int, run: drift.Run) -> None:
    (pid,) = processes_of(net, machine)
    os.kill(pid, signal.SIGKILL)


def kill_worker(net: Network, machine: int, run: drift.Run) -> None:
    net.workers[machine].kill()


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_restarts_on_its_machine(
    kind: type[Network], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network that is slow and, where it can, loses packets."""
    more = {"loss": 0.01} if kind is Namespaces else {}
    with network(kind, 2, delay_s=0.002, **more) as net, joining(net, tmp_path, monkeypatch, [1, 2]) as workers:
        run, items = acted({ITEMS // 3: partial(kill_process, net, 1)}, **workers.settings)
        left = [net.left(1), net.left(2)]
    assert (len(items), run.digest) == (ITEMS, expected)
    assert len(run.progress.died) == run.progress.recoveries == 1
    assert [code for code, _ in left] == [0, 0]
    assert "its process was killed by SIGKILL" in left[0][1] and "left: the run is over" in left[1][1]


def test_machines_that_die_are_replaced_by_those_that_join(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_machine(run: drift.Run) -> None:
        net.workers[at_work(net)[0]].kill()

    with network(NET, 4) as net, joining(net, tmp_path, monkeypatch, [1, 2], [3, 4]) as workers:
        run, items = acted({ITEMS // 3: kill_machine, ITEMS // 2: kill_machine}, **workers.settings)
    assert (len(items), run.digest) == (ITEMS, expected)
    assert len(run.progress.died) == 2 and workers.joined == 4
    assert sum("has left" in line for line in workers.lines) == 2


def test_the_only_machine_that_dies_is_replaced_by_one_that_joins(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with network(NET, 2) as net, joining(net, tmp_path, monkeypatch, [1], [2]) as workers:
        run, items = acted({ITEMS // 3: partial(kill_worker, net, 1)}, **{**workers.settings, "workers": 1})
    assert (len(items), run.digest) == (ITEMS, expected)
    assert len(run.progress.died) == 1 and workers.joined == 2


def test_who_is_cut_off_is_replaced_by_a_spare_and_learns_it_when_the_network_is_back(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had to send comes late, and is of an older generation."""
    monkeypatch.setattr("drift.engines.zeromq.engine._COMPANIONS_AFTER_S", 0.0)
    cut: list[int] = []

    def cut_off(run: drift.Run) -> None:
        wait_until(lambda: workers.joined == 3, "the spare machine has joined")
        cut.append(at_work(net)[0])
        net.cut |= {frozenset((cut[0], other)) for other in range(7)}

    def heal(run: drift.Run) -> None:
        net.cut.clear()

    with network(NET, 6) as net, joining(net, tmp_path, monkeypatch, [1, 2, 3], [4, 5, 6]) as workers:
        run, items = acted({2000: cut_off, ITEMS // 2: heal}, **{**workers.settings, "silence_max_s": SILENCE_S})
        _, text = net.left(cut[0])
    assert (len(items), run.digest) == (ITEMS, expected)
    assert run.progress.died
    assert "is lost: the run has died or cannot be reached" in text or "no sign of life" in text


def test_what_was_lost_between_two_workers_is_sent_again(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay connected to the run, so none of them is replaced where the machines have a network of their own."""

    def cut_off(run: drift.Run) -> None:
        net.cut.add(frozenset((1, 2)))

    with network(NET, 4) as net, joining(net, tmp_path, monkeypatch, [1, 2], [3, 4]) as workers:
        workers.at_lines["all rewind"] = net.cut.clear
        run, items = acted({2000: cut_off}, **{**workers.settings, "silence_max_s": SILENCE_S})
    assert (len(items), run.digest) == (ITEMS, expected)
    assert run.progress.recoveries >= 1


def test_a_connection_that_ends_or_is_never_made_is_noticed() -> None:
    """That a message is missing is noticed as well, but only when all wait for it."""
    public, secret = zmq.curve_keypair()
    transport = Transport("", public, secret, silence_max_s=HANG_S)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        inbox = Inbox(context, transport, "inbox", Codec(0, 1))
        alone = Outbox(context, replace(transport, silence_max_s=0.001), "tcp://127.0.0.1:1")
        connected = Outbox(context, transport, inbox.address)
        assert connected.monitor is not None
        assert connected.monitor.poll(1000 * HANG_S) and not connected.check()
        assert alone.check()
        inbox.socket.close(linger=0)
        assert connected.monitor.poll(1000 * HANG_S) and connected.check()
        for box in (connected, alone):
            box.close(0)
    finally:
        context.destroy(linger=0)


def test_a_run_resumes_with_another_number_of_machines(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = drift.Checkpoints(tmp_path / "state", every_s=0.0)
    with network(NET, 5) as net:
        with joining(net, tmp_path, monkeypatch, [1, 2]) as workers:
            run = run_of(state=state, **workers.settings)
            items = []
            for item in run:
                items.append(item)
                if len(items) == ITEMS // 2:
                    run.stop()
        monkeypatch.undo()
        workers.key.unlink()
        (tmp_path / "temporary").rmdir()
        with joining(net, tmp_path, monkeypatch, [3, 4, 5]) as workers:
            run = run_of(state=state, **{**workers.settings, "workers": 3})
            items += list(run)
    assert (len(items), run.digest) == (ITEMS, expected)


def refused_at(hosts: Hosts, net: Network, key: Path) -> tuple[int, str]:
    """How a worker ends that is not taken."""
    net.join(1, int(hosts.address.rpartition(":")[2]), key)
    wait_until(lambda: (hosts.wait(0.05), hosts.idle or net.workers[1].poll() is not None)[1], "it was answered")
    assert not hosts.idle
    return net.left(1)


def test_who_has_another_key_or_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    write_new_key(own)
    write_new_key(other)
    monkeypatch.setattr(drift, "__version__", "0.0.1")
    with network(NET, 1) as net:
        hosts = Hosts(f"tcp://{net.address}:0", key_of(own), str(tmp_path), 60.0, "graph")
        try:
            with_other_key, with_other_version = refused_at(hosts, net, other), refused_at(hosts, net, own)
        finally:
            hosts.close("the test is over")
    assert with_other_key[0] == with_other_version[0] == 2
    assert "has another key, or is not a run of drift" in with_other_key[1]
    assert "has drift 0.1.0, and the run has 0.0.1" in with_other_version[1]


def test_who_has_other_code_ends_the_run_which_names_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, times in (("here", 2), ("there", 3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps_of_hosts.py").write_text(f"def times(number):\n    return number * {times}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    import steps_of_hosts

    graph = drift.Graph("times")
    graph.source("numbers").map(steps_of_hosts.times).sink("out")
    there = tmp_path / "there"
    with (
        network(NET, 1) as net,
        joining(net, tmp_path, monkeypatch, [1], folder=there) as workers,
        pytest.raises(GraphError, match=r"has other code on .* than in the calling process, in 'map times'"),
    ):
        drift.run(graph, {"numbers": range(9)}, engine="zeromq", **workers.settings).finish()


def test_a_key_is_one_that_only_its_user_may_read(tmp_path: Path) -> None:
    write_new_key(path := tmp_path / "key")
    assert key_of(path) == key_of(path) and repr(key_of(path)) == "Key(...)"
    with pytest.raises(SettingsError, match="exists"):
        write_new_key(path)
    path.chmod(0o640)
    with pytest.raises(SettingsError, match=r"may be read by others on this machine .mode 640."):
        key_of(path)
    path.chmod(0o600)
    path.write_text("no key")
    with pytest.raises(SettingsError, match="is no key"):
        key_of(path)
    with pytest.raises(SettingsError, match=r"`drift key .*` makes one"):
        key_of(tmp_path / "none")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"listen": "tcp://10.0.0.1:7000"}, "belong together"),
        ({"key": "run.key"}, "belong together"),
        ({"listen": "tcp://*:7000", "key": "run.key"}, "not tcp://HOST:PORT"),
        ({"listen": "10.0.0.1:7000", "key": "run.key"}, "not tcp://HOST:PORT"),
    ],
)
def test_an_address_without_a_key_and_one_of_no_machine_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        run_of(**settings)


def test_an_address_of_another_machine_and_a_graph_of_several_runs_are_refused(tmp_path: Path) -> None:
    write_new_key(key := tmp_path / "key")
    with pytest.raises(SettingsError, match="is an address of this machine"):
        run_of(listen="tcp://192.0.2.77:7000", key=key).finish()
    graph = drift.Graph("durable")
    graph.source("numbers").map(abs, durable=True).sink("out")
    with pytest.raises(SettingsError, match="has calls or durable steps"):
        drift.run(graph, {"numbers": []}, engine="zeromq", listen="tcp://127.0.0.1:0", key=key, state=tmp_path / "s")
