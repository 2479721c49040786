"""The engine over ZeroMQ: each worker in its own process; the caller feeds, has acker and barrier, and reads.

Invariant: whatever ends a run, its processes, its sockets and its folder are gone when `close` returns; and the output
released before stands.

Why: `close` orders every process to end, kills those that do not, waits for all, and removes the folder. If the calling
process itself is killed, the others see their pipe end, remove the folder and exit. On other machines `drift worker`
does the same when it is told to, or its connection has ended.
"""

from __future__ import annotations

import logging
import pickle
import secrets
import shutil
import time
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmq

from drift.engines import shipping
from drift.engines.base import Progress
from drift.engines.feed import Feed
from drift.engines.memory import rare_collections
from drift.engines.observed import Observed, ProcessState, added, own_state
from drift.engines.packing import in_parts
from drift.engines.surroundings import surroundings
from drift.engines.zeromq.calls import last_call
from drift.engines.zeromq.child import EngineChild, LocalProcess
from drift.engines.zeromq.control import STOP, Awake
from drift.engines.zeromq.hosts import Hosts
from drift.engines.zeromq.merging import Mergers
from drift.engines.zeromq.process import FirstOrder, Role
from drift.engines.zeromq.remote import key_of
from drift.engines.zeromq.roles import Assignment, Carrier, Peers, connected, poll_ms
from drift.engines.zeromq.settings import ZeromqSettings, port_of
from drift.engines.zeromq.shelf import SnapshotFiles
from drift.engines.zeromq.sockets import (
    Inbox,
    Outbox,
    Transport,
    check_descriptors,
    drop_all,
    flush_all,
    have_private,
    new_folder,
)
from drift.engines.zeromq.wire import Codec, opened
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.barrier import BarrierNode, digest_of
from drift.machines.nodes.checkpointing import LOG_BYTES_FULL, CheckpointPace
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.messages import AckMessage, Batch, Finished, Message, Order, Restart, Rewind, SnapshotPart
from drift.machines.nodes.node import ACKER, CALLER, CALLER_NUMBER, Send
from drift.machines.nodes.pacing import needs_pace, pacing_of
from drift.machines.nodes.recovery import (
    DEATHS_MAX,
    Call,
    Command,
    Effect,
    RecoveryNode,
    Replace,
    died_starting,
    role_name,
)
from drift.machines.nodes.rewind_log import RewindLog
from drift.machines.nodes.together import WithAcker
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, timed_steps
from drift.records.fingerprint import fingerprint
from drift.spilled import Spilled
from drift.state.checkpoint import Output
from drift.state.run_checkpoints import Begin, Taken
from drift_barrier.barrier import Released
from drift_barrier.digest import Encoded, OpenBlock
from drift_graph.errors import GraphError, ProcessError, SettingsError
from drift_graph.functions import warn
from drift_graph.graph import Dataflow
from drift_graph.metas import Metas
from drift_graph.segments import has_borders

_LOG = logging.getLogger("drift")

_TICK_MS = 1  # while the clock may have to move the heartbeat of a live source, and something waits for it
#: The heartbeats of the only source let nothing go if it is in arrival time and nothing has a timer.
_LONG_TICK_MS = 20
_WAIT_MS = 100
_CHECK_INTERVAL_S = 0.02
_START_S = 60.0
#: A run that is shorter and loses no process gets no spare process and no mergers, as each takes a third of a second to
#: start. With a live source they start earlier: users wait for its output during a recovery, and the machine has time.
_COMPANIONS_AFTER_S, _COMPANIONS_LIVE_AFTER_S = 10.0, 1.0
#: Checks at which a process must have been silent to count as hung, since the caller may have been suspended, too.
_CHECKS_MIN = 4

#: What the calling process opens: 7 of its own, 12 more while companions start; pipes and connections of each worker.
_DESCRIPTORS, _DESCRIPTORS_OF_WORKER = 19, 6


class ZeromqEngine:
    needs_items = True

    def __init__(self, dataflow: Dataflow, feed: Feed, settings: ZeromqSettings) -> None:
        if settings.workers > 1024:
            raise SettingsError(f"workers={settings.workers} is more than 1024")
        if settings.listen is not None and has_borders(dataflow):
            raise SettingsError(
                f"listen={settings.listen!r}: graph {dataflow.name!r} has calls or durable steps, which make several "
                f"runs of it, and workers of other machines join one; leave listen out, or use engine='spark'"
            )
        self.progress = Progress()
        self._dataflow = dataflow
        self._feed = feed
        self._settings = settings
        plan = self._plan = Plan(
            dataflow, fused=settings.fused, counted=time.perf_counter if settings.counted else None
        )
        _warn_of_slow_cycles(plan, settings.workers)
        self._recovers = settings.recover
        self._begin: Begin | None = None
        self._folder = new_folder()
        self._shelf = SnapshotFiles(self._folder, "caller", timed_steps(plan))
        self._node = FeedNode(plan, settings.workers, feed.intake, starts_small=True)
        if _is_alone(feed) and not plan.puts_later and not self._shelf.timed:
            feed.intake.beat_interval_s = _LONG_TICK_MS / 1000
        pacing = pacing_of(plan, settings.workers, settings.items_at_once)
        acker = AckerNode(
            len(dataflow.sources), [*range(settings.workers), CALLER], [CALLER], pacing=pacing, levels=plan.levels.count
        )
        self._output = WithAcker(BarrierNode(dataflow, settings.digest, Spilled), BARRIER, acker)
        self._inbound: deque[Message] = deque()  # for the feed
        self._recovery: RecoveryNode | None = None
        if settings.recover:
            self._log_for_rewind()
        self._hosts: Hosts | None = None  # if workers are on other machines
        self._vacant: deque[int] = deque()  # roles of processes that died, while no machine is idle
        self._spare: EngineChild | None = None
        self._mergers = Mergers(self._start_merger, self._remove)
        self._has_warned_no_room = False
        self._tombstones_before = 0
        self._started = 0
        self._began_s = 0.0
        self._rewinding_since_s = 0.0
        self._awake = Awake(settings.silence_max_s / _CHECKS_MIN)
        self._children: list[EngineChild] = []
        self._context: zmq.Context[Any] | None = None
        self._poller = zmq.Poller()
        self._encoded: Sequence[Encoded] = ()
        self._has_more = False  # output that was received, and is yielded next
        self._taken: Restart | None = None  # the output as of the last checkpoint
        self._quiet_since_s: float | None = None
        self._closed = False
        self._sockets: list[zmq.Socket[bytes]] = []
        self._boxes: list[Outbox] = []
        self._watched: set[int] = set()
        self._readable: set[object] = set()  # descriptors that are readable if a process has sent something, or ended
        self._next_check_s = 0.0

    # Its state.

    def _log_for_rewind(self) -> None:
        """Set up the parts that a recovery needs."""
        pace = CheckpointPace(self._settings.checkpoint_interval_s)
        self._node.rewind_log = RewindLog(opened, self._settings.workers, self._shelf, pace, Spilled)
        self._recovery = RecoveryNode(self._node, self._settings.workers)

    def prepare_checkpoints(self, begin: Begin | None) -> None:
        """Called before any item: checkpoints will be taken; the run resumes from a checkpoint, or begins."""
        self._settings = replace(self._settings, recover=True)
        self._log_for_rewind()
        assert self._node.rewind_log is not None
        self._node.rewind_log.prepare_handover(replaces=self._recovers)
        self._begin = begin
        if begin is None:
            return
        checkpoint, blocks, states, _ = begin
        block = OpenBlock(Spilled)
        for part in states.opened(checkpoint):
            block.add(part)
        # Workers look up the rest, unless they are on machines that may not reach it.
        snapshot = states.at_once(checkpoint) if self._settings.listen is None else states.whole(checkpoint)
        output = Restart(checkpoint.output.position, checkpoint.output.last, list(blocks), block.opened())
        self._node.begin_at(checkpoint.at, output, snapshot)
        self._tombstones_before = checkpoint.tombstones
        self.progress.resume(checkpoint, self._feed.items_in, self._feed.late_items)

    @property
    def awaits_checkpoint(self) -> bool:
        node = self._node
        if node.finished is not None:
            return node.error is None and not self._has_ended
        return node.rewind_log is not None and node.rewind_log.awaits_checkpoint(node.minimal_time)

    @property
    def _has_ended(self) -> bool:
        """Whether the run has ended without an error, and all of its output has been yielded."""
        node = self._node
        return node.finished is not None and node.error is None and not node.has_released and not self._has_more

    def checkpoint(self) -> Taken | None:
        """The requested checkpoint, if all its snapshots are here; otherwise None, and a checkpoint is requested."""
        log = self._node.rewind_log
        assert log is not None
        complete = log.hand_over()
        if complete is None and self._has_ended:
            complete = log.hand_over_end()
        if complete is None:
            return None
        self._taken = complete.output
        position, last, blocks = complete.output.position, complete.output.last, complete.output.blocks
        output = Output(position, last, len(blocks), self._settings.digest)
        snapshots = {f"worker-{worker}": snapshot for worker, snapshot in complete.snapshots.items()}
        return Taken(complete.checkpoint, output, snapshots, blocks, complete.output.opened, self.progress.tombstones)

    # The run.

    def released(self) -> Iterator[Released]:
        with rare_collections():
            yield from self._released()

    def _released(self) -> Iterator[Released]:
        if self._begin is not None and self._begin.checkpoint.is_last:
            output = digest_of(self._node.restart(), self._settings.digest, Spilled)
            self._node.finished = Finished(output.hexdigest(), output.blocks)
            return
        if self._settings.listen is not None:
            yield from self._awaited_hosts()
        self._start()
        feed, node, progress, poller = self._feed, self._node, self.progress, self._poller
        is_polled = has_borders(self._dataflow)  # the next segment polls, and waits itself
        if self._begin is not None and self._recovery is not None:
            self._do(self._recovery.begin())
        while True:
            may_read = node.may_read(time.monotonic(), stuck=self._stuck)
            fed = feed.poll(node.minimal_time) if may_read else []
            self._carry(node.feed(fed, stuck=self._stuck))
            flush_all(self._boxes, poller)
            self._watch(feed.filenos() if may_read else ())
            busy = bool(fed) and not feed.live
            ready = dict(poller.poll(0 if busy or is_polled else self._wait_ms(may_read)))
            received = self._receive()
            while self._inbound:
                self._carry(node.turn([self._inbound.popleft()], time.monotonic()))
                if node.rewind_log is not None and node.rewind_log.is_complete:
                    self._encoded = ()
                    yield Released(
                        progress.items_out, Metas(), [], ""
                    )  # everything below the checkpoint has been released
                    node.rewind_log.drop_handover()
                messages = node.take_released()
                for message in messages:
                    progress.minimal_bytes = node.minimal_time
                    end = message.released.position + len(message.released.metas)
                    for released, self._encoded in in_parts(message.released, message.encoded):
                        progress.items_out = released.position + len(released.metas)
                        if progress.items_out == end:
                            progress.released_below = message.minimal_time
                        self._has_more = progress.items_out < end or message is not messages[-1]
                        yield released
                if self._recovery is not None:
                    self._do(self._recovery.received())
            if not received and (self.awaits_checkpoint or node.awaits_room):  # also if no source has items
                self._carry(node.turn([], time.monotonic()))
            if node.finished is not None and not node.has_released:
                self._update_progress()
                if node.error is not None:
                    raise node.error
                return
            self._check_processes(ready, busy=received or bool(fed))
            if not received and not fed:
                yield Released(progress.items_out, Metas(), [], "")
                self._check_for_losses()
            elif is_polled:
                yield Released(progress.items_out, Metas(), [], "")
            else:
                self._quiet_since_s = None

    def _check_processes(self, ready: Container[object], *, busy: bool) -> None:
        """Check processes and snapshots: at once if a process has sent something or the engine is not busy.

        Otherwise at intervals, since a check takes as long as carrying a small batch.
        """
        now_s = time.monotonic()
        if busy and now_s < self._next_check_s and not any(number in ready for number in self._readable):
            return
        self._next_check_s = now_s + _CHECK_INTERVAL_S
        self._update_progress()
        self._warn_of_unstorable_state()
        self._warn_of_no_room()
        self._check_children(ready)
        self._take_merged(ready)
        self._start_companions()

    def _warn_of_unstorable_state(self) -> None:
        """Warn that a state cannot be stored; from then on no checkpoints are taken, and a process that dies ends the
        run.
        """
        log = self._node.rewind_log
        if log is None or not log.unstorable or self._recovery is None or self._recovery.rewinding:
            return
        self._recovers, self._recovery = False, None
        self._carry(self._node.stop_logging())
        warn(
            f"a state of graph {self._dataflow.name!r} cannot be stored: {log.unstorable}; so no checkpoint is taken, "
            f"and a process that dies ends the run. Let states be values that can be pickled, or run with "
            f"recover=False",
        )

    def _warn_of_no_room(self) -> None:
        """Warn, once, that there is no room on the disk for checkpoints."""
        log = self._node.rewind_log
        if log is None or not log.no_room or self._has_warned_no_room:
            return
        self._has_warned_no_room = True
        warn(
            f"no checkpoint of graph {self._dataflow.name!r} can be stored now: {log.no_room}; its processes log what "
            f"they send in memory until there is room. Where that has come to {LOG_BYTES_FULL >> 20} MiB in one of "
            f"them nothing more is read, and the run ends if none is made. TMPDIR names another folder",
        )

    @property
    def _stuck(self) -> bool:
        """Whether the queue of some socket is full."""
        return any(box.waiting for box in self._boxes)

    def _wait_ms(self, may_read: bool) -> int:
        """How long to wait for messages, and for items of the sources that may be read."""
        wait_ms = _WAIT_MS
        if self._feed.live:
            beats_seldom = self._feed.intake.beat_interval_s and len(self._watched) == len(self._feed.intake.machines)
            wait_ms = _LONG_TICK_MS if beats_seldom or not may_read else _TICK_MS
        next_s = self._feed.intake.policy.next_s
        reads_ms = poll_ms(next_s) if next_s > time.monotonic() else wait_ms
        return min(wait_ms, reads_ms, poll_ms(self._output.wake_s))

    def _receive(self) -> bool:
        """Take what has arrived, and let barrier and acker have their turn; returns whether anything came."""
        output: list[Message] = []
        received = False
        for message in self._inbox.receive(self._node.messages_max):
            received = True
            if isinstance(message, SnapshotPart):
                self._shelf.take(message)
                continue
            (output if isinstance(message, Batch | AckMessage) else self._inbound).append(message)
        if output or time.monotonic() >= self._output.wake_s:
            self._take_output(output)
        return received or bool(self._inbound)

    def _carry(self, sends: list[Send]) -> None:
        """Send messages of the feed: to workers as frames; barrier and acker have their turn at once."""
        if output := self._carrier.carry(sends, self._node.unsent):
            self._take_output(output)

    def _take_output(self, messages: list[Message]) -> None:
        """Let barrier and acker have their turn; what they send to the feed waits in `_inbound`.

        During a rewind they take nothing: messages in flight are sent again.
        """
        if not self._output.halted:
            self._inbound += self._carrier.carry(self._output.turn(messages, time.monotonic()), self._output.unsent)

    def _watch(self, numbers: Sequence[int]) -> None:
        """Register exactly these descriptors, of live sources that may be read, with the poller."""
        if set(numbers) != self._watched:
            for number in self._watched.difference(numbers):
                self._poller.unregister(number)
            for number in set(numbers).difference(self._watched):
                self._poller.register(number, zmq.POLLIN)
            self._watched = set(numbers)

    # Its processes.

    def _start(self) -> None:
        settings = self._settings
        if shipping.importing:
            raise GraphError(
                "a module runs a graph on engine 'zeromq' while it is imported, and the processes of that run import "
                "it again; put the run under if __name__ == '__main__': or into a function"
            )
        check_descriptors(_DESCRIPTORS + _DESCRIPTORS_OF_WORKER * settings.workers)
        work = shipping.packed(self._dataflow)
        secret = secrets.randbits(64)
        if settings.transport == "ipc" and settings.listen is None:
            transport = Transport(self._folder)
        else:
            if not zmq.has("curve"):
                raise SettingsError("this build of pyzmq has no CURVE, which tcp needs; use transport='ipc'")
            public_key, secret_key = zmq.curve_keypair()
            transport = Transport("", public_key, secret_key)
        states = print_of_graph = None
        if settings.listen is not None:
            host, _ = port_of(settings.listen) or ("", 0)
            transport = replace(transport, host=host, silence_max_s=settings.silence_max_s)
            print_of_graph = fingerprint(self._dataflow)
        elif self._begin is not None:
            states = shipping.packed(self._dataflow, self._begin.at)
        self._transport, self._secret = transport, secret
        first = FirstOrder(transport, settings, states, print_of_graph)
        self._first_block = pickle.dumps((surroundings(), first, work))
        if self._hosts is not None and settings.recover:
            self._mergers.start()  # one process, which removes the folder if this process is killed
            have_private(Path(self._folder))
        for worker in range(settings.workers):
            self._children.append(self._new_child(role_name(worker)))
        for worker, child in enumerate(self._children):
            self._prepare(child, worker)
        context = self._context = zmq.Context()
        self._codec = Codec(CALLER_NUMBER, secret)
        self._inbox = Inbox(context, transport, "caller", self._codec)
        self._sockets.append(self._inbox.socket)
        self._poller.register(self._inbox.socket, zmq.POLLIN)
        deadline_s = self._awake.now_s() + _START_S
        for worker in range(settings.workers):
            self._listen_to(self._started_child(worker, deadline_s))
        self._carrier = Carrier(self._codec, here=(ACKER, BARRIER, CALLER))
        self._connect()
        for child in self._children:
            child.order(pickle.dumps(tuple(self._peers)))
            child.last_sign_s = self._awake.now_s()  # signs start now; the last process may have been slow to start
        self._began_s = self._awake.now_s()

    def _started_child(self, worker: int, deadline_s: float) -> EngineChild:
        """The process of a worker, once it is ready; one that dies meanwhile is replaced, but not for ever."""
        for deaths in range(1, DEATHS_MAX + 1):
            child = self._children[worker]
            while not child.address:
                child.process.wait_for_more(0.1)
                child.listen()
                child.last_sign_s = self._awake.now_s()
                if (failure := child.failure()) is not None:
                    raise failure
                if (death := child.death(self._settings)) is not None:
                    break
                if self._awake.now_s() > deadline_s:
                    raise ProcessError(f"{child.name} did not start within {_START_S:.0f} s")
            else:
                return child
            if not self._recovers:
                raise death
            if deaths == DEATHS_MAX:
                raise died_starting(worker) from death
            child.kill(str(death))
            self.progress.died.append(child.name)
            self._await_host()
            self._children[worker] = self._new_child(role_name(worker))
            self._prepare(self._children[worker], worker)
        raise AssertionError("the last death raises")

    def _prepare(self, child: EngineChild, worker: int) -> None:
        child.order(self._first_block)
        self._give_role(child, worker)

    def _awaited_hosts(self) -> Iterator[Released]:
        """Listen for workers of other machines, and wait for as many as there are to be."""
        settings = self._settings
        assert settings.listen is not None and settings.key is not None
        key = key_of(Path(settings.key))
        self._hosts = Hosts(settings.listen, key, self._folder, settings.silence_max_s, self._dataflow.name)
        for what in self._hosts.awaited(settings.workers):
            self.progress.held_by = what
            yield Released(self.progress.items_out, Metas(), [], "")
        self._poller.register(self._hosts.socket, zmq.POLLIN)
        self._readable.add(self._hosts.socket)

    def _await_host(self) -> None:
        if self._hosts is not None:
            for what in self._hosts.awaited(1):
                self.progress.held_by = what

    def _new_child(self, name: str) -> EngineChild:
        """A process that is to be a worker: here, or on a machine that is idle."""
        if self._hosts is not None:
            return EngineChild(name, self._hosts.start(name), self._awake)
        return self._local_child(name, "process", "")

    def _local_child(self, name: str, module: str, *more: str) -> EngineChild:
        title = f"drift {name} of {self._dataflow.name}"
        return EngineChild(name, LocalProcess(title, self._folder, module, *more), self._awake)

    def _give_role(self, child: EngineChild, role: int) -> None:
        """Order a process to take a role; the name of its inbox is new in the run."""
        self._started += 1
        child.name, child.role, child.inbox = role_name(role), role, f"{role}-{self._started}"
        child.order(pickle.dumps(Role(role, child.inbox, self._secret)))

    @property
    def _peers(self) -> Peers:
        address = {child.role: child.address for child in self._children}
        workers = [address[index] for index in range(self._settings.workers)]
        return Peers(workers, self._inbox.address)

    def _connect(self) -> None:
        """Connect to all others again; frames that waited to be sent are dropped."""
        assert self._context is not None
        drop_all(self._carrier.boxes.values(), self._poller)
        context, transport = self._context, self._transport
        workers = range(self._settings.workers)
        self._carrier.boxes = connected(self._peers, workers, lambda address: Outbox(context, transport, address))
        self._boxes = list(self._carrier.boxes.values())

    def _check_children(self, ready: Container[object]) -> None:
        """Start the recovery if a process has died; raise the error of the first that failed.

        Args:
            ready: descriptors that are readable.
        """
        for child in self._children:
            if not child.numbers or any(number in ready for number in child.numbers):
                child.listen()
        failures = [child.failure() for child in self._children]
        deaths = [(child, death) for child in self._children if (death := child.death(self._settings)) is not None]
        # The error of a process explains more than the deaths that it caused.
        for failure in failures:
            if failure is not None:
                raise failure
        if deaths and not self._recovers:
            raise deaths[0][1]
        if deaths:
            self._replace(deaths)
        elif self._hosts is not None and self._has_lost_connection():
            self._rewind("a connection between its machines was lost")
        if self._vacant and self._hosts is not None:
            self._hosts.listen()  # otherwise processes do, of which there may be none
        while self._vacant and self._hosts is not None and self._hosts.idle:
            self._start_another(self._vacant.popleft())
            self._hosts.found()
        if self._recovery is not None:
            self._hear()

    def _has_lost_connection(self) -> bool:
        """Whether messages of this generation may have been lost with a connection; looked at between rewinds."""
        if self._recovery is not None and self._recovery.rewinding:
            return False
        here = [box.check() for box in self._boxes]
        return any(here) or any(child.sign.lost == self._secret for child in self._children)

    def _rewind(self, reason: str) -> None:
        """Have all processes rewind, and send again what may have been lost.

        Raises:
            ProcessError: the run does not recover.
        """
        if self._recovery is None or not self._recovers:
            raise ProcessError(f"{reason}; everything released before it stands. Run again, with recover=True")
        _LOG.warning("graph %r: %s; all rewind to a checkpoint", self._dataflow.name, reason)
        self._rewinding_since_s = time.monotonic()
        self._do(self._recovery.died([]))

    # The way back from a death.

    def _replace(self, deaths: Sequence[tuple[EngineChild, ProcessError]]) -> None:
        assert self._recovery is not None
        if not self._recovery.rewinding:
            self._rewinding_since_s = time.monotonic()
        calls: dict[int, Call] = {}
        for child, death in deaths:
            self._remove(child, str(death))
            if (call := last_call(Path(self._folder, f"{child.inbox}.call"))) is not None:
                calls[child.role] = call
            self._children.remove(child)
            self.progress.died.append(child.name)
        self._do(self._recovery.died([child.role for child, _ in deaths], calls))

    def _hear(self) -> None:
        """Tell the recovery about replacements that are ready, and answers to its orders."""
        assert self._recovery is not None
        for child in list(self._children):
            if child.address and child.is_new:
                child.is_new = False
                child.last_sign_s = self._awake.now_s() + _START_S
                self._do(self._recovery.started(child.role))
            answers, child.answers = child.answers, []
            for answer in answers:
                self._do(self._recovery.answered(child.role, answer))

    def _do(self, effects: Sequence[Effect]) -> None:
        """Carry out decisions of the recovery, and those that follow from what is carried out here."""
        assert self._recovery is not None
        rewound = None
        to_do = deque(effects)
        while to_do:
            effect = to_do.popleft()
            if isinstance(effect, Replace):
                self._start_another(effect.role)
            elif isinstance(effect, Command):
                if isinstance(effect.order, Rewind) and rewound is None:
                    rewound = self._begin_generation()
                if effect.role in (ACKER, BARRIER):
                    to_do += self._obey(effect.role, effect.order)
                    continue
                child = next(child for child in self._children if effect.role == child.role)
                if isinstance(effect.order, Rewind):
                    child.process.bring(Path(self._folder), effect.order.snapshots)
                child.order(pickle.dumps(Assignment(effect.order, *(rewound or ()))))
            elif isinstance(effect, Send):
                self._carry([effect])
            else:
                if self._rewinding_since_s:  # not if the run resumed so
                    self.progress.recoveries += 1
                    self.progress.recovering_s += time.monotonic() - self._rewinding_since_s
                    self._rewinding_since_s = 0.0

    def _begin_generation(self) -> tuple[int, Peers]:
        """A new secret and new connections; what older generations have sent is not taken any more."""
        self._secret = secrets.randbits(64)
        self._codec.reseed(self._secret)
        self._connect()
        self._inbound.clear()
        return self._secret, self._peers

    def _obey(self, role: int, order: Order) -> Sequence[Effect]:
        """Pass an order to the acker or the barrier; returns what follows from the answer."""
        assert self._recovery is not None
        sends, answer = self._output.part(role).obey(order)
        self._inbound += self._carrier.carry(sends, self._output.unsent)
        return () if answer is None else self._recovery.answered(role, answer)

    def _start_another(self, role: int) -> None:
        """Give a role to the spare process, or to a new one; later, if it is to be on a machine and none is idle."""
        child, self._spare = self._spare, None
        if child is None or child.process.has_ended:
            if self._hosts is not None and not self._hosts.idle:
                self._vacant.append(role)
                self._hosts.missing(len(self._vacant))
                return
            child = self._new_child(role_name(role))
            child.order(self._first_block)
        child.is_new = True
        child.last_sign_s = self._awake.now_s() + _START_S  # signs start when it has its role
        self._give_role(child, role)
        self._children.append(child)
        self._listen_to(child)

    def _listen_to(self, child: EngineChild) -> None:
        self._readable.update(child.numbers)
        for number in child.numbers:
            self._poller.register(number, zmq.POLLIN)

    def _remove(self, child: EngineChild, reason: str = "") -> None:
        self._readable.difference_update(child.numbers)
        for number in child.numbers:
            self._poller.unregister(number)
        child.kill(reason)

    def _start_companions(self) -> None:
        """Start the spare process, and have snapshots merged; not in short runs."""
        after_s = _COMPANIONS_LIVE_AFTER_S if self._feed.live else _COMPANIONS_AFTER_S
        is_short = not self.progress.died and self._awake.now_s() - self._began_s < after_s
        if not self._recovers or is_short or (self._recovery is not None and self._recovery.rewinding):
            return
        if self._spare is not None and self._hosts is not None and self._spare.process.has_ended:
            self._spare = None  # with its machine
        if self._spare is None and (self._hosts is None or self._hosts.idle):
            self._spare = self._new_child("spare")
            self._spare.order(self._first_block)
        if self._node.rewind_log is not None:
            self._mergers.order(self._node.rewind_log)

    def _start_merger(self, name: str) -> EngineChild:
        self._started += 1
        merger = self._local_child(name, "merger", f"merger-{self._started}")
        merger.order(self._first_block)
        self._listen_to(merger)
        return merger

    def _take_merged(self, ready: Container[object]) -> None:
        """Take the merged snapshots of checkpoints, and remove snapshots that are not needed any more."""
        log = self._node.rewind_log
        if log is None or self._recovery is None:
            return
        if not self._recovery.rewinding:
            for name in log.take_unneeded():
                self._shelf.drop(name)
        self._mergers.listen(log, ready)

    def _check_for_losses(self) -> None:
        """Detect a lost message: every process waits, and the acker waits for a message in flight."""
        signs = [child.sign for child in self._children]
        if self._recovery is not None and self._recovery.rewinding:
            self._quiet_since_s = None
            return
        if not all(sign.idle for sign in signs) or not self._output.held_by_message:
            self._quiet_since_s = None
            return
        now_s = self._awake.now_s()
        if self._quiet_since_s is None:
            self._quiet_since_s = now_s
        elif now_s - self._quiet_since_s > self._settings.silence_max_s and self._hosts is not None:
            self._quiet_since_s = None
            self._rewind("a message between its machines was lost")
        elif now_s - self._quiet_since_s > self._settings.silence_max_s:
            refused = sum(sign.refused_frames for sign in signs) + self._inbox.refused
            raise ProcessError(
                f"a message was lost between the processes of the run ({refused} frames were refused): all wait, and "
                f"minimal time is held by a message that does not come; everything released before stands. Run again"
            )

    def _update_progress(self) -> None:
        progress, feed = self.progress, self._feed
        progress.minimal_bytes = self._node.minimal_time
        progress.held_by = f"source {feed.name_of(self._node.held_by)}" if self._node.held_by >= 0 else ""
        holder = self._node.held_by
        progress.silent_since_s = feed.intake.silent_since_s(holder) if holder >= 0 else None
        progress.items_in = feed.items_in
        progress.late_items = feed.late_found
        progress.fed_again = self._node.fed_again
        progress.fraction = feed.fraction()
        progress.unsettled = feed.unsettled(progress.minimal_bytes)
        progress.tombstones = self._tombstones_before + sum(child.sign.tombstones for child in self._children)
        progress.refused_frames = sum(child.sign.refused_frames for child in self._children) + self._inbox.refused
        for child in self._children:
            if (log := self._node.rewind_log) is not None and child.sign.log_bytes:
                log.other_log_bytes = max(log.other_log_bytes, child.sign.log_bytes)
                child.sign.log_bytes = 0  # counted once; the next sign has a new value
            progress.peak_memory_bytes[child.name] = child.sign.peak_memory_bytes
        if progress.died and self._recovery is not None and not self._node.restored:
            progress.held_by = f"the death of {progress.died[-1]}"
            if self._vacant and self._hosts is not None:
                progress.held_by = self._hosts.missing(len(self._vacant))
            return
        if self._node.awaits_room:
            progress.held_by = f"no room in {Path(self._folder).parent}"
            return
        if progress.held_by.startswith("source") and not feed.finished:
            return
        busiest = max(self._children, key=lambda child: child.sign.call[0])
        progress.held_by = busiest.name if busiest.sign.call[0] else progress.held_by
        progress.silent_since_s = None

    def hexdigest(self) -> str:
        node = self._node
        if node.finished is not None:
            return node.finished.digest
        known = [self._taken, node.rewind_log.restart() if node.rewind_log is not None else None]
        released = next((each for each in known if each and each.position == self.progress.items_out > 0), None)
        return "" if released is None else digest_of(released, self._settings.digest, Spilled).hexdigest()

    def blocks(self) -> list[bytes]:
        return self._node.finished.blocks if self._node.finished is not None else []

    def encoded(self) -> Sequence[Encoded]:
        """The bytes of the last batch's items, for a record; empty if they came as columns."""
        return self._encoded

    def observed(self) -> Observed:
        children = [*self._children]
        counts = added([self._plan.totals(), *(child.sign.counts for child in children)])
        states = [
            ProcessState(child.name, child.process.pid, sign.memory_bytes, sign.cpu_s, sign.at_s)
            for child in children
            if (sign := child.sign).at_s
        ]
        bars = {child.name: [child.bars.popleft() for _ in range(len(child.bars))] for child in children}
        return Observed(counts, self._plan.inside_loops(), [own_state("run"), *states], bars)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        children = self._children
        if self._spare is not None:
            self._spare.kill("the run is over")
        self._mergers.kill()
        try:
            for child in children:
                child.order(STOP)
            for child in children:
                child.end()
            if self._sockets:
                self._update_progress()
        finally:
            if self._hosts is not None:
                self._hosts.close("the run is over")
            drop_all(self._boxes, self._poller)
            for socket in self._sockets:  # each one: at interpreter exit the context has lost track of them
                socket.close(linger=0)
            if self._context is not None:
                self._context.destroy(linger=0)  # with sockets that could not be bound or connected
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._feed.close()


def _is_alone(feed: Feed) -> bool:
    """Whether one source, in arrival time, is all of the input."""
    return len(feed.intake.machines) == 1 and not feed.intake.machines[0].policy.reads_payloads


def _warn_of_slow_cycles(plan: Plan, workers: int) -> None:
    if not needs_pace(plan, workers):
        return
    cyclic = [name for component in plan.components if plan.is_cyclic(component) for name in component]
    warn(
        f"items go round a cycle through {', '.join(map(repr, cyclic))} from key to key, and so from worker to worker: "
        f"with workers={workers} that is slower than with one, and engine='local' is faster still (docs/engines.md)",
    )
