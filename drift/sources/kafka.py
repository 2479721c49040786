"""A topic of Kafka.

Invariant: the items are the messages behind the initial offsets, each once; with `until_end` partition after partition,
so that the same topic gives the same items in the same order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.base import Reader
from drift.sources.polled import Decode, Fetched, FiniteReader, LiveReader, decoder
from drift.sources.positions import position_fields, position_lost, position_of
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_ANSWER_MAX_S = 15.0
_LOG = logging.getLogger("drift")
_SILENT = logging.getLogger("drift.kafka")  # librdkafka's messages to standard error are reported in errors instead
_SILENT.addHandler(logging.NullHandler())


def kafka(
    servers: str,
    topic: str,
    *,
    decode: Literal["bytes", "text", "json"] = "bytes",
    type: Any = None,
    start: Literal["earliest", "latest"] | Mapping[int, int] = "earliest",
    until_end: bool = False,
    group: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> KafkaSource:
    """The value of each message of a topic is a payload; a message without a value (a tombstone of Kafka) is None.

    All partitions are read, and the offsets are part of the run's own state. Kafka has no order over partitions, so for
    the same output each time use event time, or `until_end`.

    Args:
        servers: bootstrap servers, "HOST:PORT,HOST:PORT".
        decode: what a value is converted to: bytes, text (UTF-8), or the value of its JSON.
        type: each JSON value is converted to it, for instance a dataclass or a msgspec Struct.
        start: where to begin, or the offset in each partition (others from the earliest).
        until_end: end with the messages that exist when the run begins, read partition after partition; without it the
            source is live, and does not end.
        group: a consumer group, to which the offsets of released items are committed, each second and at the end, so
            that Kafka's tools show the lag of the run. Nothing is read from it.
        config: more settings of librdkafka, for instance for TLS and passwords.
    """
    need("kafka", "drift.sources.kafka")
    if start not in ("earliest", "latest") and not isinstance(start, Mapping):
        raise SettingsError(f"kafka start={start!r:.80} is neither 'earliest' nor 'latest' nor offsets by partition")
    return KafkaSource(servers, topic, decoder("kafka", decode, type), start, until_end, group, dict(config or {}))


class KafkaSource:
    """See `kafka`."""

    guarantee: ClassVar = SourceGuarantee("from a position", "the offsets of its partitions, while Kafka has them")

    def __init__(
        self,
        servers: str,
        topic: str,
        decode: Decode,
        start: Literal["earliest", "latest"] | Mapping[int, int],
        until_end: bool,
        group: str | None,
        config: dict[str, Any],
    ) -> None:
        self._group = group
        self.live = not until_end
        self.same_order = until_end  # partitions read in parallel have another order each time
        self._topic = topic
        self._decode = decode
        self._start = start
        self._config = {
            "bootstrap.servers": servers,
            "group.id": group or "drift",  # librdkafka requires one
            "enable.auto.commit": False,
            "enable.partition.eof": until_end,
            "auto.offset.reset": "error",  # offsets that Kafka no longer has are an error, not skipped
            **config,
        }

    def open(self) -> Reader:
        from confluent_kafka import Consumer, KafkaException

        consumer: Consumer | None = None
        try:
            consumer = Consumer(self._config, logger=_SILENT)
            offsets = _Offsets(consumer, self._topic, self._start)
        except KafkaException as error:
            if consumer is not None:
                consumer.close()
            raise InputError(
                f"topic {self._topic!r} of Kafka cannot be read: {error.args[0].str()}; check servers and topic"
            ) from None
        except BaseException:
            if consumer is not None:
                consumer.close()
            raise
        if self.live:
            return LiveReader(_LivePoller(consumer, offsets, self._group), self._decode)
        return FiniteReader(_FinitePoller(consumer, offsets, self._group), self._decode)

    def __repr__(self) -> str:
        return f"kafka({self._topic!r})"


class _Offsets:
    """The range of each partition, and the offsets returned so far."""

    def __init__(self, consumer: Consumer, topic: str, start: str | Mapping[int, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self.topic = topic
        found = consumer.list_topics(topic, timeout=_ANSWER_MAX_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        self.firsts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.next: dict[int, int] = {}
        for partition in sorted(found.partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_MAX_S)
            self.ends[partition], self.firsts[partition] = end, first
            self.next[partition] = end if start == "latest" else first
        if isinstance(start, Mapping):
            requested = {int(partition): offset for partition, offset in start.items()}
            unknown = sorted(requested.keys() - self.next.keys())
            if unknown:
                raise InputError(f"topic {topic!r} of Kafka has no partition {unknown[0]}; it has {len(self.next)}")
            self.next |= requested

    def behind(self, marks: Sequence[Any]) -> None:
        for partition, offset in dict(marks).items():  # the last of each partition
            self.next[partition] = offset + 1


class _Poller:
    """The common part of both ways of reading."""

    def __init__(self, consumer: Consumer, offsets: _Offsets, group: str | None) -> None:
        self._consumer = consumer
        self._offsets = offsets
        self._group = group
        self._committed: dict[int, int] = {}
        self._released: dict[int, int] = {}
        self.behind = offsets.behind

    @property
    def acknowledges(self) -> bool:
        """See `Acknowledging`."""
        return self._group is not None

    def released(self, position: Any) -> None:
        """See `Acknowledging`; the fetching thread commits, since a consumer is not thread-safe."""
        self._released = {int(partition): offset for partition, (offset, _) in position["offsets"].items()}

    def _commit(self, *, waiting: bool) -> None:
        """Commit new offsets to the group. A failure is logged, since only external tools depend on them."""
        from confluent_kafka import KafkaException, TopicPartition

        topic, released = self._offsets.topic, self._released
        new = [TopicPartition(topic, *each) for each in released.items() if each not in self._committed.items()]
        if not new:
            return
        self._committed = released
        try:
            if waiting:
                self._consumer.commit(offsets=new, asynchronous=False)
            else:
                self._consumer.commit(offsets=new, asynchronous=True)
        except KafkaException as error:
            reason = error.args[0].str()
            _LOG.warning(
                "topic %r of Kafka: group %r takes no offsets: %s; the run goes on", topic, self._group, reason
            )

    def position(self) -> Any:
        offsets = self._offsets
        by_partition = {str(partition): [offset, offsets.ends[partition]] for partition, offset in offsets.next.items()}
        return position_of("kafka", offsets=by_partition)

    def seek(self, position: Any) -> None:
        """A reading that ends does so where it would have ended."""
        topic = f"topic {self._offsets.topic!r} of Kafka"
        (by_partition,) = position_fields(position, "kafka", topic, "offsets")
        for name, (offset, end) in by_partition.items():
            partition = int(name)
            first = self._offsets.firsts.get(partition)
            if first is None or offset < first:
                now = "there is no such partition" if first is None else f"it begins at {first}"
                raise position_lost(topic, f"offset {offset} of partition {partition}", now)
            self._offsets.next[partition], self._offsets.ends[partition] = offset, end
        for partition in self._offsets.next.keys() - set(map(int, by_partition)):  # partitions added since
            self._offsets.next[partition] = self._offsets.firsts[partition]
            self._offsets.ends[partition] = self._offsets.next[partition]
        self._begin()

    def _begin(self) -> None:
        """Start reading at the offsets."""
        raise NotImplementedError

    def location(self, mark: Any) -> str:
        return f"topic {self._offsets.topic!r}, partition {mark[0]}, offset {mark[1]}"

    def close(self) -> None:
        try:
            self._commit(waiting=True)
        finally:
            self._consumer.close()

    def _assign(self, partitions: Sequence[int]) -> None:
        from confluent_kafka import TopicPartition

        topic, offsets = self._offsets.topic, self._offsets.next
        self._consumer.assign([TopicPartition(topic, each, offsets[each]) for each in partitions])

    def _messages(self, items_max: int, wait_s: float) -> tuple[list[Any], bool]:
        """Messages, and whether a partition has been read to its end."""
        from confluent_kafka import KafkaError

        self._commit(waiting=False)
        consume = self._consumer.consume  # it waits for as many as requested, so one is waited for
        found = consume(items_max, 0.0) or [*consume(1, wait_s), *consume(max(items_max - 1, 1), 0.0)]
        messages = [message for message in found if message.error() is None]
        at_end = False
        for message in found:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                at_end = at_end or error is not None
            elif not error.retriable() or error.fatal():
                raise InputError(f"topic {self._offsets.topic!r} of Kafka cannot be read: {error.str()}")
        return messages, at_end


class _LivePoller(_Poller):
    def __init__(self, consumer: Consumer, offsets: _Offsets, group: str | None) -> None:
        super().__init__(consumer, offsets, group)
        self._begin()

    def _begin(self) -> None:
        self._assign(list(self._offsets.next))

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        messages, _ = self._messages(items_max, wait_s)
        return Fetched([each.value() for each in messages], [(each.partition(), each.offset()) for each in messages])


class _FinitePoller(_Poller):
    def __init__(self, consumer: Consumer, offsets: _Offsets, group: str | None) -> None:
        super().__init__(consumer, offsets, group)
        self._begin()

    def _begin(self) -> None:
        offsets = self._offsets
        self._partitions_left = [each for each, end in offsets.ends.items() if offsets.next[each] < end]
        if self._partitions_left:
            self._assign(self._partitions_left[:1])

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        if not self._partitions_left:
            return None
        partition = self._partitions_left[0]
        end = self._offsets.ends[partition]
        messages, at_end = self._messages(items_max, wait_s)
        fitting = [each for each in messages if each.offset() < end]
        if at_end or len(fitting) < len(messages) or (fitting and fitting[-1].offset() + 1 == end):
            self._partitions_left.pop(0)
            self._consumer.unassign()
            if self._partitions_left:
                self._assign(self._partitions_left[:1])
        return Fetched([each.value() for each in fitting], [(partition, each.offset()) for each in fitting])
