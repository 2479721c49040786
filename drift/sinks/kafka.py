"""A topic of Kafka.

Invariant: in each partition the messages are those of its items up to the last, in the order of positions.

Why: the producer is idempotent, so it keeps the order and repeats nothing; no message expires on its own, and where one
is refused the producer delivers nothing behind it. Each message has its position, and the offset it is to have, in
headers, and a new run reads the last one of each partition. What follows from that is decided in `DeliveringSink`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SinkGuarantee
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
_POSITION, _META, _OFFSET, _PARTITIONS = "drift.position", "drift.meta", "drift.offset", "drift.partitions"
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
) -> KafkaSink:
    """A message for each item; its headers drift.position and drift.meta hold its position and its meta.

    The run must be the only writer of the topic. At its end it waits until Kafka has acknowledged everything. The
    header drift.offset is the offset that a message is to have: a topic that has lost messages, or has others, is
    refused.

    Args:
        servers: bootstrap servers, "HOST:PORT,HOST:PORT".
        encode: how a payload becomes the value: as JSON (see `jsonl`), unchanged if it is text or bytes, or by a pure
            function, such as `registry_encoder(topic, registry, schema)`; a ValueError or TypeError refuses the item.
        key: of a payload; its hash selects the partition. Without it everything goes to partition 0, in one order.
        resume: what to do if runs have written before: "continue" behind them, or "error".
        config: more settings of librdkafka, for instance for TLS and passwords. Where Kafka acknowledges nothing for
            message.timeout.ms (5 minutes), the run ends, and what is not stored is dropped: a rerun writes it.

    Raises:
        SettingsError: `encode` or `resume` is none of these.
    """
    need("kafka", "drift.sinks.kafka")
    if resume not in ("continue", "error"):
        raise SettingsError(f"resume={resume!r} is neither 'continue' nor 'error'; what Kafka has nobody can replace")
    check_resume(resume)
    if not callable(encode):
        if encode not in _ENCODE:
            raise SettingsError(f"kafka encode={encode!r:.80} is neither {', '.join(map(repr, _ENCODE))}")
        encode = _ENCODE[encode]
    return KafkaSink(servers, topic, encode, key, resume, dict(config or {}))


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
    ) -> None:
        self._settings, patience_s = producer_settings(config)
        super().__init__(f"topic {topic!r} of Kafka", encode, key, resume, patience_s)
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
                ends = self._ends(consumer)
            finally:
                consumer.close()
            self._producer = Producer(self._settings, logger=_SILENT)
        except KafkaException as error:
            raise SinkError(
                f"{self._target} cannot be opened: {error.args[0].str()}; nothing was written; check servers and topic"
            ) from None
        self._headers = [] if self._key is None else [(_PARTITIONS, b"%d" % len(ends))]
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
        messages = zip(values, positions, metas, repeat(None) if keys is None else keys, count(offset))
        at, end = 0, len(values) - 1
        try:
            for at, (value, position, meta, key, meant) in enumerate(messages):
                headers = [(_POSITION, b"%d" % position), (_META, meta), (_OFFSET, b"%d" % meant), *more]
                if at == end:
                    report = partial(self._report, meant)
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
        config = {name: value for name, value in self._config.items() if name not in _OF_PRODUCERS}
        return Consumer({**reading, **config}, logger=_SILENT)

    def _offsets_at_end(self) -> list[int]:
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer()
        parts = [TopicPartition(self._topic, index) for index in range(len(self._deliveries))]
        try:
            return [consumer.get_watermark_offsets(each, timeout=_ANSWER_MAX_S)[1] for each in parts]
        except KafkaException as error:
            raise SinkError(
                f"the end of {self._target} cannot be read: {error.args[0].str()}; so whether it still has what was "
                f"written is not known; run again: what is missing is written"
            ) from None
        finally:
            consumer.close()

    def _ends(self, consumer: Any) -> list[End]:
        from confluent_kafka import KafkaException, TopicPartition

        found = consumer.list_topics(self._topic, timeout=_ANSWER_MAX_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        ends: list[End] = []
        for partition in sorted(found.partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_ANSWER_MAX_S)
            if first == end:
                ends.append(End(end, None))
                continue
            consumer.assign([TopicPartition(self._topic, partition, end - 1)])
            (message,) = consumer.consume(1, _ANSWER_MAX_S) or (None,)
            if message is None or message.error() is not None:
                reason = "no answer" if message is None else message.error().str()
                raise SinkError(f"partition {partition} of {self._target}: its last message cannot be read: {reason}")
            headers = dict(message.headers() or ())
            if _POSITION not in headers or _META not in headers:
                raise SinkError(f"{self._target} has messages that no run wrote; give the sink a topic of its own")
            meant, count = (int(headers[name]) if name in headers else None for name in (_OFFSET, _PARTITIONS))
            ends.append(End(message.offset() + 1, Last(int(headers[_POSITION]), headers[_META]), (meant, count)))
        return ends


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
