"""Recovery: the decisions of the calling process when processes of its run die; the same procedure for every death.

Invariant: all processes resume from one checkpoint that minimal time has reached, and no process released or settled
anything at or above it; no process sends a message of a generation before all others accept that generation.

Why: recovery has three steps, each begun when all live processes have answered the previous one. 1. They halt, and
report the minimal time that they know: the greatest is the checkpoint, since a minimal time, once announced, stays
true. (The barrier's output is received before.) 2. They rewind to the checkpoint, and accept messages of the new
generation only.
3. They resume: replaced processes are sent the items that they had below the checkpoint, and all other input is fed
   again. If
a process dies meanwhile, recovery starts again at the first step, with the next generation; replaced processes that
have not reached the checkpoint are restarted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.messages import Answer, Go, Halt, Halted, Order, Rewind, Rewound
from drift.machines.nodes.node import ACKER, Send
from drift.machines.worker import BARRIER
from drift_graph.errors import ProcessError
from drift_graph.meta import BEGINNING

#: Deaths of one process at one checkpoint that end the run.
DEATHS_MAX = 3


class Call(NamedTuple):
    """A call of a user's function.

    Attributes:
        function: its name, file and line.
        arguments: as text.
        identity: the same for all calls of a function with equal arguments.
    """

    function: str
    arguments: str
    identity: bytes


class Replace(NamedTuple):
    """Start a process in place of one that has died; `RecoveryNode.started` is called when it has started."""

    role: int


class Command(NamedTuple):
    """An order for a process."""

    role: int
    order: Order


class Recovered(NamedTuple):
    """All processes have reached the checkpoint, and the run resumes."""

    generation: int
    replaced: list[int]


Effect = Replace | Command | Send | Recovered


class RecoveryNode:
    """
    Args:
        feed: of the same process.
        workers: how many there are.

    Attributes:
        rewinding: whether some processes have not answered yet.
        rewound_to: the checkpoint from which the last replaced processes started.
    """

    def __init__(self, feed: FeedNode, workers: int) -> None:
        self.generation = 0
        self.rewinding = False
        self.rewound_to = BEGINNING
        self._feed = feed
        self._roles = [*range(workers), BARRIER, ACKER]
        self._workers = workers
        self._restarting: set[int] = set()  # roles that are restarted and have not reached the checkpoint
        self._starting: set[int] = set()
        self._starts_failed: dict[int, int] = {}  # by role: deaths since a process of it has last started
        self._awaited: set[int] = set()  # roles that have not answered
        self._halted: dict[int, Halted] = {}
        self._order: Rewind | None = None
        self._unjudged: list[
            tuple[int, Call | None]
        ] = []  # roles that died since the last judgement, and the call in which each died
        self._deaths: dict[int, int] = {}  # by role, at the last checkpoint
        self._tries = 0  # recoveries that ended at the last checkpoint
        self._calls: dict[bytes, int] = {}  # how many processes died in a call, at the last checkpoint
        self._refused: dict[bytes, str] = {}
        self._checkpoint = BEGINNING

    def begin(self) -> list[Effect]:
        """Resume from the checkpoint of another run, before any process has started: all start there."""
        self.generation += 1
        self._restarting = {role for role in self._roles if role != ACKER}
        self.rewinding = True
        self._feed.obey(Halt(self.generation))
        return self._rewind()

    def died(self, roles: Iterable[int], calls: Mapping[int, Call] | None = None) -> list[Effect]:
        """Handle the death of processes, once nothing of theirs runs any more.

        Args:
            calls: the calls of users' functions in which they died, if known.

        Raises:
            ProcessError: a process has died too often at one checkpoint.
        """
        effects: list[Effect] = []
        for role in roles:
            self._unjudged.append((role, (calls or {}).get(role)))
            self._restarting.add(role)
            if role in self._starting:
                failed = self._starts_failed[role] = self._starts_failed.get(role, 0) + 1
                if failed == DEATHS_MAX:
                    raise died_starting(role)
            self._starting.add(role)
            effects.append(Replace(role))
        self.generation += 1
        self.rewinding, self._order = True, None
        self._awaited = {role for role in self._roles if role not in self._starting}
        self._halted = {}
        halt = Halt(self.generation)
        self._feed.obey(halt)
        effects += [Command(role, halt) for role in self._roles if role in self._awaited]
        return effects + self._rewind()

    def started(self, role: int) -> list[Effect]:
        """Handle the start of a replacement process."""
        self._starting.discard(role)
        self._starts_failed.pop(role, None)
        return self._rewind()

    def answered(self, role: int, answer: Answer) -> list[Effect]:
        """Handle a process's answer to an order; answers to older orders are ignored."""
        if answer.generation != self.generation or role not in self._awaited:
            return []
        self._awaited.discard(role)
        if isinstance(answer, Halted):
            self._halted[role] = answer
            return self._rewind()
        assert isinstance(answer, Rewound)
        return self._resume()

    def received(self) -> list[Effect]:
        """The effects that are possible after the feed has taken messages."""
        if self.rewinding:
            return self._rewind()
        order = self._order
        if order is None or not self._feed.restored:
            return []
        self._order, self._restarting = None, set()
        return [Recovered(order.generation, order.replaced)]

    def _rewind(self) -> list[Effect]:
        """Begin the second step, if the first is done."""
        if self._order is not None or self._starting or self._awaited or not self._has_all_released():
            return []
        checkpoint = max([self._feed.minimal_time, *(halted.minimal_time for halted in self._halted.values())])
        self._judge(checkpoint)
        replaced = self._replaced()
        since = self._feed.since if replaced else checkpoint
        self.rewound_to = since
        watched = bool(self._tries >= DEATHS_MAX - 1 or self._refused)
        order = self._order = Rewind(
            self.generation, checkpoint, since, replaced, watched=watched, refused=dict(self._refused)
        )
        self._feed.obey(order)
        self._awaited = set(self._roles)
        return [Command(role, self._order_of(role, order)) for role in self._roles]

    def _order_of(self, role: int, order: Rewind) -> Rewind:
        """The order for a process; for a replaced one, with the state that it starts with."""
        if role not in order.replaced:
            return order
        restart = self._feed.restart() if role == BARRIER else None
        snapshots = self._feed.snapshots_of(role) if role != BARRIER else ()
        return msgspec.structs.replace(order, restart=restart, snapshots=snapshots)

    def _resume(self) -> list[Effect]:
        """Begin the third step, if the second is done."""
        if self._awaited:
            return []
        self.rewinding = False
        go = Go(self.generation)
        effects: list[Effect] = [Command(role, go) for role in self._roles]
        return [*effects, *self._feed.obey(go)[0]]

    def _replaced(self) -> list[int]:
        """The processes that start again, without the acker, which has no state to lose."""
        return [role for role in self._roles if role in self._restarting and role != ACKER]

    def _has_all_released(self) -> bool:
        """Whether all output that the barrier has sent has been received."""
        halted = self._halted.get(BARRIER)
        if halted is None:
            return True
        return self._feed.position >= halted.position and (self._feed.finished is not None) >= halted.finished

    def _judge(self, checkpoint: bytes) -> None:
        """Judge whether a process dies again and again without progress.

        If it always dies in the same call of a function, the call is refused: it fails instead of the process, at its
        position in the order, and all output before it is released.
        """
        if checkpoint > self._checkpoint:
            self._checkpoint, self._deaths, self._tries, self._calls = checkpoint, {}, 0, {}
        self._tries += bool(self._unjudged)
        often: list[int] = []
        for role, call in self._unjudged:
            deaths = self._deaths[role] = self._deaths.get(role, 0) + 1
            in_call = 0
            if call is not None:
                in_call = self._calls[call.identity] = self._calls.get(call.identity, 0) + 1
            if call is not None and call.identity not in self._refused and (deaths >= DEATHS_MAX or in_call > 1):
                self._refused[call.identity] = (
                    f"called with ({call.arguments}) it has ended {role_name(role)} {deaths} times"
                )
                del self._deaths[role]
            elif deaths >= DEATHS_MAX:
                often.append(role)
        self._unjudged = []
        if often:
            raise ProcessError(
                f"{role_name(often[0])} died {DEATHS_MAX} times {self._feed.described(checkpoint)}, and nothing "
                f"after that was released; everything released before it stands. If a function ends its process at "
                f"this item, mend it or take the item out of the input; if memory ran out, lower in_flight_max"
            )


def died_starting(role: int) -> ProcessError:
    """The error where processes of a role do not live to start."""
    return ProcessError(
        f"{role_name(role)} died {DEATHS_MAX} times while it started; everything released before it stands. If its "
        f"modules end the process when they are imported, mend them; if memory ran out, use fewer workers"
    )


def role_name(role: int) -> str:
    """What people call a process of the run; acker and output barrier die together."""
    return "barrier" if role in (BARRIER, ACKER) else f"worker {role}"
