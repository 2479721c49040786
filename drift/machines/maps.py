"""Chains and trees of maps, run batch by batch as one function from a source or a grouping to the next ports.

Invariant: the outputs of a program have the same metas and payloads as if each map ran separately. A map that raises
for a payload gives a Failure in its place; the outputs for other payloads are unaffected.

Why: a map's children get `rank | index`, which depends on the map and the child only. For maps that give at most one
child the index is 0, so the bytes of a whole chain are known beforehand and are appended once, at its end. Children at
later times leave a map in separate batches, so that batches of ordinary children stay in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress
from operator import not_
from typing import Any, NamedTuple

from drift.machines.counts import Count, Counts
from drift.machines.differences import Difference
from drift.machines.room import ROOM_BYTES, Full, Room, are_numbers, listed
from drift.machines.rows import called_in_a_row
from drift.operators import MapsEach
from drift_barrier.barrier import FAILURES
from drift_graph.errors import ImpureStep
from drift_graph.failures import failed_step
from drift_graph.functions import field_of, pass_interrupts
from drift_graph.graph import Dataflow
from drift_graph.identifiable import Identifiable, checked_operators
from drift_graph.item import Columns, joined
from drift_graph.later import Later, Moves, Undeclared, placed
from drift_graph.meta import child_suffixes, global_time_of, is_later, time_of, varint
from drift_graph.metas import Metas
from drift_graph.moments import results_of
from drift_graph.operators import Border, Map, Operator, Sink, as_noted, as_sequence
from drift_graph.payloads import are_rows, chosen
from drift_graph.unchanged import (
    Returned,
    Sampler,
    are_fresh,
    are_unchangeable,
    changed_later,
    check_unchanged,
    gives_users,
    with_noted,
)
from drift_kernel import kernel


class _Batch(NamedTuple):
    """A batch whose metas still lack `suffix`."""

    metas: Metas
    suffix: bytes
    payloads: list[Any]
    diffs: list[int] | None

    def columns(self, more: bytes = b"") -> Columns:
        return Columns(self.metas.with_suffix(self.suffix + more), self.payloads, self.diffs)


#: The output of a program or a stage: for each port (a grouping, a sink, or FAILURES) batches of items.
Ports = dict[str, list[Columns]]

#: By the global time of a later item: the meta of the map's input item that it was made from.
Origins = dict[bytes, bytes]


def called(function: Callable[[Any], Any], payloads: list[Any], room: Room | None = None) -> list[Any]:
    """The results of a function, one for each payload.

    Raises:
        Full: there is no room for the results of all.
        RuntimeError: it raised StopIteration, which `map` would take for the end of the payloads.
    """
    if isinstance(function, MapsEach):
        results = function.each(payloads)
    else:
        results = listed(results_of(function, payloads), len(payloads), room)
    if len(results) != len(payloads):
        raise RuntimeError("the function raised StopIteration")
    return results


class _Port(NamedTuple):
    """A port where items leave a program.

    Attributes:
        suffix: the rank that a sink appends to metas; empty for other ports.
        identifiable: checks for canonical forms, if the grouping has to distinguish items; else None.
        rank: of the grouping, for the metas of failures.
    """

    name: str
    suffix: bytes
    identifiable: Identifiable | None
    rank: bytes

    def take(self, batch: _Batch, ports: Ports) -> None:
        columns = batch.columns(self.suffix)
        if self.identifiable is not None and not self.identifiable.are(columns.payloads):
            columns = _without_formless(columns, self.identifiable, self.rank, ports)
        ports.setdefault(self.name, []).append(columns)


def _without_formless(columns: Columns, identifiable: Identifiable, rank: bytes, ports: Ports) -> Columns:
    """The items that have canonical forms; the others leave as failures."""
    failures = Difference()
    selected = bytearray(b"\x01") * len(columns.metas)
    for at, (meta, payload) in enumerate(zip(columns.metas, columns.payloads)):
        failure = identifiable.failure(payload)
        if failure is not None:
            selected[at] = 0
            failures.metas.append(meta + rank)
            failures.payloads.append(failure)
            failures.diffs.append(columns.diffs[at] if columns.diffs is not None else 1)
    if not failures.metas:
        return columns
    ports.setdefault(FAILURES, []).append(failures.columns())
    diffs = None if columns.diffs is None else list(compress(columns.diffs, selected))
    return Columns(columns.metas.chosen(bytes(selected)), list(compress(columns.payloads, selected)), diffs)


class _MapStep:
    """One map of a program, and the maps and ports that its items go to."""

    def __init__(self, operator: Map, rank: int) -> None:
        self.operator, self._noting = with_noted(operator)
        self.maps: list[int] = []  # indices in the program
        self.ports: list[_Port] = []
        self._rank = varint(rank)
        self.only_child = self._rank + varint(0)
        self._children: Sequence[bytes] = child_suffixes(rank, 64)
        self._rank_number = rank
        self._moves: Moves | None = field_of(operator.function, "moves") if operator.arity == "one" else None
        self._sampler = Sampler()
        self._is_sampled = not field_of(operator.function, "leaves_arguments", False)
        self._returned = Returned()
        self._gives_users = gives_users(operator.function) and operator.arity != "keep"
        self._gives_numbers = False  # as its last batch did
        self.is_plain_so_far = False  # whether nobody could change anything of its last batch

    @property
    def is_plain(self) -> bool:
        """Whether it gives exactly one payload for each, from the payload alone, called item by item."""
        return self.operator.arity == "one" and self._is_one_by_one

    @property
    def is_filter(self) -> bool:
        """Whether it leaves out payloads, each for itself alone, called item by item."""
        return self.operator.arity == "keep" and self._is_one_by_one

    @property
    def _is_one_by_one(self) -> bool:
        operator = self.operator
        return not isinstance(operator.function, MapsEach) and not operator.later and not operator.timed

    @property
    def chained(self) -> Any:
        """Of its function, if it is a map that gives at most one payload from the payload alone; else None."""
        operator = self.operator
        is_simple = operator.arity in ("one", "keep") and not operator.later and not operator.timed
        return field_of(operator.function, "chained") if is_simple else None

    def run(
        self, batch: _Batch, ports: Ports, ended: bool, origins: Origins | None, room: Room | None
    ) -> Sequence[_Batch]:
        """The outputs of this map for a batch; failures go to their port."""
        made = Later.made
        samples = self._sampler.sample(batch.payloads) if self._is_sampled else ()
        outputs: Sequence[_Batch]
        try:
            out = self._run(batch, ended, origins, None if self._gives_numbers else room)
            if Later.made != made and not self.operator.later and Later in set(map(type, out.payloads)):
                raise Undeclared
            outputs = (out,) if not self.operator.later else self._split(out)
        except (ImpureStep, Full):
            raise
        except BaseException as raised:
            pass_interrupts(raised)
            outputs = self._run_one_by_one(batch, ports, ended, origins, room)
        if samples:
            check_unchanged(self.operator, samples)
            self.is_plain_so_far = False
        if self._returned.is_watched and (changed := self._returned.sweep()):
            raise changed_later(self.operator, changed)
        if self._noting is not None:
            self._check(self._noting.check(()))
        return outputs

    def _called_once(self, function: Callable[..., Any]) -> Callable[..., Any]:
        note, arity = self._returned.note, self.operator.arity

        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            noted: Sequence[Any] = (result,)
            if arity == "many":
                noted = result = as_noted(result, lambda child: self._check(note((child,), arguments)))
            self._check(note(noted, arguments))
            return result

        return call

    def _note_child(self, payload: Any, child: Any) -> None:
        self._check(self._returned.note((child,), (payload,)))

    def _check(self, changed: str) -> None:
        if changed:
            raise changed_later(self.operator, changed)

    def _are_noted(self, results: Any, payloads: Sequence[Any]) -> bool:
        """Whether nobody else has the results of calls, or each call was noted; otherwise the calls are to be made
        again, so that each is.
        """
        if not self._gives_users or self._returned.is_watched or are_rows(results):
            return True
        if (of_users := field_of(self.operator.function, "of_users")) is not None:
            results, payloads = of_users(results), ()
        self.is_plain_so_far = are_unchangeable(results)
        self._returned.is_watched = not self.is_plain_so_far and not are_fresh(results, payloads)
        return not self._returned.is_watched

    def _run(self, batch: _Batch, ended: bool, origins: Origins | None, room: Room | None) -> _Batch:
        metas, suffix, payloads, diffs = batch
        arity = self.operator.arity
        if self._moves is not None:
            return self._moved(batch, self._moves, origins)
        if arity == "keep":
            return _chosen(batch, self.selected(metas, payloads), suffix + self.only_child)
        results = self._called(metas, payloads, room)
        if not self._are_noted(results, payloads):
            results = self._called(metas, payloads, room)
        self._gives_numbers = are_numbers(results)
        if self.operator.later:
            families: list[Sequence[Any]]
            families = [(each,) for each in results] if arity == "one" else results
            return self._placed(batch, families, ended, origins)
        if arity == "one":
            return _Batch(metas, suffix + self.only_child, results, diffs)
        if are_rows(results) and results.members is not None:
            counts, rows = results.members
            if type(counts) is not bytes:
                return self._with_children(metas, suffix, counts, rows, diffs)
            return _with_payloads(batch, counts if 0 in counts else None, suffix + self.only_child, rows)
        return self._flat(metas, suffix, results, diffs)

    def selected(self, metas: Metas, payloads: Any) -> bytes:
        """Of a filter a 1 for each payload that it leaves in."""
        if kernel is not None and type(payloads) is list and self.is_filter:
            return kernel.kept(self.operator.function, payloads)
        results: Any = self._called(metas, payloads, None)
        return results if type(results) is bytes else bytes(map(bool, results))

    def _called(self, metas: Metas, payloads: list[Any], room: Room | None) -> list[Any]:
        function = self.operator.function
        if self._returned.is_watched:
            function = self._called_once(function)
        if self.operator.timed:
            results = listed(map(function, payloads, metas.times()), len(payloads), room)
            if len(results) != len(payloads):
                raise RuntimeError("the function raised StopIteration")
        else:
            results = called(function, payloads, room)
        if self.operator.arity == "many" and not are_rows(results) and not set(map(type, results)) <= {list, tuple}:
            results = list(map(as_sequence, results))
        return results

    def _moved(self, batch: _Batch, moves: Moves, origins: Origins | None) -> _Batch:
        """The payloads as children, all at one moment."""
        parents = batch.metas.with_suffix(batch.suffix)
        metas = moves.metas(parents, self.only_child)
        if origins is not None:
            origins.update(
                (global_time_of(meta), parent) for meta, parent in zip(metas, parents) if not meta.startswith(parent)
            )
        return _Batch(metas, b"", batch.payloads, batch.diffs)

    def _placed(self, batch: _Batch, families: Sequence[Sequence[Any]], ended: bool, origins: Origins | None) -> _Batch:
        """Children, some of which may be at later times, each with its complete meta."""
        metas: list[bytes] = []
        payloads: list[Any] = []
        diffs: list[int] | None = None if batch.diffs is None else []
        for at, (meta, family) in enumerate(zip(batch.metas, families) if any(families) else ()):
            parent = meta + batch.suffix
            for index, child in enumerate(family):
                child_meta, payload = placed(parent, self._rank + varint(index), child, ended)
                metas.append(child_meta)
                payloads.append(payload)
                if diffs is not None:
                    diffs.append(batch.diffs[at])  # type: ignore[index]
                if origins is not None and not child_meta.startswith(parent):
                    origins[global_time_of(child_meta)] = parent
        return _Batch(Metas(metas), b"", payloads, diffs)

    def _split(self, batch: _Batch) -> Sequence[_Batch]:
        """Split ordinary and later children into separate batches."""
        if self._moves is not None and self._moves.rounds:
            return (batch,)
        later = bytes(map(is_later, batch.metas)) if batch.metas.some_later() else b""
        if not any(later) or all(later):
            return (batch,)
        ordinary = bytes(map(not_, later))
        return [_chosen(batch, selected, b"") for selected in (ordinary, later)]

    def _flat(self, metas: Metas, suffix: bytes, families: list[Sequence[Any]], diffs: list[int] | None) -> _Batch:
        return self._with_children(metas, suffix, list(map(len, families)), list(chain.from_iterable(families)), diffs)

    def _with_children(
        self, metas: Metas, suffix: bytes, counts: Sequence[int], payloads: Any, diffs: list[int] | None
    ) -> _Batch:
        """The children of payloads, of which each has so many."""
        longest = max(counts, default=0)
        if longest == 1:
            selected = bytes(counts)
            if diffs is not None:
                diffs = list(compress(diffs, selected))
            return _Batch(metas.chosen(selected), suffix + self.only_child, payloads, diffs)
        if longest > len(self._children):
            self._children = child_suffixes(self._rank_number, 2 * longest)
        endings = [suffix + child for child in self._children[:longest]]
        made = metas.children(counts, endings)
        if diffs is not None:
            diffs = [diff for diff, count in zip(diffs, counts) for _ in range(count)]
        return _Batch(made, b"", payloads, diffs)

    def _run_one_by_one(
        self, batch: _Batch, ports: Ports, ended: bool, origins: Origins | None, room: Room | None
    ) -> Sequence[_Batch]:
        """Like `run`, if the function raises for some payloads; each call is noted."""
        returned = self._returned if self._gives_users else None
        metas: list[bytes] = []
        payloads: list[Any] = []
        families: list[Sequence[Any]] = []
        diffs: list[int] = []
        failures = Difference()
        count = len(batch.metas)
        for done, (meta, payload, diff) in enumerate(zip(batch.metas, batch.payloads, batch.diffs or [1] * count), 1):
            try:
                if returned is None:
                    family = self.operator.children(payload, time_of(meta))
                else:
                    note = partial(self._note_child, payload)
                    family = self.operator.children(payload, time_of(meta), note)
                    self._check(returned.note(family, (payload,)))
                if self.operator.later:
                    self._placed(_Batch(Metas([meta]), batch.suffix, [payload], None), [family], ended, None)
            except ImpureStep:
                raise
            except BaseException as error:
                pass_interrupts(error)
                failures.metas.append(meta + batch.suffix + self._rank)
                failures.payloads.append(failed_step(self.operator, error, payload))
                failures.diffs.append(diff)
            else:
                metas.append(meta)
                payloads.append(payload)
                families.append(family)
                diffs.append(diff)
                if room is not None:
                    room.take((family,), done, count)
        if failures.metas:
            ports.setdefault(FAILURES, []).append(failures.columns())
        known_diffs = diffs if batch.diffs is not None else None
        if self.operator.later:
            children = self._placed(_Batch(Metas(metas), batch.suffix, payloads, known_diffs), families, ended, origins)
            return self._split(children)
        return (self._flat(Metas(metas), batch.suffix, families, known_diffs),)


class _StepsInRow:
    """Steps in a row: each gives one payload for each to the next step only, the last one may be a filter; while nobody
    can change any of these.
    """

    def __init__(self, steps: Sequence[_MapStep]) -> None:
        self.last = steps[-1]
        self._steps = steps[:-1] if self.last.is_filter else steps
        self._functions = [step.operator.function for step in self._steps]
        self._suffix = b"".join(step.only_child for step in steps)
        self._gives_numbers = False

    def run(self, batch: _Batch, room: Room | None) -> _Batch | None:
        """The outputs of the last step for a batch; None if a call raised, so the steps have to run separately."""
        if not all(step.is_plain_so_far for step in self._steps) or not are_unchangeable(batch.payloads):
            return None  # what they are handed and return is looked at step by step
        made = Later.made
        try:
            results = called_in_a_row(self._functions, batch.payloads, None if self._gives_numbers else room)
            selected = self.last.selected(batch.metas, results) if self.last.is_filter else None
        except (ImpureStep, Full):
            raise
        except BaseException as raised:
            pass_interrupts(raised)
            return None
        if Later.made != made or not are_unchangeable(results):
            return None
        self._gives_numbers = are_numbers(results)
        return _chosen(batch._replace(payloads=results), selected, batch.suffix + self._suffix)


class _Chain:
    """Steps in a row whose functions compute a batch together; each gives its outputs to the next step only."""

    def __init__(self, steps: Sequence[_MapStep]) -> None:
        self.last = steps[-1]
        self._compute = steps[0].chained([step.operator.function for step in steps])
        self._suffix = b"".join(step.only_child for step in steps)

    def run(self, batch: _Batch, room: Room | None) -> _Batch | None:
        """The outputs of the last step for a batch; None if the steps have to run separately."""
        try:
            found = self._compute(batch.payloads)
        except (ImpureStep, Full):
            raise
        except BaseException as raised:
            pass_interrupts(raised)
            return None
        return None if found is None else _with_payloads(batch, found[0], batch.suffix + self._suffix, found[1])


def _chosen(batch: _Batch, selected: bytes | None, suffix: bytes) -> _Batch:
    if selected is None or 0 not in selected:
        return batch._replace(suffix=suffix)
    return _with_payloads(batch, selected, suffix, chosen(batch.payloads, selected))


def _with_payloads(batch: _Batch, selected: bytes | None, suffix: bytes, payloads: Any) -> _Batch:
    """The items for which `selected` has a 1, or all, with these payloads."""
    metas, _, _, diffs = batch
    if selected is None:
        return _Batch(metas, suffix, payloads, diffs)
    return _Batch(metas.chosen(selected), suffix, payloads, None if diffs is None else list(compress(diffs, selected)))


def _rows(steps: Sequence[_MapStep]) -> dict[int, _StepsInRow | _Chain]:
    """Rows of two steps or more, by the number of the first, from 1."""
    fed = Counter(at for step in steps for at in step.maps)
    found: dict[int, _StepsInRow | _Chain] = {}
    taken: set[int] = set()
    for first, step in enumerate(steps):
        row, chained = [first], step.chained
        while first not in taken and (step.is_plain or chained):
            last = steps[row[-1]]
            if last.ports or len(last.maps) != 1 or fed[last.maps[0]] != 1:
                break
            following = steps[last.maps[0]]
            is_next = following.is_plain or following.is_filter if step.is_plain else following.chained is chained
            if not is_next or last.is_filter:
                break
            row.append(last.maps[0])
        if len(row) > 1:
            taken.update(row)
            found[first + 1] = (_StepsInRow if step.is_plain else _Chain)([steps[at] for at in row])
    return found


class Program:
    """All maps between an operator and the groupings and sinks that its items reach without passing a grouping.

    Args:
        counts: if not None, counts the items that leave the operator and the maps.
    """

    def __init__(self, dataflow: Dataflow, start: str, counts: Counts | None = None) -> None:
        self._steps: list[_MapStep] = []
        index: dict[str, int] = {}
        for name in _maps_below(dataflow, start):
            operator = dataflow[name]
            assert isinstance(operator, Map)
            index[name] = len(self._steps)
            self._steps.append(_MapStep(operator, dataflow.ranks[name]))
        identifiables = checked_operators(dataflow)
        self._start_maps, self._start_ports = _targets(dataflow, start, index, identifiables)
        for name, at in index.items():
            self._steps[at].maps, self._steps[at].ports = _targets(dataflow, name, index, identifiables)
        self._rows = _rows(self._steps) if counts is None else {}
        self._counts: list[Count] = []  # of the start, then of each map
        if counts is not None:
            self._counts = [counts.of(name) for name in (start, *index)]
            self._clock = counts.clock

    @property
    def has_maps(self) -> bool:
        return bool(self._steps)

    @property
    def targets(self) -> list[str]:
        """Names of the groupings and sinks that items reach."""
        every = [self._start_ports, *(step.ports for step in self._steps)]
        return list(dict.fromkeys(name for ports in every for name, *_ in ports))

    @property
    def targets_at_once(self) -> list[str]:
        """The targets that items reach without being put into a later round."""
        ports = [self._start_ports]
        todo = list(dict.fromkeys(self._start_maps))
        for at in todo:
            if not self._steps[at].operator.turns_round:
                ports.append(self._steps[at].ports)
                todo += [each for each in self._steps[at].maps if each not in todo]
        return list(dict.fromkeys(name for each in ports for name, *_ in each))

    def run_some(
        self,
        columns: Columns,
        ports: Ports,
        origins: Origins | None = None,
        suffix: bytes = b"",
        ended: bool = False,
    ) -> int:
        """Send the first items of a batch through the maps: all of them, unless too much is made of them.

        Args:
            suffix, ended, origins: see `run`.

        Returns:
            How many items that is, at least one. (What was made of more is dropped, since calls are pure.)
        """
        count = len(columns.metas)
        while True:
            made: Ports = {}
            found: Origins = {}
            part = columns.slice(0, count)
            try:
                self.run(part, made, suffix, ended, origins=found, room=Room(ROOM_BYTES) if count > 1 else None)
            except Full as full:
                fit, of = full.share
                count = max(min(count * fit // of, count - 1), 1)
                continue
            for port, batches in made.items():
                ports.setdefault(port, []).extend(batches)
            if origins is not None:
                origins.update(found)
            return count

    def run(
        self,
        columns: Columns,
        ports: Ports,
        suffix: bytes = b"",
        ended: bool = False,
        origins: Origins | None = None,
        room: Room | None = None,
    ) -> None:
        """Send a batch through the maps.

        Args:
            suffix: the bytes that the operator before the program appends to the metas.
            ended: whether all input has ended, so that timers must not go on for ever.
            origins: if not None, gets the origin of each later item that a map makes.
            room: for what the maps make; None for any amount.

        Raises:
            Full: there is no room for what is made of all items.
        """
        waiting: list[list[_Batch]] = [[] for _ in self._steps]
        start = _Batch(columns.metas, suffix, columns.payloads, columns.diffs)
        counts = self._counts
        counted = [(0, start)]
        _hand_on(start, self._start_maps, self._start_ports, waiting, ports)
        for at, (step, batches) in enumerate(zip(self._steps, waiting), 1):
            if len(batches) > 1:  # join branches where they meet, or n diamonds in a row would make 2**n batches
                batches = [_joined(batches)]
            for batch in batches:
                row = self._rows.get(at)
                if row is not None and (out := row.run(batch, room)) is not None:
                    _hand_on(out, row.last.maps, row.last.ports, waiting, ports)
                    continue
                began_s = self._clock() if counts else 0.0
                for made in step.run(batch, ports, ended, origins, room):
                    if counts:
                        counted.append((at, made))
                    _hand_on(made, step.maps, step.ports, waiting, ports)
                if counts:
                    counts[at].busy_s += self._clock() - began_s
        for at, batch in counted if counts else ():
            if batch.payloads:
                counts[at].add(batch.payloads, batch.diffs)


def _hand_on(batch: _Batch, maps: list[int], targets: list[_Port], waiting: list[list[_Batch]], ports: Ports) -> None:
    if batch.metas:
        for at in maps:
            waiting[at].append(batch)
        for port in targets:
            port.take(batch, ports)


def _joined(batches: list[_Batch]) -> _Batch:
    metas, payloads, diffs = joined([batch.columns() for batch in batches])
    return _Batch(metas, b"", payloads, diffs)


def _targets(
    dataflow: Dataflow, name: str, index: dict[str, int], identifiables: Mapping[str, Identifiable]
) -> tuple[list[int], list[_Port]]:
    maps: list[int] = []
    ports: list[_Port] = []
    for consumer in dataflow.consumers(name):
        if isinstance(consumer, Map):
            maps.append(index[consumer.name])
            continue
        rank, is_sink = varint(dataflow.ranks[consumer.name]), isinstance(consumer, Sink)
        suffix = rank if is_sink and not isinstance(consumer, Border) else b""
        ports.append(_Port(consumer.name, suffix, None if is_sink else identifiables.get(name), rank))
    return maps, ports


def _maps_below(dataflow: Dataflow, start: str) -> list[str]:
    """Maps that items of `start` reach through maps, each after those that feed it: by falling rank, but for cycles.

    Every cycle passes a grouping, and between groupings a feedback edge may lead from a lower to a higher rank;
    so the order is depth-first.
    """
    order: list[str] = []
    done: set[str] = set()
    todo: list[tuple[str, Iterator[Operator]]] = [(start, iter(dataflow.consumers(start)))]
    while todo:
        name, consumers = todo[-1]
        for consumer in consumers:
            if isinstance(consumer, Map) and consumer.name not in done:
                done.add(consumer.name)
                todo.append((consumer.name, iter(dataflow.consumers(consumer.name))))
                break
        else:
            order.append(name)
            todo.pop()
    return order[-2::-1]  # without the start
