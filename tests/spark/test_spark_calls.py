"""Calls on Spark: tasks ask, log answers before they use them, and another attempt finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG_S

import drift

pytestmark = pytest.mark.spark
ITEMS = 60


def asking(folder: Path, dies_after: int = 0) -> Any:
    """A function that notes what it is asked, and ends its process once, after so many questions."""

    def ask(pair: tuple[int, int], call: drift.Call) -> tuple[int, int, str]:
        with (folder / "asked").open("a") as file:
            file.write(call.key + "\n")
        if dies_after and not (folder / "died").exists() and len(asked(folder)) >= dies_after:
            (folder / "died").touch()
            os._exit(1)
        return (*pair, call.key)

    return ask


def asked(folder: Path) -> Counter[str]:
    return Counter((folder / "asked").read_text().split())


def graph(ask: Any) -> drift.Graph:
    made = drift.Graph("asked on Spark")
    sums = made.source("numbers").scan(lambda n: n % 3, 0, lambda total, n: (total + n, (n, total + n)), name="sums")
    answers = sums.call(ask, concurrency=2, name="ask", on_error="divert")
    answers.count(lambda answer: answer[0] % 2).sink("counts")
    answers.sink("answers")
    return made


def rows(run: drift.Run) -> list[Any]:
    return [(item.meta, item.sink, item.payload) for item in run]


def test_tasks_ask_once_with_the_keys_of_other_engines_and_answers_are_recorded(spark: Any, tmp_path: Path) -> None:
    made = graph(asking(tmp_path))
    out = rows(drift.run(made, {"numbers": range(ITEMS)}, engine="spark", spark=spark, record=tmp_path / "record"))
    assert len(asked(tmp_path)) == ITEMS and set(asked(tmp_path).values()) == {1}
    assert rows(drift.replay(tmp_path / "record", made)) == out
    assert rows(drift.replay(tmp_path / "record", made, engine="spark", spark=spark)) == out
    assert set(asked(tmp_path).values()) == {1}
    assert rows(drift.run(made, {"numbers": range(ITEMS)})) == out
    assert len(asked(tmp_path)) == ITEMS


def test_an_attempt_again_finds_what_was_logged(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, timeout=HANG_S)
    assert died.returncode == 0, died.stderr
    assert (tmp_path / "died").exists()
    again = [key for key, count in asked(tmp_path).items() if count > 1]
    assert len(asked(tmp_path)) == ITEMS and len(again) <= 2 * 2, "only what two tasks had in flight"
    assert max(asked(tmp_path).values()) <= 2
    run = drift.run(graph(asking(tmp_path)), {"numbers": range(ITEMS)})
    assert run.finish().digest == died.stdout.strip()


def test_the_folder_for_answers_is_a_setting(tmp_path: Path) -> None:
    made, folder = graph(len), str(tmp_path / "answers")
    run = drift.run(made, {"numbers": range(3)}, engine="spark", answers=folder)
    assert run.settings.answers == folder  # type: ignore[attr-defined]
    run.close()


@pytest.mark.smoke
def test_failed_and_diverted_calls_are_in_the_record(spark: Any, tmp_path: Path) -> None:
    def ask(pair: tuple[int, int]) -> tuple[int, int]:
        (tmp_path / "asked").touch()
        if pair[0] == 7:
            raise ValueError("no answer to seven")
        return pair

    def failing(on_error: Any) -> drift.Graph:
        made = drift.Graph("failing on Spark")
        answers = made.source("numbers").map(lambda n: (n, n)).call(ask, retries=0, name="ask", on_error=on_error)
        answers.count(lambda answer: answer[0] % 2).sink("counts")
        return made

    def ended(run: drift.Run) -> tuple[Any, str]:
        out = []
        try:
            out += rows(run)
        except drift.StepError as error:
            return run.report.items_out, str(error).partition("\n")[0]
        return out, ""

    for on_error in ("error", "divert"):
        made, record = failing(on_error), tmp_path / on_error
        expected = ended(drift.run(made, {"numbers": range(ITEMS)}))
        assert ("no answer to seven" in str(expected[1])) is (on_error == "error")
        on_spark = drift.run(made, {"numbers": range(ITEMS)}, engine="spark", spark=spark, record=record)
        assert ended(on_spark) == expected
        (tmp_path / "asked").unlink()
        assert ended(drift.replay(record, made)) == expected
        assert not (tmp_path / "asked").exists()


def test_a_run_with_state_asks_in_the_driver(spark: Any, tmp_path: Path) -> None:
    made = graph(asking(tmp_path))
    run = drift.run(made, {"numbers": range(ITEMS)}, engine="spark", spark=spark, state=tmp_path / "state")
    assert len(rows(run)) == 2 * ITEMS and set(asked(tmp_path).values()) == {1}


def test_a_stream_of_micro_batches_takes_no_calls(spark: Any, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load()
    with pytest.raises(drift.SettingsError, match="has the call 'ask', and a stream of micro-batches asks nothing"):
        drift.spark.stream(graph(len), {"numbers": frame}, checkpoint=str(tmp_path / "c"), output=str(tmp_path / "o"))


def main(folder: Path) -> None:
    """A run a task of which dies, in a session whose tasks have several attempts."""
    made = graph(asking(folder, dies_after=20))
    with drift.spark.session("local[2,4]") as spark:
        print(drift.run(made, {"numbers": range(ITEMS)}, engine="spark", spark=spark).finish().digest)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
