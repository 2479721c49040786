"""A topic of Kafka.

Invariant: in each partition the messages are those of its items up to the last, in the order of positions.

Why: the producer is idempotent, so it keeps the order and repeats nothing; no message expires on its own, and where one
is refused the producer delivers nothing behind it. Each message has its position, and the offset it is to have, in
headers, and a new run reads the last one of each partition. What follows from that is decided in `DeliveringSink`.
Beside other writers it reads what was written, and of its own messages each says what is before it: `OwnMessages`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.beside import AFTER, META, PARTITIONS, POSITION, WRITER, OwnMessages, own_messages
from drift.sinks.delivering import DeliveringSink, End
from drift.sinks.lines import as_json
from drift.sinks.resuming import Last, check_resume
from drift_graph.errors import SettingsError, SinkError
from drift_graph.metas import Metas

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

_ANSWER_MAX_S = 15.0
_SILENT = logging.getLogger("drift.kafka")  # librdkafka's messages to standard error are in our errors instead
_SILENT.addHandler(logging.NullHandler())
_SILENT.addFilter(lambda record: "enable.gapless.guarantee" not in record.getMessage())  # which we set, not the user
_OFFSET = "drift.offset"
_AT_ONCE = 10_000
_TIMEOUTS = ("message.timeout.ms", "delivery.timeout.ms")  # one setting with two names
_OF_PRODUCERS = (*_TIMEOUTS, "enable.idempotence", "enable.gapless.guarantee")
_PATIENCE_S = 300.0  # as librdkafka's own


def kafka(
    servers: str,
    topic: str,
    *,
    encode: Literal["json", "text", "bytes"] | Callable[[Any], bytes] = "json",
    key: Callable[[Any], str | bytes] | None = None,
    resume: Literal["continue", "error"] = "continue",
    config: Mapping[str, Any] | None = None,
    writer: str | None = None,
) -> KafkaSink:
    """A message for each item; its headers drift.position and drift.meta hold its position and its meta.

    At its end the run waits until Kafka has acknowledged everything. The run must be the only writer of the topic,
    unless it is one of several by `writer`: the header drift.offset is the offset that a message is to have, and a
    topic that has lost messages, or has others, is refused.

    >>> import drift
    >>> fares = drift.sinks.kafka("broker:9092", "fares", key=lambda fare: fare["zone"])

    Args:
        servers: bootstrap servers, "HOST:PORT,HOST:PORT".
        encode: how a payload becomes the value: as JSON (see `jsonl`), unchanged if it is text or bytes, or by a pure
            function, such as `registry_encoder(topic, registry, schema)`; a ValueError or TypeError refuses the item.
        key: of a payload; its hash selects the partition. Without it everything goes to partition 0, in one order.
        resume: what to do if runs have written before: "continue" behind them, or "error".
        config: more settings of librdkafka, for instance for TLS and passwords. Where Kafka acknowledges nothing for
            message.timeout.ms (5 minutes), the run ends, and what is not stored is dropped: a rerun writes it.
        writer: the name of this sink among those that write to the topic, in the header drift.writer in place of
            drift.offset; no other sink may have it, at no time. The sink passes over the messages of others, and reads
            all that is written, from its last checkpoint on, to find its own.

    Raises:
        SettingsError: `encode` or `resume` is none of these, or `writer` is empty.
    """
    need("kafka", "drift.sinks.kafka")
    if resume not in ("continue", "error"):
        raise SettingsError(f"resume={resume!r} is neither 'continue' nor 'error'; what Kafka has nobody can replace")
    check_resume(resume)
    if not callable(encode):
        if encode not in _ENCODE:
            raise SettingsError(f"kafka encode={encode!r:.80} is neither {', '.join(map(repr, _ENCODE))}")
        encode = _ENCODE[encode]
    if writer == "":
        raise SettingsError("kafka writer='' is no name; leave it out where the run is the only writer of the topic")
    return KafkaSink(servers, topic, encode, key, resume, dict(config or {}), writer)


class KafkaSink(DeliveringSink):
    guarantee: ClassVar = SinkGuarantee("exactly once", "each message has its position, in the order of positions")

    def __init__(
        self,
        servers: str,
        topic: str,
        encode: Callable[[Any], bytes],
        key: Callable[[Any], str | bytes] | None,
        resume: str,
        config: dict[str, Any],
        writer: str | None,
    ) -> None:
        self._settings, patience_s = producer_settings(config)
        others = writer is not None
        super().__init__(f"topic {topic!r} of Kafka", encode, key, resume, patience_s, beside_others=others)
        self._writer = None if writer is None else writer.encode()
        self._own: list[OwnMessages] = []
        self._topic = topic
        self._config = {"bootstrap.servers": servers, **config}
        self._settings["bootstrap.servers"] = servers
        self._producer: Producer | None = None
        self._headers: list[tuple[str, str | bytes | None]] = []

    def _open(self) -> list[End]:
        from confluent_kafka import KafkaException, Producer

        try:
            consumer = self._consumer()
            try:
                ends = self._ends(consumer) if self._writer is None else self._own_ends(consumer, self._writer)
            finally:
                consumer.close()
            self._producer = Producer(self._settings, logger=_SILENT)
        except KafkaException as error:
            raise SinkError(
                f"{self._target} cannot be opened: {error.args[0].str()}; nothing was written; check servers and topic"
            ) from None
        self._headers = [] if self._key is None else [(PARTITIONS, b"%d" % len(ends))]
        if self._writer is not None:
            self._headers.append((WRITER, self._writer))
        return ends

    def _send(
        self,
        partition: int,
        offset: int,
        positions: Sequence[int],
        metas: Metas,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
    ) -> tuple[int, Exception | None]:
        from confluent_kafka import KafkaError, KafkaException

        assert self._producer is not None
        produce, topic, more = self._producer.produce, self._topic, self._headers
        befores = chain((self._deliveries[partition].handed_over,), positions)
        name, proofs = (_OFFSET, count(offset)) if self._writer is None else (AFTER, befores)
        messages = zip(values, positions, metas, repeat(None) if keys is None else keys, proofs)
        at, end = 0, len(values) - 1
        try:
            for at, (value, position, meta, key, proof) in enumerate(messages):
                headers = [(POSITION, b"%d" % position), (META, meta), (name, b"%d" % proof), *more]
                if at == end:
                    report = partial(self._report, offset + at)
                    produce(topic, value, key, partition, on_delivery=report, headers=headers)
                else:
                    produce(topic, value, key, partition, headers=headers)
        except BufferError:
            return at, None
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return at, error
            self._fail_delivery(partition, error.args[0].str())
            return at, None
        return len(values), None

    def _report(self, meant: int, error: Any, message: Any) -> None:
        if error is None:
            self._acknowledge(message.partition(), meant, message.offset())
        else:
            self._fail_delivery(message.partition(), error.str())

    def _serve(self, wait_s: float, *, hurry: bool) -> int:
        assert self._producer is not None
        if hurry:
            self._producer.flush(wait_s)
        else:
            self._producer.poll(wait_s)
        waiting = sum(delivery.offset - delivery.acknowledged for delivery in self._deliveries)
        return min(len(self._producer), waiting)  # its length counts events of its own, too

    def commit(self) -> dict[str, Any]:
        """Beside other writers with the offsets that a run which resumes reads from."""
        committed = super().commit()
        return {**committed, "offsets": [own.resumed_from for own in self._own]} if self._own else committed

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.purge()

    def _end(self) -> None:
        self._drop()
        self._producer = None

    def _now_s(self) -> float:
        return time.monotonic()

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        reading = {"group.id": "drift", "enable.auto.commit": False, "auto.offset.reset": "error"}
        reading |= {"isolation.level": "read_uncommitted", "enable.partition.eof": self._writer is not None}
        config = {name: value for name, value in self._config.items() if name not in _OF_PRODUCERS}
        return Consumer({**reading, **config}, logger=_SILENT)

    def _offsets_at_end(self) -> list[int]:
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer()
        parts = [TopicPartition(self._topic, index) for index in range(len(self._deliveries))]
        try:
            ends = [consumer.get_watermark_offsets(each, timeout=_ANSWER_MAX_S)[1] for each in parts]
            for partition, first, end in self._ranges(consumer) if self._own else ():
                self._read_own(consumer, partition, first, end)
            return [own.begun + own.count for own in self._own] or ends
        except KafkaException as error:
            raise SinkError(
                f"the end of {self._target} cannot be read: {error.args[0].str()}; so whether it still has what was "
                f"written is not known; run again: what is missing is written"
            ) from None
        finally:
            consumer.close()

    def _ends(self, consumer: Any) -> list[End]:
        from confluent_kafka import TopicPartition

        ends: list[End] = []
        for partition, first, end in self._ranges(consumer):
            if first == end:
                ends.append(End(end, None))
                continue
            consumer.assign([TopicPartition(self._topic, partition, end - 1)])
            (message,) = consumer.consume(1, _ANSWER_MAX_S) or (None,)
            if message is None or message.error() is not None:
                reason = "no answer" if message is None else message.error().str()
                raise SinkError(f"partition {partition} of {self._target}: its last message cannot be read: {reason}")
            headers = dict(message.headers() or ())
            if POSITION not in headers or META not in headers or WRITER in headers:
                raise SinkError(
                    f"{self._target} has messages of other writers; give the sink a topic of its own, or a name: "
                    f"writer='NAME'"
                )
            meant, count = (int(headers[name]) if name in headers else None for name in (_OFFSET, PARTITIONS))
            ends.append(End(message.offset() + 1, Last(int(headers[POSITION]), headers[META]), (meant, count)))
        return ends

    def _own_ends(self, consumer: Any, writer: bytes) -> list[End]:
        ranges = list(self._ranges(consumer))
        committed = None if self._checkpoint is None else self._checkpoint[1]
        self._own = own_messages(self._target, writer, committed, len(ranges))
        for each in ranges:
            self._read_own(consumer, *each)
        return [own.begin() for own in self._own]

    def _read_own(self, consumer: Any, partition: int, first: int, end: int) -> None:
        """Read the messages of a partition up to an offset."""
        from confluent_kafka import KafkaError, TopicPartition

        own = self._own[partition]
        offset = own.begin_reading(first, end)
        consumer.assign([TopicPartition(self._topic, partition, offset)])
        while offset < end:
            messages = consumer.consume(_AT_ONCE, 0.0) or consumer.consume(1, _ANSWER_MAX_S)
            errors = [error for message in messages if (error := message.error()) is not None]
            wrong = next((error.str() for error in errors if error.code() != KafkaError._PARTITION_EOF), None)
            if wrong or not messages:
                reason = wrong or "no answer"
                raise SinkError(f"partition {partition} of {self._target} cannot be read: {reason}; run again")
            for message in messages:
                if message.error() is None:
                    own.take(message.offset(), dict(message.headers() or ()))
                offset = message.offset() + (message.error() is None)
        own.end_reading(offset)

    def _ranges(self, consumer: Any) -> Iterator[tuple[int, int, int]]:
        """Each partition, with its first offset and the next one."""
        from confluent_kafka import KafkaException, TopicPartition

        found = consumer.list_topics(self._topic, timeout=_ANSWER_MAX_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        for partition in sorted(found.partitions):
            part = TopicPartition(self._topic, partition)
            yield partition, *consumer.get_watermark_offsets(part, timeout=_ANSWER_MAX_S)


def producer_settings(config: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """The settings of librdkafka's producer, and how many seconds without an acknowledgement end the run; 0 for none.

    A message never expires on its own: the messages behind it would still be delivered, behind a gap. So the time of
    message.timeout.ms is counted by the sink, which drops everything.

    Raises:
        SettingsError: the config asks for what would leave gaps.
    """
    fixed = {"enable.idempotence": True, "enable.gapless.guarantee": True}
    for name in fixed:
        if str(config.get(name, "true")).lower() != "true":
            raise SettingsError(f"kafka config={{{name!r}: {config[name]!r}}}: without it messages are lost or doubled")
    times = [config[name] for name in _TIMEOUTS if name in config]
    try:
        patience_s = int(times[0]) / 1000 if times else _PATIENCE_S
    except (TypeError, ValueError):
        raise SettingsError(
            f"kafka config={{{_TIMEOUTS[0]!r}: {times[0]!r:.80}}} is no number of milliseconds"
        ) from None
    asked = {name: value for name, value in config.items() if name not in _TIMEOUTS}
    ours = {"linger.ms": 1, "queue.buffering.max.messages": 1_000_000}
    return {**ours, **asked, **fixed, _TIMEOUTS[0]: 0}, patience_s


def _text(payload: Any) -> bytes:
    if not isinstance(payload, str):
        raise TypeError("encode='text' takes payloads that are text")
    return payload.encode()


def _bytes(payload: Any) -> bytes:
    if not isinstance(payload, bytes):
        raise TypeError("encode='bytes' takes payloads that are bytes")
    return payload


_ENCODE: dict[str, Callable[[Any], bytes]] = {"json": as_json, "text": _text, "bytes": _bytes}
