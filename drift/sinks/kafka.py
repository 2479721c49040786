"""A topic of Kafka.

Invariant: in each partition the messages are those of its items up to the last, in the order of positions.

Why: the producer is idempotent, so it keeps the order and repeats nothing; each message has its position in a header,
and a new run reads the last one of each partition.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.lines import as_json
from drift.sinks.resuming import (
    Last,
    Resuming,
    as_committed,
    check_resume,
    from_committed,
    refuse_existing,
)
from drift_graph.errors import SettingsError, SinkError
from drift_graph.functions import name_of
from drift_graph.metas import Metas

if TYPE_CHECKING:
    from confluent_kafka import Producer

_ANSWER_MAX_S = 15.0
_SILENT = logging.getLogger("drift.kafka")  # librdkafka's messages to standard error are in our errors instead
_SILENT.addHandler(logging.NullHandler())
_POSITION, _META = "drift.position", "drift.meta"


def kafka(
    servers: str,
    topic: str,
    *,
    encode: Literal["json", "text", "bytes"] = "json",
    key: Callable[[Any], str | bytes] | None = None,
    resume: Literal["continue", "error"] = "continue",
    config: Mapping[str, Any] | None = None,
) -> KafkaSink:
    """A message for each item; its headers drift.position and drift.meta hold its position and its meta.

    The run must be the only writer of the topic. At its end it waits until Kafka has acknowledged everything.

    Args:
        servers: bootstrap servers, "HOST:PORT,HOST:PORT".
        encode: how a payload becomes the value: as JSON (see `jsonl`), or unchanged if it is text or bytes.
        key: of a payload; its hash selects the partition. Without it everything goes to partition 0, in one order.
        resume: what to do if runs have written before: "continue" behind them, or "error".
        config: more settings of librdkafka, for instance for TLS and passwords.
    """
    need("kafka", "drift.sinks.kafka")
    if resume not in ("continue", "error"):
        raise SettingsError(f"resume={resume!r} is neither 'continue' nor 'error'; what Kafka has nobody can replace")
    check_resume(resume)
    if encode not in _ENCODE:
        raise SettingsError(f"kafka encode={encode!r:.80} is neither {', '.join(map(repr, _ENCODE))}")
    return KafkaSink(servers, topic, _ENCODE[encode], key, resume, dict(config or {}))


class KafkaSink:
    """See `kafka`."""

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
        self._topic = topic
        self._encode = encode
        self._key = key
        self._resume = resume
        self._target = f"topic {topic!r} of Kafka"
        self._config = {"bootstrap.servers": servers, **config}
        self._cut: tuple[int, Any] | None = None
        self._producer: Producer | None = None
        self._partitions: list[Resuming] = []
        self._lasts: list[Last | None] = []
        self._failed: list[str] = []

    def open(self) -> None:
        from confluent_kafka import Consumer, KafkaException, Producer

        try:
            reading = {"group.id": "drift", "enable.auto.commit": False, "auto.offset.reset": "error"}
            consumer = Consumer({**reading, **self._config}, logger=_SILENT)
            try:
                self._lasts = self._last_items(consumer)
            finally:
                consumer.close()
            writing = {
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "linger.ms": 1,
                "queue.buffering.max.messages": 1_000_000,
            }
            self._producer = Producer({**writing, **self._config}, logger=_SILENT)
        except KafkaException as error:
            raise SinkError(
                f"{self._target} cannot be opened: {error.args[0].str()}; nothing was written; check servers and topic"
            ) from None
        if self._resume == "error" and self._cut is None:
            refuse_existing(self._target, [last for last in self._lasts if last])
        self._failed = []
        self._partitions = [Resuming(f"partition {index} of {self._target}") for index in range(len(self._lasts))]
        for resuming, last in zip(self._partitions, self._lasts):
            resuming.begin(last)
        if self._cut is not None:
            position, committed = self._cut
            lasts = from_committed(self._target, committed)
            if len(lasts) != len(self._partitions):
                raise SinkError(
                    f"{self._target} had {len(lasts)} partitions when the state of this run was saved, "
                    f"and now it has {len(self._partitions)}: keys would go elsewhere; begin anew with another topic"
                )
            for resuming, last in zip(self._partitions, lasts):
                resuming.resume_at(position, last)

    def resume_at(self, position: int, committed: Any) -> None:
        """See `Committing`."""
        self._cut = position, committed

    def commit(self) -> dict[str, Any]:
        """See `Committing`: waits until Kafka has acknowledged everything."""
        self._wait()
        return as_committed(self._lasts)

    def committed_position(self) -> int | None:
        """The last item up to which all are stored for certain; None before the first."""
        if self._producer is not None:
            self._wait()
        lasts = self._lasts if self._key is not None else self._lasts[:1]
        stored = [last.position for last in lasts if last is not None]
        return min(stored) if stored and len(stored) == len(lasts) else None

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        if self._key is None:
            self._write_to(0, positions, metas, payloads, None)
        else:
            keys = self._keys(positions, payloads)
            count = len(self._partitions)
            shares: dict[int, list[int]] = {}
            for at, key in enumerate(keys):
                shares.setdefault(zlib.crc32(key) % count, []).append(at)
            for partition, share in shares.items():
                self._write_to(
                    partition,
                    [positions[at] for at in share],
                    [metas[at] for at in share],
                    [payloads[at] for at in share],
                    [keys[at] for at in share],
                )
        assert self._producer is not None
        self._producer.poll(0)
        self._check()

    @property
    def has_more_stored(self) -> bool:
        """Whether an earlier run has written more than this one so far."""
        return any(resuming.has_more_stored for resuming in self._partitions)

    def complete(self) -> None:
        self._wait()
        for resuming in self._partitions:
            resuming.complete()

    def close(self) -> None:
        if self._producer is None:
            return
        try:
            self._wait()
        finally:
            self._producer = None

    def _wait(self) -> None:
        """Wait until Kafka has stored, or refused, everything produced."""
        assert self._producer is not None
        self._producer.flush()  # librdkafka gives up after message.timeout.ms
        self._check()

    def _check(self) -> None:
        if self._failed:
            failed, self._failed = self._failed, []
            raise SinkError(
                f"{self._target} has not taken all items: {failed[0]}; run again, and what is missing is written"
            )

    def _write_to(
        self,
        partition: int,
        positions: Sequence[int],
        metas: Metas,
        payloads: Sequence[Any],
        keys: Sequence[bytes] | None,
    ) -> None:
        producer, topic, encode = self._producer, self._topic, self._encode
        assert producer is not None
        every = len(positions)
        positions, metas, payloads = self._partitions[partition].new(positions, metas, payloads)
        keys = keys if keys is None else keys[every - len(positions) :]
        for at, (position, meta, payload) in enumerate(zip(positions, metas, payloads)):
            try:
                value = encode(payload)
            except (msgspec.MsgspecError, TypeError, ValueError) as error:
                raise SinkError(
                    f"{self._target}: the payload at position {position}, a {type(payload).__qualname__}, cannot be "
                    f"written: {error}; map it before the sink; the items before it are safe"
                ) from error
            headers: list[tuple[str, str | bytes | None]] = [(_POSITION, b"%d" % position), (_META, meta)]
            key = None if keys is None else keys[at]
            while True:
                try:
                    producer.produce(topic, value, key, partition, headers=headers, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        if len(positions):
            self._lasts[partition] = Last(positions[-1], metas[-1])

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

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

    def _last_items(self, consumer: Any) -> list[Last | None]:
        """The last item of each partition."""
        from confluent_kafka import KafkaException, TopicPartition

        found = consumer.list_topics(self._topic, timeout=_ANSWER_MAX_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        lasts: list[Last | None] = []
        for partition in sorted(found.partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_ANSWER_MAX_S)
            if first == end:
                lasts.append(None)
                continue
            consumer.assign([TopicPartition(self._topic, partition, end - 1)])
            (message,) = consumer.consume(1, _ANSWER_MAX_S) or (None,)
            if message is None or message.error() is not None:
                reason = "no answer" if message is None else message.error().str()
                raise SinkError(f"partition {partition} of {self._target}: its last message cannot be read: {reason}")
            headers = dict(message.headers() or ())
            if _POSITION not in headers or _META not in headers:
                raise SinkError(f"{self._target} has messages that no run wrote; give the sink a topic of its own")
            lasts.append(Last(int(headers[_POSITION]), headers[_META]))
        return lasts


def _text(payload: Any) -> bytes:
    if not isinstance(payload, str):
        raise TypeError("encode='text' takes payloads that are text")
    return payload.encode()


def _bytes(payload: Any) -> bytes:
    if not isinstance(payload, bytes):
        raise TypeError("encode='bytes' takes payloads that are bytes")
    return payload


_ENCODE: dict[str, Callable[[Any], bytes]] = {"json": as_json, "text": _text, "bytes": _bytes}
