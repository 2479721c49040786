"""A topic of Kafka.

Invariant: the items are the messages behind the initial offsets, each once; with `until_end` in the order of their
timestamps and partitions, so that the same topic gives the same items in the same order. A position is only taken by
the topic that it is of.

Why: a position has a hash of the message in front of it in each partition: the last that was returned, or the last that
was there where the reading began. A topic that was deleted and begun anew has another one at that offset, or none yet.
What retention or compaction has taken cannot be compared.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.aligned import Aligned, Message
from drift.sources.offsets import Offsets, Range
from drift.sources.polled import Decode, Fetched, PolledSource, Poller, decoder
from drift.sources.positions import LastRead, mark_of, position_lost
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

_ANSWER_MAX_S = 15.0
_WAIT_S = 0.2
_LOOK_S = 10.0  # from one look at the partitions to the next
_LOOK_MAX_S = 5.0
_PATIENCE_S = 10.0  # for a partition that is not at its end and gives nothing, while messages of others wait for it
_WAITING_MAX = 8192
_FETCHED_MIN = 1024
_GUARANTEE = SourceGuarantee("from a position", "the offsets of its partitions, while Kafka has them")
_LOG = logging.getLogger("drift")
_SILENT = logging.getLogger("drift.kafka")  # librdkafka's messages to standard error are reported in errors instead
_SILENT.addHandler(logging.NullHandler())


def kafka(
    servers: str,
    topic: str,
    *,
    decode: Literal["bytes", "text", "json"] | Decode = "bytes",
    type: Any = None,
    start: Literal["earliest", "latest"] | Mapping[int, int] = "earliest",
    until_end: bool = False,
    group: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> PolledSource:
    """The value of each message of a topic is a payload; a message without a value (a tombstone of Kafka) is None.

    All partitions are read, of a live source also those that are added, and the offsets are part of the run's own
    state. Kafka has no order over partitions, so for the same output each time use event time, or `until_end`.
    Partitions are read side by side, in the order of the messages' timestamps, so that an item is not late because
    another partition was read faster.

    >>> import drift
    >>> trips = drift.sources.kafka("broker:9092", "trips", decode="json", until_end=True)

    Args:
        servers: bootstrap servers, "HOST:PORT,HOST:PORT".
        decode: what a value is converted to: bytes, text (UTF-8), the value of its JSON, or the result of a function of
            its bytes, such as `registry_decoder(topic, registry)`; where that raises, the value cannot be decoded.
        type: each JSON value is converted to it, for instance a dataclass or a msgspec Struct.
        start: where to begin, or the offset in each partition (others from the earliest).
        until_end: end with the messages that exist when the run begins, in the order of their timestamps, of equal ones
            in that of the partitions; without it the source is live, and does not end.
        group: a consumer group, to which the offsets of released items are committed, each second and at the end, so
            that Kafka's tools show the lag of the run. Nothing is read from it.
        config: more settings of librdkafka, for instance for TLS and passwords.

    Raises:
        SettingsError: `start` or `decode` is none of these.
    """
    need("kafka", "drift.sources.kafka")
    if start not in ("earliest", "latest") and not isinstance(start, Mapping):
        raise SettingsError(f"kafka start={start!r:.80} is neither 'earliest' nor 'latest' nor offsets by partition")
    settings = {
        "bootstrap.servers": servers,
        "group.id": group or "drift",  # librdkafka requires one
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",  # offsets that Kafka no longer has are an error, not skipped
        **(config or {}),
    }
    live, poll = not until_end, partial(_opened, settings, topic, group, start, not until_end)
    as_payload = decoder("kafka", decode, type)
    # partitions that are read in parallel have another order each time
    return PolledSource(f"kafka({topic!r})", _GUARANTEE, poll, as_payload, live=live, same_order=until_end)


def _opened(
    config: dict[str, Any], topic: str, group: str | None, start: str | Mapping[int, int], live: bool
) -> _Poller:
    from confluent_kafka import Consumer, KafkaException

    with ExitStack() as failing:
        try:
            commits = _Commits(topic, group)
            consumer = Consumer({"on_commit": commits.was_made, **config}, logger=_SILENT)
            failing.callback(consumer.close)
            offsets = Offsets(topic, _ranges(consumer, topic), start, live=live)
            poller = _Poller(consumer, offsets, commits, live=live)
        except KafkaException as error:
            raise InputError(
                f"topic {topic!r} of Kafka cannot be read: {error.args[0].str()}; check servers and topic"
            ) from None
        failing.pop_all()
    return poller


def _ranges(consumer: Consumer, topic: str) -> dict[int, Range]:
    from confluent_kafka import KafkaException

    found = consumer.list_topics(topic, timeout=_ANSWER_MAX_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return {partition: _range(consumer, topic, partition) for partition in found.partitions}


def _message(found: Any) -> Message:
    return Message(found.timestamp()[1], found.partition(), found.offset(), found.value())


def _range(consumer: Consumer, topic: str, partition: int) -> Range:
    from confluent_kafka import TopicPartition

    return Range(*consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_MAX_S))


class _Commits:
    """The offsets that a group has taken, as far as known. A failure is logged: only external tools need them."""

    def __init__(self, topic: str, group: str | None) -> None:
        self._topic = topic
        self.group = group
        self._fails = False
        self.made: dict[int, int] = {}

    def failed(self, reason: str) -> None:
        """What was made is not known any more: it is committed again."""
        self.made = {}
        if not self._fails:
            text = "topic %r of Kafka: group %r takes no offsets: %s; the run goes on, and tries again"
            _LOG.warning(text, self._topic, self.group, reason)
        self._fails = True

    def was_made(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """Called by the client, in the thread that reads."""
        if error is None:
            self._fails = False
        else:
            self.failed(error.str())


class _Poller(Poller):
    def __init__(self, consumer: Consumer, offsets: Offsets, commits: _Commits, *, live: bool) -> None:
        self._live = live
        self._consumer = consumer
        self._offsets = offsets
        self._commits = commits
        self.acknowledges = commits.group is not None
        self._released: dict[int, int] = {}
        self._last: defaultdict[int, LastRead] = defaultdict(LastRead)  # message before the next of each partition
        self._looked_s = time.monotonic()
        self._silent_s: float | None = None  # since when no broker answers
        self._note(self._before(offsets.next))
        self._begin()

    def released(self, position: Any) -> None:
        """The fetching thread commits, since a consumer is not thread-safe."""
        self._released = {int(partition): offset for partition, (offset, _) in position["offsets"].items()}

    def _commit(self, *, waiting: bool) -> None:
        """Commit new offsets to the group."""
        from confluent_kafka import KafkaException, TopicPartition

        topic, released, commits = self._offsets.topic, self._released, self._commits
        new = [TopicPartition(topic, *each) for each in released.items() if each not in commits.made.items()]
        if not new:
            return
        commits.made = released
        try:
            if waiting:
                self._consumer.commit(offsets=new, asynchronous=False)
            else:
                self._consumer.commit(offsets=new, asynchronous=True)
        except KafkaException as error:
            commits.failed(error.args[0].str())

    def behind(self, marks: Sequence[Message]) -> None:
        self._offsets.behind([(each.partition, each.offset) for each in marks])
        self._note(marks)

    def _note(self, messages: Iterable[Message]) -> None:
        """The last of each partition is the one in front of a position."""
        for partition, last in {each.partition: each for each in messages}.items():
            self._last[partition].note([[last.timestamp, last.value]])

    def position(self) -> Any:
        marks = {str(partition): each.mark for partition, each in self._last.items()}
        return {**self._offsets.position(), "marks": marks}

    def seek(self, position: Any) -> None:
        """A reading that ends does so where it would have ended, after a live one at the present ends."""
        self._offsets.seek(position)
        self._last.clear()
        for partition, mark in position.get("marks", {}).items():  # older states have none
            self._last[int(partition)].seek(mark)
        for found in self._before(self._last):
            if mark_of([[found.timestamp, found.value]]) != self._last[found.partition].mark:
                raise position_lost(
                    f"topic {self._offsets.topic!r} of Kafka",
                    f"offset {found.offset} of partition {found.partition}",
                    "that is another message: the topic was deleted and begun anew, or it is another one",
                )
        self._begin()

    def _before(self, partitions: Iterable[int]) -> Iterator[Message]:
        """The message right before the next one of each of these partitions that still has it.

        Raises:
            InputError: Kafka does not answer, or with an error.
        """
        from confluent_kafka import TopicPartition

        offsets, topic = self._offsets, self._offsets.topic
        unseen = {each: offsets.next[each] - 1 for each in partitions if offsets.has(each, offsets.next[each] - 1)}
        self._consumer.assign([TopicPartition(topic, *each) for each in unseen.items()])
        until_s = time.monotonic() + _ANSWER_MAX_S
        while unseen:
            messages, at_end = self._consumed(self._consumer.consume(1, _WAIT_S))
            for message in messages:
                if message.offset == unseen.pop(message.partition, None):
                    yield message
            for partition in at_end:  # compaction has taken it
                unseen.pop(partition, None)
            if not messages and not at_end and time.monotonic() > until_s:
                raise self._unreadable(f"no answer within {_ANSWER_MAX_S:.0f} s")

    def _unreadable(self, why: str) -> InputError:
        return InputError(f"topic {self._offsets.topic!r} of Kafka cannot be read: {why}")

    def end_anew(self) -> None:
        self._offsets.end_anew()
        self._begin()

    def backlog(self) -> tuple[int, str]:
        """Offsets up to the ends of the partitions, as last heard of, by the one that reads."""
        offsets = dict(self._offsets.next)
        return sum(max(end - offsets.get(partition, end), 0) for partition, end in dict(self._ends).items()), "{item}"

    def _begin(self) -> None:
        """Start reading at the offsets."""
        self._paused: set[int] = set()
        self._ends = dict(self._offsets.ends)  # where each partition ends now, or the reading does
        patience_s, now_s = _PATIENCE_S if self._live else None, time.monotonic()
        self._aligned = Aligned(self._offsets.next, self._ends, most=_WAITING_MAX, patience_s=patience_s, now_s=now_s)
        self._assign(self._aligned.partitions)

    def location(self, mark: Any) -> str:
        return f"topic {self._offsets.topic!r}, partition {mark.partition}, offset {mark.offset}"

    def close(self) -> None:
        try:
            self._commit(waiting=True)
        finally:
            self._consumer.close()

    def _assign(self, partitions: Sequence[int]) -> None:
        from confluent_kafka import TopicPartition

        topic, offsets = self._offsets.topic, self._offsets.next
        self._consumer.assign([TopicPartition(topic, each, offsets[each]) for each in partitions])

    def _pause(self, full: set[int]) -> None:
        """Read on in all partitions but these."""
        from confluent_kafka import TopicPartition

        topic = self._offsets.topic
        if full - self._paused:
            self._consumer.pause([TopicPartition(topic, each) for each in full - self._paused])
        if self._paused - full:
            self._consumer.resume([TopicPartition(topic, each) for each in self._paused - full])
        self._paused = full

    def _look(self) -> None:
        """Ask now and then which partitions there are; the log says if nobody answers, and when somebody does again."""
        from confluent_kafka import KafkaException

        topic = self._offsets.topic
        asked_s = time.monotonic()
        try:
            found = self._consumer.list_topics(topic, timeout=_LOOK_MAX_S).topics[topic]
            added = {each: _range(self._consumer, topic, each) for each in self._offsets.added(found.partitions)}
        except KafkaException as error:
            if self._silent_s is None:
                self._silent_s = asked_s
                _LOG.warning("topic %r of Kafka: no answer: %s; the run waits for it", topic, error.args[0].str())
        else:
            if self._silent_s is not None:
                _LOG.warning("topic %r of Kafka answers again, after %.0f s", topic, time.monotonic() - self._silent_s)
                self._silent_s = None
            if self._live and found.error is None and added:
                self._add(added)
        self._looked_s = time.monotonic()

    def _add(self, added: Mapping[int, Range]) -> None:
        """Partitions were added to the topic."""
        from confluent_kafka import TopicPartition

        topic = self._offsets.topic
        _LOG.info("topic %r of Kafka has new partitions, which are read too: %s", topic, ", ".join(map(str, added)))
        for partition, found in added.items():
            self._offsets.add(partition, found)
            self._aligned.add(partition, found.first, time.monotonic())
            self._ends[partition] = found.end
        self._consumer.incremental_assign([TopicPartition(topic, each, found.first) for each, found in added.items()])

    def _messages(self, items_max: int, wait_s: float) -> tuple[list[Message], dict[int, int]]:
        """Messages, and the partitions that have been read to their ends, with the offsets there."""
        self._commit(waiting=False)
        consume = self._consumer.consume  # it waits for as many as requested, so one is waited for
        found = consume(items_max, 0.0) or [*consume(1, wait_s), *consume(max(items_max - 1, 1), 0.0)]
        if time.monotonic() - self._looked_s > _LOOK_S:
            self._look()
        return self._consumed(found)

    def _consumed(self, found: Iterable[Any]) -> tuple[list[Message], dict[int, int]]:
        """Messages of a consumer, and the partitions that have been read to their ends, with the offsets there.

        Raises:
            InputError: there is an error that does not pass.
        """
        from confluent_kafka import KafkaError

        messages: list[Message] = []
        at_end: dict[int, int] = {}
        for each in found:
            error = each.error()
            if error is None:
                messages.append(_message(each))
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end[each.partition()] = each.offset()
            elif not error.retriable() or error.fatal():
                raise self._unreadable(error.str())
        return messages, at_end

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        aligned = self._aligned
        taken = aligned.take(items_max, time.monotonic())
        if not taken:
            if aligned.ended:
                return None
            messages, at_end = self._messages(max(items_max, _FETCHED_MIN), wait_s)
            if self._live:
                self._see_ends()
                if len(self._ends) == 1:
                    return Fetched([each.value for each in messages], messages)
            now_s = time.monotonic()
            aligned.put(messages, now_s)
            for partition, offset in at_end.items():
                aligned.reach(partition, offset)
            taken = aligned.take(items_max, now_s)
            self._pause(aligned.full)
        return Fetched([each.value for each in taken], taken)

    def _see_ends(self) -> None:
        """What librdkafka has heard of the ends of the partitions, with the messages."""
        from confluent_kafka import TopicPartition

        for partition, known in self._ends.items():
            part = TopicPartition(self._offsets.topic, partition)
            _, end = self._consumer.get_watermark_offsets(part, cached=True)
            self._ends[partition] = max(known, end)  # below 0 where it has not heard yet
