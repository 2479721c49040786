"""Values of Kafka by the schemas of a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from servers import Kafka

import drift
from drift import SettingsError, SinkError, sinks, sources

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema")
confluent_kafka = pytest.importorskip("confluent_kafka")
descriptor_pb2, descriptor_pool, message_factory = (
    pytest.importorskip(f"google.protobuf.{name}") for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
)

FIELDS: list[dict[str, Any]] = [{"name": "zone", "type": "string"}, {"name": "fare", "type": "double"}]


def message_class() -> Any:
    """What protoc makes of a message Trip {string zone = 1; double fare = 2;}."""
    file = descriptor_pb2.FileDescriptorProto(name="trip.proto", package="trips", syntax="proto3")
    point = file.message_type.add(name="Point")
    point.field.add(name="x", number=1, type=3, label=1)
    trip = file.message_type.add(name="Trip")
    trip.field.add(name="zone", number=1, type=9, label=1)
    trip.field.add(name="fare", number=2, type=1, label=1)
    trip.field.add(name="raw", number=3, type=12, label=1)
    trip.field.add(name="at", number=4, type=11, label=1, type_name=".trips.Point")
    trip.field.add(name="by", number=5, type=11, label=3, type_name=".trips.Point")
    entry = trip.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=3, label=1)
    trip.field.add(name="tags", number=6, type=11, label=3, type_name=".trips.Trip.TagsEntry")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("trips.Trip"))


SCHEMAS: dict[Any, Any] = {
    "avro": json.dumps({"type": "record", "name": "Trip", "fields": FIELDS}),
    "json": json.dumps(
        {
            "title": "Trip",
            "type": "object",
            "required": ["zone"],
            "properties": {"zone": {"type": "string"}, "fare": {"type": "number"}},
        }
    ),
}
SCHEMAS["protobuf"] = message_class()
TRIPS = [{"zone": "AB"[n % 2], "fare": n / 4} for n in range(20)]


@pytest.fixture
def registry() -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient.new_client({"url": "mock://"})


def echo(**more: Any) -> drift.Graph:
    graph = drift.Graph("echo")
    graph.source("in", **more).sink("out")
    return graph


@pytest.mark.parametrize("format", list(SCHEMAS))
def test_what_a_run_writes_by_a_schema_another_reads(kafka: Kafka, registry: Any, format: Any) -> None:
    topic = kafka.topic(f"trips-{format}")
    for _ in range(2):
        encode = sinks.registry_encoder(topic, registry, SCHEMAS[format], format=format)
        out = sinks.kafka(kafka.servers, topic, encode=encode)
        drift.run(echo(), {"in": TRIPS}, sinks={"out": out}).finish()
    assert registry.get_latest_version(f"{topic}-value").version == 1
    is_protobuf = format == "protobuf"
    decode = sources.registry_decoder(topic, registry, format=format, schema=SCHEMAS[format] if is_protobuf else None)
    source = sources.kafka(kafka.servers, topic, decode=decode, until_end=True)
    unset = {"raw": b"", "at": None, "by": [], "tags": {}} if is_protobuf else {}
    assert [item.payload for item in drift.run(echo(), {"in": source})] == [{**trip, **unset} for trip in TRIPS]


def test_messages_of_protobuf_are_dicts_of_all_their_fields(registry: Any) -> None:
    trip = {
        "zone": "A",
        "fare": 2.5,
        "raw": b"\0\xff",
        "at": {"x": 1 << 40},
        "by": [{"x": 1}, {"x": 0}],
        "tags": {"b": 2, "a": 1},
    }
    encode = sinks.registry_encoder("t", registry, SCHEMAS["protobuf"], format="protobuf")
    decode = sources.registry_decoder("t", registry, format="protobuf", schema=SCHEMAS["protobuf"])
    assert decode(encode(trip)) == trip and list(decode(encode(trip))["tags"]) == ["a", "b"]
    for wrong in ({"zone": 1}, {"nothing": 1}, [("zone", "A")], None):
        with pytest.raises(ValueError, match="it does not fit the schema"):
            encode(wrong)


def test_a_value_without_its_schema_is_diverted_and_a_registry_that_is_away_ends_the_run(
    kafka: Kafka, registry: Any
) -> None:
    topic = kafka.topic("mixed")
    good = sinks.registry_encoder(topic, registry, SCHEMAS["avro"])(TRIPS[1])
    kafka.send(topic, {0: [good, b"x", b"\0\0\0\0\x63abcdef", good[:8], None, good]})
    decode = sources.registry_decoder(topic, registry)
    source = sources.kafka(kafka.servers, topic, decode=decode, until_end=True)
    found: list[Any] = []
    errors: list[Any] = []
    sinks_of = {"out": found, "errors": errors}
    drift.run(echo(on_error="divert"), {"in": source}, sinks=sinks_of).finish()
    assert [item.payload for item in found] == [TRIPS[1], None, TRIPS[1]]
    assert [item.payload["payload"] for item in errors] == [b"x", b"\0\0\0\0\x63abcdef", good[:8]]
    away = sources.registry_decoder(topic, {"url": "http://127.0.0.1:1", "max.retries": 0})
    gone = sources.kafka(kafka.servers, topic, decode=away, until_end=True)
    with pytest.raises(drift.InputError, match="the registry of topic 'mixed' does not answer"):
        drift.run(echo(on_error="divert"), {"in": gone}, sinks={"out": [], "errors": []}).finish()


def test_payloads_that_do_not_fit_the_schema_are_refused_behind_those_that_do(kafka: Kafka, registry: Any) -> None:
    topic = kafka.topic("unfit")
    encode = sinks.registry_encoder(topic, registry, SCHEMAS["avro"])
    for wrong in ({"zone": "A", "fare": "much"}, {"fare": 1.0}, None):
        out = sinks.kafka(kafka.servers, topic, encode=encode)
        with pytest.raises(SinkError, match="cannot be written"):
            drift.run(echo(), {"in": [*TRIPS, wrong]}, sinks={"out": out}).finish()
    decode = sources.registry_decoder(topic, registry)
    source = sources.kafka(kafka.servers, topic, decode=decode, until_end=True)
    assert [item.payload for item in drift.run(echo(), {"in": source})] == TRIPS
    away = {"url": "http://127.0.0.1:1", "max.retries": 0}
    gone = sinks.kafka(kafka.servers, topic, encode=sinks.registry_encoder(topic, away, SCHEMAS["avro"]))
    with pytest.raises(SinkError, match="the registry of topic 'unfit' does not answer"):
        drift.run(echo(), {"in": [*TRIPS, TRIPS[0]]}, sinks={"out": gone}).finish()


def test_arguments_that_are_wrong_are_refused(registry: Any) -> None:
    with pytest.raises(SettingsError, match="format='xml' is none of 'avro', 'json', 'protobuf'"):
        sources.registry_decoder("t", registry, format="xml")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="is no schema of avro"):
        sinks.registry_encoder("t", registry, "{")
    for wrong in (None, dict, SCHEMAS["avro"]):
        with pytest.raises(SettingsError, match="is no class of messages"):
            sources.registry_decoder("t", registry, format="protobuf", schema=wrong)
        with pytest.raises(SettingsError, match="is no class of messages"):
            sinks.registry_encoder("t", registry, wrong, format="protobuf")
    with pytest.raises(SettingsError, match="takes schema= for protobuf"):
        sources.registry_decoder("t", registry, schema=SCHEMAS["avro"])
    with pytest.raises(SettingsError, match="registry='trips'"):
        sources.registry_decoder("t", "trips")
