"""Values of messages as Avro, JSON or Protobuf by schemas from a registry, as Confluent's clients write and read them.

Invariant: a value that does not fit its schema is an error of this value; a registry that does not answer is one of the
source or sink, and no value is taken for unreadable because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from drift.extras import need
from drift_graph.errors import InputError, SettingsError, SinkError

Format = Literal["avro", "json", "protobuf"]
_FORMATS = get_args(Format)
_NOT_FOUND = 404


def registry_decoder(
    topic: str, registry: str | Mapping[str, Any] | Any, *, format: Format = "avro", schema: Any = None
) -> Callable[[bytes], Any]:
    """A function for `decode=` of a source: values of a topic, each by the schema that it names, as dicts.

    >>> import drift
    >>> decode = drift.sources.registry_decoder("trips", "http://registry:8081")
    >>> trips = drift.sources.kafka("broker:9092", "trips", decode=decode)

    Args:
        topic: from which they come.
        registry: the URL of the registry, the settings of a client of `confluent_kafka`, or such a client.
        format: "avro", "json" for JSON with a schema, or "protobuf".
        schema: of Protobuf, the class of the messages, as `protoc` makes it. Payloads are dicts of all fields: one that
            was not set is None where Protobuf tells it, and its default elsewhere; an enum is a number.

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    client, context = _client_of("sources.registry_decoder", topic, registry, format)
    from confluent_kafka.schema_registry import avro, json_schema, protobuf

    made: Any
    if format == "protobuf":
        _check_class("registry_decoder", schema)
        made = protobuf.ProtobufDeserializer(schema, _PROTOBUF, client)
    elif schema is not None:
        raise SettingsError(f"registry_decoder takes schema= for protobuf; of {format} a value names its own")
    elif format == "avro":
        made = avro.AvroDeserializer(client)
    else:
        made = json_schema.JSONDeserializer(None, schema_registry_client=client)

    def decode(value: bytes) -> Any:
        try:
            found = made(value, context)
            return found if schema is None else _as_dict(found)
        except Exception as error:
            if _is_away(error):
                raise InputError(f"the registry of topic {topic!r} does not answer: {error}; run again") from error
            raise

    return decode


def registry_encoder(
    topic: str, registry: str | Mapping[str, Any] | Any, schema: Any, *, format: Format = "avro"
) -> Callable[[Any], bytes]:
    """A function for `encode=` of a sink: payloads by a schema, which is registered for the topic if it is new.

    >>> import drift, json
    >>> fare = {"type": "record", "name": "fare", "fields": [{"name": "total", "type": "double"}]}
    >>> encode = drift.sinks.registry_encoder("fares", "http://registry:8081", json.dumps(fare))
    >>> fares = drift.sinks.kafka("broker:9092", "fares", encode=encode)

    Args:
        topic: to which they go.
        registry: the URL of the registry, the settings of a client of `confluent_kafka`, or such a client.
        schema: of Avro, or a JSON schema, as text; of Protobuf, the class of the messages, as `protoc` makes it, for
            payloads that are dicts of fields.
        format: "avro", "json" for JSON with a schema, or "protobuf".

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    client, context = _client_of("sinks.registry_encoder", topic, registry, format)
    from confluent_kafka.schema_registry import avro, json_schema, protobuf
    from confluent_kafka.serialization import SerializationError

    made: Any
    if format == "protobuf":
        _check_class("registry_encoder", schema)
    try:
        if format == "protobuf":
            made = protobuf.ProtobufSerializer(schema, client, _PROTOBUF)
        elif format == "avro":
            made = avro.AvroSerializer(client, schema)
        else:
            made = json_schema.JSONSerializer(schema, client)
    except Exception as error:
        raise SettingsError(f"registry_encoder schema={schema!r:.80} is no schema of {format}: {error}") from None

    def encode(payload: Any) -> bytes:
        try:
            value = made(schema(**payload) if format == "protobuf" else payload, context)
        except SerializationError as error:
            raise ValueError(str(error)) from None
        except Exception as error:
            if _is_away(error):
                raise SinkError(f"the registry of topic {topic!r} does not answer: {error}; run again") from error
            raise ValueError(f"it does not fit the schema: {error}") from None
        if value is None:
            raise ValueError("None has no schema; filter such payloads")
        return bytes(value)

    return encode


def _client_of(function: str, topic: str, registry: Any, format: str) -> tuple[Any, Any]:
    """The client of a registry, and what it is to be asked about."""
    need("registry", f"drift.{function}")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    if format not in _FORMATS:
        raise SettingsError(f"{function} format={format!r:.80} is none of {', '.join(map(repr, _FORMATS))}")
    if isinstance(registry, (str, Mapping)):
        settings = {"url": registry} if isinstance(registry, str) else dict(registry)
        try:
            registry = SchemaRegistryClient.new_client(settings)
        except ValueError as error:
            raise SettingsError(f"{function} registry={settings.get('url')!r:.80}: {error}") from None
    return registry, SerializationContext(topic, MessageField.VALUE)


_PROTOBUF = {"use.deprecated.format": False}


def _check_class(function: str, schema: Any) -> None:
    from google.protobuf.message import Message

    if not (isinstance(schema, type) and issubclass(schema, Message)):
        raise SettingsError(f"{function} schema={schema!r:.80} is no class of messages; protobuf takes one of protoc's")


def _as_dict(value: Any) -> Any:
    """A message of Protobuf as a dict of its fields; other values as they are."""
    from google.protobuf.message import Message

    if not isinstance(value, Message):
        return value
    found: dict[str, Any] = {}
    for field in value.DESCRIPTOR.fields:
        of = getattr(value, field.name)
        if isinstance(of, Mapping):
            found[field.name] = {key: _as_dict(of[key]) for key in sorted(of)}
        elif isinstance(of, Sequence) and not isinstance(of, (str, bytes)):
            found[field.name] = list(map(_as_dict, of))
        else:
            is_set = not field.has_presence or value.HasField(field.name)
            found[field.name] = _as_dict(of) if is_set else None
    return found


def _is_away(error: Exception) -> bool:
    """Whether an error is the registry's, and not of a value or its schema."""
    from confluent_kafka.schema_registry import SchemaRegistryError

    if isinstance(error, SchemaRegistryError):
        return bool(error.http_status_code != _NOT_FOUND)
    return isinstance(error, OSError) or any(kind.__name__ == "HTTPError" for kind in type(error).__mro__)
