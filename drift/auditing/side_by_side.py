"""Two lineages side by side: of an item as it was when recorded, and as it is now.

Invariant: every item shown of either lineage is in one row, next to its counterpart if it has one; if a first
difference is named, both lineages agree in everything made before it.

Why: the parents of an item are paired by their order, and by the input item behind them if that has changed. Computing
the recorded lineage takes the recorded code. Without it, an item is known to be the same if no step at fault had a part
in it, since the input is the same and all other functions are pure; of other items only the recorded output item is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from drift.auditing.lineage import Lineage, Made
from drift.auditing.show import CHARACTERS_MAX, left_out_words, shown_payload, words_of
from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.functions import safe_text
from drift_graph.item import Failure, Item
from drift_graph.meta import is_later, root_of

_SHOWN_MAX = 6  # parents of one item, as in an outline
NOT_KNOWN = "not known: it takes the recorded code"


@dataclass(frozen=True)
class Pair:
    """A row: a recorded item and its counterpart now.

    Attributes:
        depth: 0 for the output item; its parents are below it.
        old, new: either is None if the other has no counterpart.
        known: whether the recorded item is known; if not, `old` is None although there was one.
        same: whether they do not differ.
        parts: whether it is the first difference; or, without the recorded code, may be.
        again: whether it was written out above.
        left_out: number of further parents that are not shown; then it is not an item.
    """

    depth: int
    old: Made | None
    new: Made | None
    known: bool
    same: bool
    parts: bool = False
    again: bool = False
    left_out: int = 0


@dataclass(frozen=True)
class SideBySide:
    """Two lineages, paired.

    Attributes:
        old: None if the recorded code is not available.
        pairs: from the output items back to the input.
    """

    old: Lineage | None
    new: Lineage | None
    pairs: tuple[Pair, ...]

    @property
    def parting(self) -> Pair | None:
        """The first difference, or a possible one; None if it is before what is shown."""
        return next((pair for pair in self.pairs if pair.parts), None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; items by their numbers in `lineage` and `recorded_lineage`."""

        def described(made: Made | None, lineage: Lineage | None) -> dict[str, Any] | None:
            if made is None:
                return None
            number = made.number if lineage is not None and made in lineage.items else None
            return {"number": number, "kind": made.kind, "step": made.step, "where": made.where,
                    "payload": safe_text(repr, made.payload, 500)}  # fmt: skip

        return {
            "complete": self.old is not None,
            "rows": [
                {
                    "recorded": described(pair.old, self.old),
                    "computed": described(pair.new, self.new),
                    **{name: value for name, value in vars(pair).items() if name not in ("old", "new")},
                }
                for pair in self.pairs
            ],
        }


def paired(old: Lineage, new: Lineage) -> SideBySide:
    walk = _Both(old, new)
    return SideBySide(old, new, tuple(walk.pairs()))


def paired_with_recorded(recorded: Item[Any], new: Lineage, at_fault: Collection[str]) -> SideBySide:
    """Pair a lineage with that of a recorded item whose code is not available.

    Args:
        at_fault: names of the steps that may have returned something else when the run was recorded.
    """
    return SideBySide(None, new, tuple(_OneKnown(recorded, new, at_fault).pairs()))


class _Walk:
    """Walks both from the output items on; an item that was shown is not walked again."""

    knows_old: ClassVar = True  # all of the recorded lineage

    def __init__(self, first: Made | None) -> None:
        self._first = first  # the first items that differ
        self._shown: set[int] = set()

    def walk(self, old: Made | None, new: Made | None) -> Iterator[Pair]:
        todo: list[tuple[int, Made | None, Made | None, int]] = [(0, old, new, 0)]
        while todo:
            depth, one, other, left_out = todo.pop()
            if left_out:
                yield Pair(depth, None, None, True, True, left_out=left_out)
                continue
            made = other or one
            assert made is not None
            below = self.below(one, other)
            shown = id(made) in self._shown
            again = shown and bool(below)
            self._shown.add(id(made))
            known, parts = self.knows_old or one is not None, made is self._first and not shown
            yield Pair(depth, one, other, known, self.same(one, other), parts, again)
            if not again:
                shown_pairs, left = _some(below, self.same)
                todo += [(depth + 1, *pair, 0) for pair in reversed(shown_pairs)]
                if left:
                    todo.append((depth + 1, None, None, left))

    def below(self, old: Made | None, new: Made | None) -> list[tuple[Made | None, Made | None]]:
        raise NotImplementedError

    def same(self, old: Made | None, new: Made | None) -> bool:
        raise NotImplementedError


_Couple = tuple[Made | None, Made | None]


def _some(below: list[_Couple], same: Callable[[Made | None, Made | None], bool]) -> tuple[list[_Couple], int]:
    """The pairs to show, in their order, and how many are left out; differing ones are preferred, then the last."""
    if len(below) <= _SHOWN_MAX:
        return below, 0
    differing = [index for index, pair in enumerate(below) if not same(*pair)]
    last = [index for index in range(len(below)) if index not in set(differing)]
    chosen = sorted([*differing[:_SHOWN_MAX], *last[len(last) - max(_SHOWN_MAX - len(differing), 0) :]])
    return [below[index] for index in chosen], len(below) - len(chosen)


class _Both(_Walk):
    """Both lineages are known."""

    def __init__(self, old: Lineage, new: Lineage) -> None:
        self._old, self._new = old.item, new.item
        self._agree: dict[tuple[int, int], bool] = {}
        super().__init__(self._first_parting())

    def pairs(self) -> Iterator[Pair]:
        return self.walk(self._old, self._new)

    def same(self, old: Made | None, new: Made | None) -> bool:
        """Whether they are equal, with parents that are the same."""
        return old is not None and new is not None and self._agree.get((id(old), id(new)), False)

    def below(self, old: Made | None, new: Made | None) -> list[_Couple]:
        return _coupled(old.made_of if old is not None else (), new.made_of if new is not None else ())

    def _first_parting(self) -> Made | None:
        """The first item that differs, or has other parents, while all its own parents are the same."""
        first: Made | None = None
        todo: list[tuple[_Couple, bool]] = [((self._old, self._new), False)]
        while todo:
            (old, new), ready = todo.pop()
            if old is None or new is None or (id(old), id(new)) in self._agree:
                continue
            below = self.below(old, new)
            if not ready:
                todo.append(((old, new), True))
                todo += [(pair, False) for pair in reversed(below)]
                continue
            equal = _is_equal(old, new)
            self._agree[id(old), id(new)] = equal and all(self.same(*pair) for pair in below)
            couples = [pair for pair in below if None not in pair]
            complete = not (old.cut or new.cut) and all(self.same(*pair) for pair in couples)
            if first is None and complete and not self._agree[id(old), id(new)]:
                first = new
        return first


class _OneKnown(_Walk):
    """Of the recorded lineage only the output item is known, and the items that no step at fault took part in."""

    knows_old = False

    def __init__(self, recorded: Item[Any], new: Lineage, at_fault: Collection[str]) -> None:
        self._item = new.item
        self._before = new.item.made_of[0]  # a sink passes it on
        self._recorded = {
            id(made): Made(0, made.kind, made.step, made.does, made.where, made.meta, recorded.payload)
            for made in (self._item, self._before)
        }
        self._touched: set[int] = set()
        first: Made | None = None
        for made in new.items:
            if made.step in at_fault or any(id(each) in self._touched for each in made.made_of):
                self._touched.add(id(made))
                complete = not made.cut and not any(each.cut for each in made.made_of)
                first = made if first is None and made.step in at_fault and complete else first
        super().__init__(first)

    def pairs(self) -> Iterator[Pair]:
        return self.walk(self._recorded_of(self._item), self._item)

    def _recorded_of(self, made: Made) -> Made | None:
        return self._recorded.get(id(made)) or (None if id(made) in self._touched else made)

    def same(self, old: Made | None, new: Made | None) -> bool:
        return id(new) not in self._touched

    def below(self, old: Made | None, new: Made | None) -> list[_Couple]:
        return [(self._recorded_of(made), made) for made in (new.made_of if new else ())]


def _coupled(old: Sequence[Made], new: Sequence[Made]) -> list[_Couple]:
    """The parents of two items, paired: by position in the order, then by the input item behind them and by step.

    What comes of an input item is no counterpart of what comes of another one: one of them entered, the other left.
    States and timers, which come of many, and what comes at a later time, are paired by step, then in order.
    """

    def place(made: Made) -> bytes | None:
        return None if made.kind in ("state", "timer") or is_later(made.meta) else root_of(made.meta)

    couples: dict[int, Made] = {}
    left = list(old)
    for key in (
        lambda made: (made.kind, made.step, made.meta),
        lambda made: (made.kind, place(made), made.step),
        lambda made: (made.kind, place(made)),
    ):
        for made in new:
            if id(made) not in couples:
                found = next((each for each in left if key(each) == key(made)), None)
                if found is not None:
                    couples[id(made)] = found
                    left.remove(found)
    return [*((each, None) for each in left), *((couples.get(id(made)), made) for made in new)]


def _is_equal(old: Made, new: Made) -> bool:
    """Whether two items have one payload, and states one key."""
    if isinstance(old.payload, Failure) or isinstance(new.payload, Failure):
        return isinstance(old.payload, Failure) and isinstance(new.payload, Failure) and (
            old.payload.message == new.payload.message
        )  # fmt: skip
    try:
        return canonical((old.payload, old.key)) == canonical((new.payload, new.key))
    except NoCanonicalForm:
        return safe_text(repr, old.payload, 10_000) == safe_text(repr, new.payload, 10_000)


def side_by_side_lines(both: SideBySide) -> Iterator[str]:
    """As text: a line for a row whose sides are the same, else one for each side."""
    at_first = "where they part first" if both.old is not None else "the first that may be another"
    yield f"both lineages, back to the input (= the same, - recorded, + computed now, >> {at_first}):"
    for pair in both.pairs:
        start = f"{'>>' if pair.parts else '  '} {{:1}} {'  ' * pair.depth}"
        if pair.left_out:
            yield start.format("") + left_out_words(pair.left_out)
            continue
        sides = (("-", pair.old, both.old), ("=" if pair.same else "+", pair.new, both.new))
        for mark, made, lineage in sides[int(pair.same) :]:
            if made is not None:
                words = words_of(lineage, made) if lineage is not None else ""
                words += ", as above" * pair.again
                yield start.format(mark) + "  ".join(filter(None, (shown_payload(made, CHARACTERS_MAX), words)))
            elif not pair.known:
                yield start.format(mark) + NOT_KNOWN
    if both.old is None:
        yield "the recorded lineage is incomplete without the recorded code: drift audit --was FILE:GRAPH"
    elif both.parting is None:
        yield "they differ before the items shown"
