"""Levels: how many steps that wait for time are behind each other on the way to a place in the graph.

Invariant: what is sent to a place of level l was caused by nothing of a greater level; what a step holds and sends is
of the level behind it, and it waits for what is of lower levels alone.

Why: a step that waits until nothing can come below its items need not wait for what is behind it. The acker has a
frontier for each level, so of a chain of such steps each waits for those before it, and corrects nothing. A step
whose items come from one with the same keys, so in memory, is of the level of that one: a worker runs both in one turn.
Behind a cycle it is not: what comes round may be of its level, and would come below what it has passed.
Steps of one cycle are of one level, in and out: they correct themselves. So do all steps of a graph in which maps put
items at later times, which may come back to any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The levels of a plan.

    Attributes:
        of: by target (a source's program or a grouping) the level of what is sent to it. All others are `last`.
        behind: by grouping the level of what it holds and sends.
        reads: by grouping the level whose frontier it reads: nothing comes to it below that, unless it is in `cyclic`.
        stays: groupings whose items come from one of their level, on the same worker.
        cyclic: groupings to which messages of a greater level may come than the one that they read.
        last: the greatest: that of sinks. Its frontier is minimal time.
    """

    of: Mapping[str, int]
    behind: Mapping[str, int]
    reads: Mapping[str, int]
    stays: frozenset[str]
    cyclic: frozenset[str]
    last: int

    @property
    def count(self) -> int:
        """How many there are."""
        return self.last + 1

    def level_of(self, target: str) -> int:
        return self.of.get(target, self.last)


def levels_of(
    sources: Sequence[str],
    components: Sequence[tuple[str, ...]],
    before: Mapping[str, Sequence[str]],
    waits: Mapping[str, bool],
    *,
    in_memory: Mapping[str, bool],
    is_cyclic: Mapping[tuple[str, ...], bool],
    puts_later: bool,
) -> Levels:
    """The levels of a graph.

    Args:
        components: of groupings, in an order in which items flow.
        before: by grouping the sources and groupings whose items come to it through nothing but maps.
        waits: by grouping whether anything waits there for its time.
        in_memory: by grouping whether all that comes to it comes from one that waits, and never leaves a worker.
        puts_later: whether maps put items at later times.
    """
    of: dict[str, int] = dict.fromkeys(sources, 0)
    behind: dict[str, int] = {}
    reads: dict[str, int] = {}
    stays: list[str] = []
    cyclic: list[str] = []
    together = [tuple(name for each in components for name in each)] if puts_later and components else components
    for component in together:
        outside = [behind.get(origin, 0) for name in component for origin in before[name] if origin not in component]
        level = max(outside, default=0)
        holds = puts_later or any(waits[name] for name in component)
        returns = puts_later or is_cyclic[component]
        for name in component:
            shares = level and waits[name] and in_memory[name] and before[name][0] not in cyclic
            if shares and not returns:
                of[name], reads[name], behind[name] = 0, level - 1, level
                stays.append(name)
            else:
                of[name], reads[name], behind[name] = level + (holds and returns), level, level + holds
        if returns:
            cyclic += component
    return Levels(of, behind, reads, frozenset(stays), frozenset(cyclic), max(behind.values(), default=0))
