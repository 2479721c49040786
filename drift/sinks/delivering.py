"""Sinks that hand items over and hear later what was stored: what has been acknowledged, and what may still be sent.

Invariant: in each partition the items are stored without a gap, or the run ends with an error, and the next one too.

Why: where an item was refused or lost, nothing is handed over any more, and what is on its way is dropped, not flushed.
Each message carries the offset it is to have. So an acknowledgement with another offset shows that something before it
is missing or foreign, and so does the last message of a partition when a run opens it. Beside other writers, offsets
only have to rise, and the sink's own messages are counted at each checkpoint and where the output is complete.

No clock and no server is used here: a subclass has them.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from drift.sinks.resuming import Last, Resuming, ResumingSink, as_committed, from_committed, refuse_existing
from drift_graph.errors import SinkError
from drift_graph.functions import name_of
from drift_graph.metas import Metas

_LOG = logging.getLogger("drift")
_ROUND_S = 0.1
_QUIET_S = 10.0  # without an acknowledgement, before a line in the log says so


class End(NamedTuple):
    """The end of a partition.

    Attributes:
        offset: of the next message.
        last: the last stored item; None if there is none.
        meant: the offset and the number of partitions that its message carries; None where it carries none.
    """

    offset: int
    last: Last | None
    meant: tuple[int | None, int | None] = (None, None)


class Delivery(Resuming):
    """One partition: which of its items are stored, and the offset of the next.

    Args:
        end: where earlier runs have left it.
        beside_others: whether others write there too; then offsets count the sink's own messages from that end on.

    Attributes:
        stored: the last item up to which all are stored for certain.
        offset: of the next message.
        acknowledged: the offset up to which all messages are acknowledged.
        handed_over: the position of the last item that was sent; -1 before the first.
    """

    def __init__(self, name: str, end: End, *, beside_others: bool) -> None:
        super().__init__(name, end.last)
        self._begun = end.offset
        self._beside_others = beside_others
        self._waiting: dict[int, Last] = {}  # by the offset that each is to have; the last item of each call
        self.stored = end.last
        self.handed_over = -1 if end.last is None else end.last.position
        self.offset = self.acknowledged = end.offset
        if end.last is not None and end.meant[0] not in (None, end.offset - 1):
            raise SinkError(
                f"{name} has lost messages, or has foreign ones: its last is at offset {end.offset - 1} and was to be "
                f"at {end.meant[0]}; so what is before it is not the output up to position {end.last.position}; it is "
                f"left as it was; give the sink another topic, and run from the beginning of the input"
            )

    def hand_over(self, items: int, last: Last) -> int:
        """So many further items are handed over; returns the offset that the first of them is to have."""
        first, self.offset = self.offset, self.offset + items
        self._waiting[self.offset - 1] = last
        return first

    def acknowledge(self, meant: int, offset: int) -> SinkError | None:
        """The item that was to have an offset is stored, and has got one; returns what is wrong."""
        last = self._waiting.pop(meant)
        self.acknowledged = meant + 1
        if offset < meant or (offset > meant and not self._beside_others):
            return SinkError(
                f"{self._target}: the item at position {last.position} is stored at offset {offset} and was to be at "
                f"{meant}: the topic has lost messages that it had acknowledged, was made anew, or another program "
                f"writes there; {self.safe()}; give the sink another topic, and run from the beginning of the input"
            )
        if self.stored is None or self.stored.position < last.position:
            self.stored = last
        return None

    def check_end(self, offset: int) -> None:
        """Raises SinkError: the partition does not end, with this offset, where everything handed over does."""
        if offset != self.offset and self._beside_others:
            raise SinkError(
                f"{self._target} has {offset - self._begun:,} messages of this sink since the run began, which has "
                f"stored {self.offset - self._begun:,}: another run has the same writer=, or the topic has lost "
                f"messages that it had acknowledged; {self.safe()} or were; give each sink a name of its own, and for "
                f"this one another topic, with a run from the beginning of the input"
            )
        if offset != self.offset:
            raise SinkError(
                f"{self._target} ends at offset {offset}, and with what was stored in it at {self.offset}: the topic "
                f"has lost messages that it had acknowledged, was made anew, or another program writes there; if it "
                f"has lost the last ones only, run again from the beginning of the input, and they are written again"
            )

    def safe(self) -> str:
        """Which items are stored for certain, in words."""
        if self.stored is None:
            return "no item is known to be stored"
        return f"the items up to position {self.stored.position} are stored"

    @property
    def is_settled(self) -> bool:
        """Whether everything handed over is acknowledged."""
        return not self._waiting


class DeliveringSink(ResumingSink):
    """A sink that is acknowledged later, in each partition by itself.

    A subclass opens its target (`_open`), sends (`_send`), serves acknowledgements (`_serve`, which calls
    `_acknowledge` and `_fail`), drops what is on its way (`_drop`), and closes (`_end`).

    Args:
        target: what is written to, for errors.
        encode: from a payload its bytes; a TypeError, ValueError or MsgspecError where it cannot be written.
        key: of a payload; its hash selects the partition.
        resume: what to do if runs have written before.
        patience_s: how long nothing is acknowledged before the run ends; 0 for ever.
        beside_others: whether others write to the target too.
    """

    def __init__(
        self,
        target: str,
        encode: Callable[[Any], bytes],
        key: Callable[[Any], str | bytes] | None,
        resume: str,
        patience_s: float,
        *,
        beside_others: bool = False,
    ) -> None:
        super().__init__(target, resume)
        self._encode = encode
        self._key = key
        self._patience_s = patience_s
        self._beside_others = beside_others
        self._is_open = False
        self._reset()

    def _reset(self) -> None:
        self._deliveries: list[Delivery] = []
        self._fault: SinkError | None = None
        self._has_failed = False  # something handed over was not stored; a fault may also be a refusal before that
        self._sent = 0
        self._acknowledged = 0
        self._progress_s = 0.0
        self._is_quiet = False

    def _open(self) -> list[End]:
        """Open the target; returns the end of each partition.

        Raises:
            SinkError: it cannot be opened, or has messages that no run wrote.
        """
        raise NotImplementedError

    def _send(
        self,
        partition: int,
        offset: int,
        positions: Sequence[int],
        metas: Metas,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
    ) -> tuple[int, Exception | None]:
        """Hand over messages, of which the first is to have this offset, as long as there is room.

        The acknowledgement of the last of `values` is to be reported, and every failure.

        Returns:
            How many were handed over, and why the next one is not taken, whenever it is sent; None where it is.
        """
        raise NotImplementedError

    def _serve(self, wait_s: float, *, hurry: bool) -> int:
        """Report what was acknowledged meanwhile; returns how many messages are not acknowledged yet.

        Args:
            hurry: whether nothing more is sent for now, and it waits for those.
        """
        raise NotImplementedError

    def _drop(self) -> None:
        """Forget everything on its way: none of it may be stored from now on, if that can still be prevented."""
        raise NotImplementedError

    def _offsets_at_end(self) -> list[int]:
        """The offset of the next message of each partition; beside others, counted as `Delivery` does."""
        raise NotImplementedError

    def _end(self) -> None:
        """Close the target."""
        raise NotImplementedError

    def _now_s(self) -> float:
        raise NotImplementedError

    def _begin_resuming(self, resume: str) -> Sequence[Resuming]:
        self._reset()
        ends = self._open()
        self._is_open = True
        self._progress_s = self._now_s()
        if resume == "error":
            refuse_existing(self._target, [end.last for end in ends if end.last])
        counts = [end.meant[1] for end in ends if self._key is not None]
        if self._checkpoint is not None:
            counts.append(len(from_committed(self._target, self._checkpoint[1])))
        for then in counts:
            if then not in (None, len(ends)):
                raise SinkError(
                    f"{self._target} had {then} partitions when it was written, and now it has {len(ends)}: keys would "
                    f"go elsewhere; begin anew with another topic"
                )
        names = [f"partition {index} of {self._target}" for index in range(len(ends))]
        others = self._beside_others
        self._deliveries = [Delivery(name, end, beside_others=others) for name, end in zip(names, ends)]
        return self._deliveries

    def commit(self) -> dict[str, Any]:
        """Waits until everything is acknowledged."""
        self._wait()
        if self._beside_others:
            self._check_end()
        return as_committed([each.stored for each in self._deliveries])

    def committed_position(self) -> int | None:
        """The last item up to which all are stored for certain; None before the first."""
        if self._is_open:
            self._wait()
        parts = self._deliveries if self._key is not None else self._deliveries[:1]
        stored = [each.stored.position for each in parts if each.stored is not None]
        return min(stored) if stored and len(stored) == len(parts) else None

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        self._check()
        if self._key is None:
            self._write_to(0, positions, metas, payloads, None)
        else:
            keys = self._keys(positions, payloads)
            count = len(self._deliveries)
            shares: dict[int, list[int]] = {}
            for at, key in enumerate(keys):
                shares.setdefault(partition_of(key, count), []).append(at)
            for partition, share in shares.items():
                self._write_to(
                    partition,
                    [positions[at] for at in share],
                    metas.take(share),
                    [payloads[at] for at in share],
                    [keys[at] for at in share],
                )
        self._pump(0.0, hurry=False)

    def complete(self) -> None:
        self._wait()
        super().complete()

    def _check_end(self) -> None:
        for delivery, offset in zip(self._deliveries, self._offsets_at_end(), strict=True):
            delivery.check_end(offset)

    def close(self) -> None:
        if not self._is_open:
            return
        try:
            if not self._has_failed:
                self._wait(after_refusal=True)
        finally:
            self._is_open = False
            self._end()

    def _write_to(
        self,
        partition: int,
        positions: Sequence[int],
        metas: Metas,
        payloads: Sequence[Any],
        keys: Sequence[bytes] | None,
    ) -> None:
        every = len(positions)
        positions, metas, payloads = self._deliveries[partition].new(positions, metas, payloads)
        keys = None if keys is None else keys[every - len(positions) :]
        values: list[bytes] = []
        try:
            values.extend(map(self._encode, payloads))  # up to the first that it raises for
        except (msgspec.MsgspecError, TypeError, ValueError) as refused:
            at = len(values)
            self._refuse(positions[at], payloads[at], f"cannot be written: {refused}; map it before the sink", refused)
            positions, metas, payloads = positions[:at], metas[:at], payloads[:at]
        if values:
            if self._sent == self._acknowledged:
                self._progress_s = self._now_s()  # nothing was waited for until now
            offset = self._deliveries[partition].hand_over(len(values), Last(positions[-1], metas[-1]))
            while values:
                sent, error = self._send(partition, offset, positions, metas, keys, values)
                self._sent += sent
                if sent:
                    self._deliveries[partition].handed_over = positions[sent - 1]
                if error is not None:
                    self._refuse(positions[sent], payloads[sent], f"is not taken: {error}; make it smaller", error)
                    break
                offset, keys = offset + sent, None if keys is None else keys[sent:]
                positions, metas, payloads, values = positions[sent:], metas[sent:], payloads[sent:], values[sent:]
                if values:
                    self._pump(_ROUND_S, hurry=False)  # until there is room
        self._check()

    def _refuse(self, position: int, payload: Any, why: str, error: Exception) -> None:
        """An item cannot be handed over; those before it are, and nothing is behind it."""
        if self._fault is None:
            self._fault = SinkError(
                f"{self._target}: the payload at position {position}, a {type(payload).__qualname__}, {why}; the items "
                f"before it are safe"
            )
            self._fault.__cause__ = error

    def _fail(self, fault: SinkError) -> None:
        """Something on its way is not stored: nothing behind it may be."""
        if not self._has_failed:
            self._fault, self._has_failed = fault, True

    def _fail_delivery(self, partition: int, reason: str) -> None:
        """A message of a partition was not stored."""
        safe = self._deliveries[partition].safe()
        self._fail(
            SinkError(
                f"{self._target} has not taken all items: {reason}; in partition {partition} {safe}; run again, and "
                f"what is missing is written"
            )
        )

    def _acknowledge(self, partition: int, meant: int, offset: int) -> None:
        fault = self._deliveries[partition].acknowledge(meant, offset)
        if fault is not None:
            self._fail(fault)

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _wait(self, *, after_refusal: bool = False) -> None:
        """Wait until everything handed over is acknowledged."""
        while True:
            if not after_refusal:
                self._check()
            if self._pump(_ROUND_S, hurry=True) == 0:
                break
        if not after_refusal:
            self._check()

    def _pump(self, wait_s: float, *, hurry: bool) -> int:
        """Serve acknowledgements; ends the run where none has come for too long."""
        waiting = self._serve(wait_s, hurry=hurry)
        if self._has_failed:
            self._drop()
            self._check()
        acknowledged, now_s = self._sent - waiting, self._now_s()
        if waiting == 0 or acknowledged > self._acknowledged:
            if self._is_quiet:
                _LOG.warning("%s answers again", self._target)
            self._acknowledged, self._progress_s, self._is_quiet = acknowledged, now_s, False
            return waiting
        quiet_s = now_s - self._progress_s
        if quiet_s > _QUIET_S and not self._is_quiet:
            self._is_quiet = True
            _LOG.warning("%s has taken nothing for %.0f s; %d items wait for it", self._target, quiet_s, waiting)
        if self._patience_s and quiet_s > self._patience_s:
            safe = [f"in partition {index} {each.safe()}" for index, each in enumerate(self._deliveries)]
            unsafe = [words for words, each in zip(safe, self._deliveries) if not each.is_settled]
            self._fail(
                SinkError(
                    f"{self._target} has not taken all items: it has taken nothing for {quiet_s:.1f} s (set "
                    f"message.timeout.ms to wait longer); {', '.join(unsafe)}; run again, and what is missing is "
                    f"written"
                )
            )
            self._drop()
            self._check()
        return waiting

    def _keys(self, positions: Sequence[int], payloads: Sequence[Any]) -> list[bytes]:
        assert self._key is not None
        keys: list[bytes] = []
        for position, payload in zip(positions, payloads):
            try:
                key = self._key(payload)
                keys.append(key.encode() if isinstance(key, str) else bytes(key))
            except Exception as error:
                raise SinkError(
                    f"{self._target}: {name_of(self._key)} gave no key for the payload at position {position}: "
                    f"{type(error).__name__}: {error}; a key is a text or bytes"
                ) from error
        return keys


def partition_of(key: bytes, count: int) -> int:
    return zlib.crc32(key) % count
