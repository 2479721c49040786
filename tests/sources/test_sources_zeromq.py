"""Messages over ZeroMQ, on real sockets: all that is sound is given, then what is not is named."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sourced import all_of, fault_of
from waiting import HANG_S

from drift import SettingsError, sources

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.filterwarnings("error")]


@pytest.fixture
def pusher() -> Iterator[Callable[..., Any]]:
    import zmq

    context = zmq.Context()
    senders = []

    def push(source: Any, kind: int = zmq.PUSH) -> Any:
        sender = context.socket(kind)
        sender.connect(source.address)
        senders.append(sender)
        return sender

    yield push
    context.destroy(linger=0)


@pytest.mark.parametrize("items_max", [1, 7, 1000])
def test_messages_come_in_order_and_an_empty_one_ends_them(pusher: Callable[..., Any], items_max: int) -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*")
    sender = pusher(source)
    messages = [b"%d" % number for number in range(500)]
    for message in [*messages, b"", b"after"]:
        sender.send(message)
    assert all_of(source, items_max) == messages


def test_each_message_wakes_the_engine(pusher: Callable[..., Any]) -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*", decode="json")
    sender = pusher(source)
    reader = source.open()
    assert reader.read(1) == []
    for number in range(50):  # sent only when the reader has slept: a lost wake-up would show
        sender.send_json([number] * 3)
        sender.send_json(number)
        got: list[Any] = []
        while len(got) < 2:
            assert select.select(reader.filenos(), (), (), HANG_S)[0]
            got += reader.read(1) or []
        assert got == [[number] * 3, number]
    reader.close()


def test_messages_are_decoded_and_a_bad_one_is_named(pusher: Callable[..., Any]) -> None:
    for decode, good, bad, said in (
        (
            "text",
            "é".encode(),
            b"\xff",
            "message 2: the message b'\\xff' cannot be decoded: 'utf-8' codec can't decode byte 0xff",
        ),
        (
            "json",
            b"[1]",
            b'"\xff"',
            "message 2: the message b'\"\\xff\"' cannot be decoded: 'utf-8' codec can't decode byte 0xff in position 1",
        ),
        ("json", b"[1]", b"[1", "message 2: the message b'[1' cannot be decoded: Input data was truncated; correct"),
    ):
        source = sources.zmq_pull("tcp://127.0.0.1:*", decode=decode)  # type: ignore[arg-type]
        sender = pusher(source)
        for message in (good, bad, good):
            sender.send(message)
        payloads, fault = fault_of(source)
        assert len(payloads) == 1
        assert fault.startswith(f"zmq_pull({source.address!r}), {said}")


def test_a_message_of_several_parts_is_refused(pusher: Callable[..., Any]) -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*")
    pusher(source).send_multipart([b"a", b"b"])
    fault = fault_of(source)[1]
    assert "message 1: the message (b'a', b'b') cannot be decoded: it has 2 parts; send one part" in fault


def test_a_subscription_takes_its_topic(pusher: Callable[..., Any]) -> None:
    import zmq

    source = sources.zmq_pull("tcp://127.0.0.1:*", subscribe="LH", decode="text", until_empty=False)
    publisher = pusher(source, zmq.XPUB)
    reader = source.open()
    assert reader.read(10) == []  # a bound socket subscribes when it is asked for messages
    assert publisher.poll(HANG_S * 1000)
    assert publisher.recv() == b"\x01LH"
    for message in ("BA 1", "LH 2", "BA 3", "LH 4"):
        publisher.send_string(message)
    got: list[Any] = []
    while len(got) < 2:
        assert select.select(reader.filenos(), (), (), HANG_S)[0]
        got += reader.read(10) or []
    assert got == ["LH 2", "LH 4"]
    reader.close()


def test_an_address_that_cannot_be_bound_is_refused_at_once() -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*")
    for address, said in (
        (source.address, "Address already in use"),
        ("nonsense", "Invalid argument"),
        ("carrier-pigeon://x", "not supported"),
    ):
        with pytest.raises(SettingsError, match=f"cannot bind {address!r}: .*{said}"):
            sources.zmq_pull(address)
    source.close()
    with pytest.raises(SettingsError, match="has served its run"):
        source.open()
    with pytest.raises(SettingsError, match="neither 'bytes', 'text', 'json'"):
        sources.zmq_pull("tcp://127.0.0.1:*", decode="xml")  # type: ignore[arg-type]
