"""What the calling process decides when processes of its run die: one way back from every death.

Invariant: all go on from one cut that minimal time has reached and that nobody released or settled anything at or
above; and nobody sends a message of a generation before all others take it.

Why: it goes in three steps, each begun when all who live have answered the one before. They halt, and say how far
minimal time had come: the greatest is the cut, since a minimal time, once announced, stays true. (What the barrier
has sent to this process is taken in before.) They go back to the cut, and take the new generation's messages only. They
go on: whoever begins anew is sent what it had below the cut, and all else is fed once more. A death meanwhile begins at
the first step, with the next generation; whoever had begun anew and has not come to the cut begins anew again.
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

#: Roles of one process: the acker is with the output barrier.
TOGETHER = (BARRIER, ACKER)
#: So many deaths of one process at one cut end the run.
DEATHS_MAX = 3


class Call(NamedTuple):
    """A call of a user's function.

    Attributes:
        place: the function, and where it is.
        given: what it was given, as text.
        identity: the same for all calls of a function with equal arguments.
    """

    place: str
    given: str
    identity: bytes


class Replace(NamedTuple):
    """Start a process in place of one that has died; `RecoveryNode.started` is called when it has started."""

    role: int


class Command(NamedTuple):
    """An order for a process."""

    role: int
    order: Order


class Recovered(NamedTuple):
    """All have come to the cut, and the run goes on."""

    generation: int
    replaced: list[int]


Effect = Replace | Command | Send | Recovered


class RecoveryNode:
    """See the module.

    Args:
        feed: of the same process.
        workers: how many there are.

    Attributes:
        generation: of the run.
        going_back: not all have answered yet.
        went_back_to: where those began anew who were replaced last.
    """

    def __init__(self, feed: FeedNode, workers: int) -> None:
        self.generation = 0
        self.going_back = False
        self.went_back_to = BEGINNING
        self._feed = feed
        self._roles = [*range(workers), BARRIER, ACKER]
        self._workers = workers
        self._anew: set[int] = set()  # begin anew, or have begun and not come to the cut
        self._starting: set[int] = set()
        self._asked: set[int] = set()  # who has not answered
        self._halted: dict[int, Halted] = {}
        self._order: Rewind | None = None
        self._newly: list[tuple[int, Call | None]] = []  # who has died since it was last judged, and in which call
        self._deaths: dict[int, int] = {}  # by role, at the last cut
        self._tries = 0  # that have ended at the last cut
        self._calls: dict[bytes, int] = {}  # those that processes died in, at the last cut
        self._refused: dict[bytes, str] = {}
        self._cut = BEGINNING

    def begin(self) -> list[Effect]:
        """Nobody has begun, and the run goes on from a cut of another: all begin anew there."""
        self.generation += 1
        self._anew = {role for role in self._roles if role != ACKER}
        self.going_back = True
        self._feed.obey(Halt(self.generation))
        return self._go_back()

    def died(self, roles: Iterable[int], calls: Mapping[int, Call] | None = None) -> list[Effect]:
        """Processes are dead, and nothing of theirs runs any more: what to do.

        Args:
            calls: of users' functions that they were in, where that is known.

        Raises:
            ProcessError: one has died too often at one place.
        """
        effects: list[Effect] = []
        for role in roles:
            self._newly.append((role, (calls or {}).get(role)))
            self._anew.add(role)
            self._starting.add(role)
            effects.append(Replace(role))
        self.generation += 1
        self.going_back, self._order = True, None
        self._asked = {role for role in self._roles if role not in self._starting}
        self._halted = {}
        halt = Halt(self.generation)
        self._feed.obey(halt)
        effects += [Command(role, halt) for role in self._roles if role in self._asked]
        return effects + self._go_back()

    def started(self, role: int) -> list[Effect]:
        """A process is there in place of one that has died."""
        self._starting.discard(role)
        return self._go_back()

    def answered(self, role: int, answer: Answer) -> list[Effect]:
        """A process has carried out an order; answers to older orders are ignored."""
        if answer.generation != self.generation or role not in self._asked:
            return []
        self._asked.discard(role)
        if isinstance(answer, Halted):
            self._halted[role] = answer
            return self._go_back()
        assert isinstance(answer, Rewound)
        return self._go_on()

    def came(self) -> list[Effect]:
        """The feed has taken messages: what that makes possible."""
        if self.going_back:
            return self._go_back()
        order = self._order
        if order is None or not self._feed.restored:
            return []
        self._order, self._anew = None, set()
        return [Recovered(order.generation, order.replaced)]

    def _go_back(self) -> list[Effect]:
        """The second step, where the first is done."""
        if self._order is not None or self._starting or self._asked or not self._has_all_released():
            return []
        cut = max([self._feed.minimal_time, *(halted.minimal_time for halted in self._halted.values())])
        self._judge(cut)
        replaced = self._replaced()
        since = self._feed.since if replaced else cut
        self.went_back_to = since
        watched = bool(self._tries >= DEATHS_MAX - 1 or self._refused)
        order = self._order = Rewind(
            self.generation, cut, since, replaced, watched=watched, refused=dict(self._refused)
        )
        self._feed.obey(order)
        self._asked = set(self._roles)
        return [Command(role, self._order_of(role, order)) for role in self._roles]

    def _order_of(self, role: int, order: Rewind) -> Rewind:
        """With what one needs that begins anew."""
        if role not in order.replaced:
            return order
        restart = self._feed.restart() if role == BARRIER else None
        pieces = self._feed.pieces_of(role) if role != BARRIER else ()
        return msgspec.structs.replace(order, restart=restart, pieces=pieces)

    def _go_on(self) -> list[Effect]:
        """The third step, where the second is done."""
        if self._asked:
            return []
        self.going_back = False
        go = Go(self.generation)
        effects: list[Effect] = [Command(role, go) for role in self._roles]
        return [*effects, *self._feed.obey(go)[0]]

    def _replaced(self) -> list[int]:
        """Who begins anew: an acker has nothing that it could have lost."""
        return [role for role in self._roles if role in self._anew and role != ACKER]

    def _has_all_released(self) -> bool:
        """Whether all has come that the barrier has sent."""
        halted = self._halted.get(BARRIER)
        if halted is None:
            return True
        return self._feed.position >= halted.position and (self._feed.finished is not None) >= halted.finished

    def _judge(self, cut: bytes) -> None:
        """Whether somebody dies again and again without getting anywhere.

        Where it does so in one call of a function, that is refused: the call fails in place of its process, at its
        place in the order, and all before it is released.
        """
        if cut > self._cut:
            self._cut, self._deaths, self._tries, self._calls = cut, {}, 0, {}
        self._tries += bool(self._newly)
        often: list[int] = []
        for role, call in self._newly:
            deaths = self._deaths[role] = self._deaths.get(role, 0) + 1
            seen = 0
            if call is not None:
                seen = self._calls[call.identity] = self._calls.get(call.identity, 0) + 1
            if call is not None and call.identity not in self._refused and (deaths >= DEATHS_MAX or seen > 1):
                self._refused[call.identity] = (
                    f"called with ({call.given}) it has ended {role_name(role)} {deaths} times"
                )
                del self._deaths[role]
            elif deaths >= DEATHS_MAX:
                often.append(role)
        self._newly = []
        if often:
            raise ProcessError(
                f"{role_name(often[0])} died {DEATHS_MAX} times {self._feed.place_of(cut)}, and nothing "
                f"has gone beyond; everything released before it stands. If a function ends its process at this "
                f"item, mend it or take the item out of the input; if memory ran out, lower in_flight_max"
            )


def role_name(role: int) -> str:
    """What people call a process of the run."""
    return "barrier" if role in TOGETHER else f"worker {role}"
