"""Records of runs with calls: replays, audits and other engines take the answers from there, and ask nothing."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import drift
from drift.auditing.audit import audit
from drift.cli import drift as drift_cli
from drift.records.fingerprint import fingerprint
from drift_graph.errors import AnswerMissing

ITEMS = 30


class Counted:
    """Gives another answer each time, and fails about some."""

    def __init__(self, *failing: int) -> None:
        self.asked: Counter[int] = Counter()
        self.failing = failing

    def __call__(self, item: int) -> tuple[int, int]:
        self.asked[item] += 1
        if item in self.failing:
            raise ValueError(f"nothing about {item}")
        return item, self.asked.total()


def graph(ask: Callable[..., Any], **more: Any) -> drift.Graph:
    made = drift.Graph("recorded")
    sums = made.source("numbers").scan(lambda n: n % 4, 0, lambda total, n: (total + n, n), name="sums")
    answers = sums.call(ask, name="ask", retries=0, concurrency=4, **more)
    answers.scan(lambda answer: answer[0] % 3, 0, lambda count, answer: (count + 1, (answer, count))).sink("out")
    answers.call(lambda answer: (*answer, ask(answer[0] + 100)[1]), name="further", retries=0).sink("second")
    return made


def recorded(folder: Path, ask: Counted, **more: Any) -> list[tuple[str, Any]]:
    run = drift.run(graph(ask, **more), {"numbers": range(ITEMS)}, record=folder)
    return [(item.sink, item.payload) for item in run]


@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_a_replay_on_any_engine_takes_answers_from_the_record(tmp_path: Path, engine: str) -> None:
    ask = Counted()
    out = recorded(tmp_path / "record", ask)
    assert set(ask.asked.values()) == {1} and len(ask.asked) == 2 * ITEMS
    ask.asked.clear()
    run = drift.replay(tmp_path / "record", graph(ask), engine=engine)
    assert [(item.sink, item.payload) for item in run] == out
    assert run.digest == drift.Record(tmp_path / "record").manifest.digest
    assert not ask.asked


def test_an_audit_asks_nothing_and_finds_another_answer(tmp_path: Path) -> None:
    ask = Counted()
    recorded(tmp_path / "record", ask)
    ask.asked.clear()
    found = audit(tmp_path / "record", graph(ask), engines=["local", "reference"])
    assert found.ok, found.checks
    assert not ask.asked


@pytest.mark.filterwarnings("ignore::drift.auditing.replay.GraphDiffers")
def test_failures_and_diverted_items_are_recorded(tmp_path: Path) -> None:
    ask = Counted(7)
    with pytest.raises(drift.StepError, match="nothing about 7") as first:
        recorded(tmp_path / "failed", ask)
    asked_before = ask.asked.total()
    with pytest.raises(drift.StepError, match="nothing about 7") as second:
        drift.replay(tmp_path / "failed", graph(ask)).finish()
    assert str(first.value) == str(second.value) and ask.asked.total() == asked_before
    assert audit(tmp_path / "failed", graph(ask)).ok
    lineage = drift.explain(tmp_path / "failed", drift.Record(tmp_path / "failed").manifest.items_out, graph(ask))
    assert any(made.step == "ask" for made in lineage.items)
    out = recorded(tmp_path / "diverted", ask, on_error="divert")
    assert [payload["payload"] for sink, payload in out if sink == "errors"] == [7]
    asked_before = ask.asked.total()
    assert audit(tmp_path / "diverted", graph(ask, on_error="divert")).ok and ask.asked.total() == asked_before


def test_lineage_goes_through_calls_to_the_input(tmp_path: Path) -> None:
    ask = Counted()
    recorded(tmp_path / "record", ask)
    ask.asked.clear()
    record = drift.Record(tmp_path / "record")
    for position in (0, 31, 2 * ITEMS - 1):
        lineage = drift.explain(tmp_path / "record", position, graph(ask))
        item = record.item(position)
        assert lineage.item.payload == item.payload and lineage.recorded is None
        (asked_about,) = {made.payload for made in lineage.items if made.step == "ask" and made.time == item.time}
        assert asked_about[0] == item.payload[0] if item.sink == "second" else item.payload[0][0]
    assert not ask.asked


def test_another_graph_may_ask_about_what_is_not_in_the_record(tmp_path: Path) -> None:
    ask = Counted()
    recorded(tmp_path / "record", ask)
    ask.asked.clear()
    other = drift.Graph("recorded")
    answers = other.source("numbers").call(ask, name="other")
    answers.sink("out")
    with pytest.warns(drift.auditing.replay.GraphDiffers), pytest.raises(AnswerMissing, match="call 'other' has no"):
        drift.replay(tmp_path / "record", other).finish()
    with pytest.warns(drift.auditing.replay.GraphDiffers):
        drift.replay(tmp_path / "record", other, calls={"other": lambda item: -item}).finish()
    assert not ask.asked
    with pytest.warns(drift.auditing.replay.GraphDiffers):
        drift.replay(tmp_path / "record", other, calls="ask").finish()
    assert ask.asked.total() == ITEMS


def test_a_record_that_ends_early_is_replayed_to_its_end(tmp_path: Path) -> None:
    ask = Counted()
    run = drift.run(graph(ask), {"numbers": range(ITEMS)}, record=tmp_path / "record", batch_items=2)
    out = [next(run).payload for _ in range(10)]
    run.close()
    ask.asked.clear()
    again = [item.payload for item in drift.replay(tmp_path / "record", graph(ask))]
    assert again[:10] == out and not ask.asked
    assert audit(tmp_path / "record", graph(ask)).ok and not ask.asked


class Client:
    """Of a service at an address."""

    def __init__(self, address: str) -> None:
        self.address = address


def at(address: str, *, step: int = 1, **more: Any) -> tuple[drift.Graph, list[int]]:
    """A graph whose call asks a client, and what it was asked."""
    asked: list[int] = []
    client = Client(address)

    def ask(item: int) -> tuple[int, str]:
        asked.append(item)
        return item, client.address

    made = drift.Graph("addressed")
    answers = made.source("numbers").map(lambda n: n * step).call(ask, name="ask", **more)
    answers.scan(lambda answer: 0, 0, lambda count, answer: (count + 1, (count, answer))).sink("out")
    return made, asked


def test_what_a_call_asks_and_how_is_no_part_of_the_graph(tmp_path: Path) -> None:
    made, asked = at("http://old")
    drift.run(made, {"numbers": range(ITEMS)}, record=tmp_path / "record").finish()
    other, asked_other = at("http://new", concurrency=1, timeout_s=1, retries=0, rate_per_s=1e6, stub=len)
    assert fingerprint(made.build())["digest"] == fingerprint(other.build())["digest"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", drift.auditing.replay.GraphDiffers)
        out = [item.payload[1][1] for item in drift.replay(tmp_path / "record", other)]
    assert out == ["http://old"] * ITEMS and len(asked) == ITEMS and not asked_other
    (check,) = [each for each in audit(tmp_path / "record", other).checks if each.what == "the graph"]
    assert check.result == "ok" and "; the function of step 'ask' changed: address " in check.found
    assert "is 'http://new', before 'http://old'; answers that are logged stay as they are" in check.found
    with pytest.warns(drift.auditing.replay.GraphDiffers):
        drift.replay(tmp_path / "record", at("http://old", step=2)[0])


def test_a_run_goes_on_with_another_service(tmp_path: Path) -> None:
    (made, asked), (other, asked_other) = at("http://old", concurrency=1), at("http://new")
    first = drift.run(made, {"numbers": range(ITEMS)}, state=drift.Checkpoints(tmp_path, every_s=0), batch_items=3)
    out = [next(first).payload for _ in range(10)]
    first.close()
    assert 10 <= len(asked) <= ITEMS
    out += [item.payload for item in drift.run(other, {"numbers": range(ITEMS)}, state=tmp_path)]
    answers = dict(dict(sorted(out)).values())
    assert list(answers) == list(range(ITEMS))
    assert [item for item, address in answers.items() if address == "http://new"] == sorted(asked_other)
    assert len(set(asked_other) & set(asked)) <= 1, "what was in flight"


def test_an_audit_may_ask_again_and_says_which_answers_are_others_now(tmp_path: Path) -> None:
    today = {"say": "old"}

    def ask(item: int) -> tuple[int, str]:
        return item, today["say"] if item % 10 == 3 else "same"

    made = drift.Graph("again")
    made.source("numbers").map(lambda n: n + 1, name="next").call(ask, name="ask").sink("out")
    drift.run(made, {"numbers": range(ITEMS)}, record=tmp_path / "record").finish()
    same = audit(tmp_path / "record", made, ask_again=True)
    assert same.ok and same.checks[-1].found == "the same 30 answers"
    today["say"] = "new"
    found = audit(tmp_path / "record", made, ask_again=True)
    check = found.checks[-1]
    assert found.ok and (check.what, check.result) == ("call 'ask' asked again", "noted")
    assert check.found.startswith("3 of 30 answers are others now: about 3 (time 2 source 0 path ")
    assert "(3, 'new'), recorded (3, 'old')" in check.found
    changed = check.detail["changed"]
    assert [each["question"] for each in changed] == ["3", "13", "23"]
    assert [each["step"] for each in changed[0]["lineage"]["items"]] == ["numbers", "next", "ask"]


def test_the_command_asks_again_and_takes_stubs(tmp_path: Path) -> None:
    file = tmp_path / "asking.py"
    file.write_text(
        "import drift, itertools\n"
        "count = itertools.count()\n"
        "graph = drift.Graph('asking')\n"
        "graph.source('words').call(lambda word: (word, next(count)), name='ask', concurrency=1,\n"
        "    stub=lambda word: (word, 'stub')).sink('out')\n"
    )
    (tmp_path / "words.txt").write_text("a\nb\n")
    command = ["run", f"{file}:graph", "--source", str(tmp_path / "words.txt"), "-q"]
    runner = CliRunner()
    stubbed = runner.invoke(drift_cli, [*command, "--calls", "stub", "--sink", f"jsonl:{tmp_path}/out.jsonl"])
    assert stubbed.exit_code == 0, stubbed.output
    assert [json.loads(line)["payload"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        ["a", "stub"],
        ["b", "stub"],
    ]
    assert runner.invoke(drift_cli, [*command, "--record", str(tmp_path / "record")]).exit_code == 0
    asked = runner.invoke(drift_cli, ["audit", str(tmp_path / "record"), "--ask-again", "--json"])
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.output)["checks"][-1]["found"].startswith("2 of 2 answers are others now")
    replayed = runner.invoke(drift_cli, [*command, "--calls", "replay"])
    assert replayed.exit_code != 0 and "call 'ask' has no recorded answer about 'a'" in replayed.output
