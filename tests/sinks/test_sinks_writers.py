"""Kafka's sink beside other writers of its topic."""

from __future__ import annotations

from typing import Any

import pytest
from servers import Kafka
from sourced import drained

import drift
from drift import SettingsError, SinkBehind, SinkError, sinks, sources
from drift_graph.meta import global_time
from drift_graph.metas import Metas


def write(sink: Any, start: int, end: int, name: str = "a") -> None:
    metas = Metas([global_time(n, 0, 0, 0) for n in range(start, end)])
    sink.write(range(start, end), metas, [f"{name}{n}" for n in range(start, end)])


def content(kafka: Kafka, topic: str) -> list[str]:
    return drained(sources.kafka(kafka.servers, topic, decode="json", until_end=True))[0]


def test_two_sinks_write_to_one_topic_in_turn_and_each_goes_on_behind_its_own_last(kafka: Kafka) -> None:
    topic = kafka.topic("two_sinks")
    first, second = (sinks.kafka(kafka.servers, topic, writer=name) for name in ("a", "b"))
    first.open(), second.open()
    for start in (0, 3, 6):
        for name, sink in (("a", first), ("b", second)):
            write(sink, start, start + 3, name)
            sink.commit()
        kafka.send(topic, {0: [b'"foreign"']})
    first.complete(), second.complete()
    first.close(), second.close()
    again = sinks.kafka(kafka.servers, topic, writer="a")
    again.open()
    assert again.committed_position() == 8
    write(again, 0, 12)
    again.complete()
    again.close()
    found = content(kafka, topic)
    for name, length in (("a", 12), ("b", 9)):
        assert [each for each in found if each.startswith(name)] == [f"{name}{n}" for n in range(length)]
    assert found.count("foreign") == 3


def test_graphs_write_to_one_topic_and_resume(kafka: Kafka, tmp_path: Any) -> None:
    topic = kafka.topic("two_graphs")
    for length in (10, 25):
        for name in ("odd", "even"):
            graph = drift.Graph(name)
            graph.source("numbers").filter(lambda n: n % 2 == (name == "odd")).sink("out")  # noqa: B023
            sink = sinks.kafka(kafka.servers, topic, writer=name)
            inputs = {"numbers": list(range(length))}
            drift.run(graph, inputs, sinks={"out": sink}, state=tmp_path / name, complete=False).finish()
    found: list[Any] = content(kafka, topic)
    assert [n for n in found if n % 2] == list(range(1, 25, 2)) and [n for n in found if n % 2 == 0] == [
        *range(0, 25, 2)
    ]


def test_two_runs_with_one_name_are_found_at_the_next_checkpoint(kafka: Kafka) -> None:
    topic = kafka.topic("one_name")
    runs = [sinks.kafka(kafka.servers, topic, writer="a") for _ in range(2)]
    for run in runs:
        run.open()
    for run, items in zip(runs, (3, 5)):
        write(run, 0, items)
        run._wait()  # or those of the second may come first
    with pytest.raises(
        SinkError, match=r"at offset 3 the item at position 0, written behind that at -1, and before it .* at 2: two"
    ):
        runs[0].commit()
    with pytest.raises(SinkError, match="two runs have written with writer='a'"):
        runs[1].complete()
    for run in (*runs, third := sinks.kafka(kafka.servers, topic, writer="a")):
        run.close()
    with pytest.raises(SinkError, match="two runs have written with writer='a'"):
        third.open()
    third.close()


def test_one_run_that_goes_on_where_another_with_its_name_has_begun_is_found(kafka: Kafka) -> None:
    """No position is doubled yet: the number of messages shows it."""
    topic = kafka.topic("went_on")
    first = sinks.kafka(kafka.servers, topic, writer="a")
    first.open()
    write(first, 0, 3)
    committed = first.commit()
    second = sinks.kafka(kafka.servers, topic, writer="a")
    second.resume_at(3, committed)
    second.open()
    write(first, 3, 6)
    first.close()
    with pytest.raises(
        SinkError, match=r"has 3 messages of this sink since the run began, which has stored 0: another"
    ):
        second.commit()
    second.close()


def test_a_topic_is_shared_by_all_its_sinks_or_by_none(kafka: Kafka) -> None:
    alone, shared = kafka.topic("alone"), kafka.topic("shared")
    for topic, more in ((alone, {}), (shared, {"writer": "a"})):
        sink = sinks.kafka(kafka.servers, topic, **more)
        sink.open()
        write(sink, 0, 3)
        committed = sink.commit()
        sink.close()
    named = sinks.kafka(kafka.servers, alone, writer="a")
    with pytest.raises(SinkError, match="at offset 0 a message of a sink without writer="):
        named.open()
    named.close()
    unnamed = sinks.kafka(kafka.servers, shared)
    with pytest.raises(SinkError, match="messages of other writers; give the sink a topic of its own, or a name"):
        unnamed.open()
    unnamed.close()
    renamed = sinks.kafka(kafka.servers, shared, writer="b")
    renamed.resume_at(3, committed)
    with pytest.raises(SinkBehind, match="had the item at position 2 at offset 2, and has not now"):
        renamed.open()
    renamed.close()
    with pytest.raises(SettingsError, match="writer='' is no name"):
        sinks.kafka(kafka.servers, shared, writer="")
