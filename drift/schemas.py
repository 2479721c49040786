"""Values of messages as Avro or JSON by schemas from a registry, as Confluent's clients write and read them.

Invariant: a value that does not fit its schema is an error of this value; a registry that does not answer is one of the
source or sink, and no value is taken for unreadable because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from drift.extras import need
from drift_graph.errors import InputError, SettingsError, SinkError

Format = Literal["avro", "json"]
_NOT_FOUND = 404


def registry_decoder(
    topic: str, registry: str | Mapping[str, Any] | Any, *, format: Format = "avro"
) -> Callable[[bytes], Any]:
    """A function for `decode=` of a source: values of a topic, each by the schema that it names, as dicts.

    Args:
        topic: from which they come.
        registry: the URL of the registry, the settings of a client of `confluent_kafka`, or such a client.
        format: "avro", or "json" for JSON with a schema.

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    client, context = _client_of("sources.registry_decoder", topic, registry, format)
    from confluent_kafka.schema_registry import avro, json_schema

    made: Any = (
        avro.AvroDeserializer(client)
        if format == "avro"
        else json_schema.JSONDeserializer(None, schema_registry_client=client)
    )

    def decode(value: bytes) -> Any:
        try:
            return made(value, context)
        except Exception as error:
            if _is_away(error):
                raise InputError(f"the registry of topic {topic!r} does not answer: {error}; run again") from error
            raise

    return decode


def registry_encoder(
    topic: str, registry: str | Mapping[str, Any] | Any, schema: str, *, format: Format = "avro"
) -> Callable[[Any], bytes]:
    """A function for `encode=` of a sink: payloads by a schema, which is registered for the topic if it is new.

    Args:
        topic: to which they go.
        registry: the URL of the registry, the settings of a client of `confluent_kafka`, or such a client.
        schema: of Avro, or a JSON schema, as text.
        format: "avro", or "json" for JSON with a schema.

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    client, context = _client_of("sinks.registry_encoder", topic, registry, format)
    from confluent_kafka.schema_registry import avro, json_schema
    from confluent_kafka.serialization import SerializationError

    try:
        made: Any = (
            avro.AvroSerializer(client, schema) if format == "avro" else json_schema.JSONSerializer(schema, client)
        )
    except Exception as error:
        raise SettingsError(f"registry_encoder schema={schema!r:.80} is no schema of {format}: {error}") from None

    def encode(payload: Any) -> bytes:
        try:
            value = made(payload, context)
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

    if format not in ("avro", "json"):
        raise SettingsError(f"{function} format={format!r:.80} is neither 'avro' nor 'json'")
    if isinstance(registry, (str, Mapping)):
        settings = {"url": registry} if isinstance(registry, str) else dict(registry)
        try:
            registry = SchemaRegistryClient.new_client(settings)
        except ValueError as error:
            raise SettingsError(f"{function} registry={settings.get('url')!r:.80}: {error}") from None
    return registry, SerializationContext(topic, MessageField.VALUE)


def _is_away(error: Exception) -> bool:
    """Whether an error is the registry's, and not of a value or its schema."""
    from confluent_kafka.schema_registry import SchemaRegistryError

    if isinstance(error, SchemaRegistryError):
        return bool(error.http_status_code != _NOT_FOUND)
    return isinstance(error, OSError) or any(kind.__name__ == "HTTPError" for kind in type(error).__mro__)
