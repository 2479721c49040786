"""What a source or a step cannot take is set apart where that is asked for: in order, and the same on every engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from sourced import connected, send

import drift
from drift import sources
from drift_graph.diverted import MARK

ENGINES: list[dict[str, Any]] = [
    {"engine": "reference"},
    {"engine": "local"},
    {"engine": "local", "batch_items": 7, "fused": False},
    {"engine": "zeromq", "workers": 2},
]


def outputs(graph: drift.Graph, inputs: dict[str, Any], **how: Any) -> tuple[str, list[Any], list[Any]]:
    """The digest, the payloads of the sink "out", and those of the sink "errors"."""
    return outputs_of(drift.run(graph, inputs, **how))


def outputs_of(run: drift.Run) -> tuple[str, list[Any], list[Any]]:
    out: dict[str, list[Any]] = {"out": [], "errors": []}
    for item in run:
        out[item.sink].append(item.payload)
    return run.digest, out["out"], out["errors"]


def read(kind: Callable[..., Any], content: bytes, folder: Path) -> tuple[list[Any], list[Any]]:
    path = folder / "input"
    path.write_bytes(content)
    graph = drift.Graph("read")
    graph.source("in", on_error="divert").sink("out")
    results = [outputs(graph, {"in": kind(path)}, **how) for how in ENGINES[:-1]]  # zeromq's items are read here too
    assert all(result == results[0] for result in results)
    return results[0][1:]


def test_three_bad_lines_in_ten_thousand_are_stored_with_their_reasons(tmp_path: Path) -> None:
    lines = [json.dumps({"n": number}).encode() for number in range(10_000)]
    lines[17], lines[5000], lines[9999] = b"{bad", b'{"n": 1, "n": 2}', b'"\xff"'
    values, errors = read(sources.jsonl, b"\n".join(lines), tmp_path)
    assert values == [{"n": number} for number in range(9_999) if number not in (17, 5000)]
    assert [(each["location"], each["payload"]) for each in errors] == [
        ("in, line 18", b"{bad"),
        ("in, line 5001", b'{"n": 1, "n": 2}'),
        ("in, line 10000", b'"\xff"'),
    ]
    assert "keys must be strings" in errors[0]["error"] and "'n' is there twice" in errors[1]["error"]
    assert str(tmp_path) not in str(errors)


def test_lines_that_are_no_utf_8_are_diverted_as_bytes(tmp_path: Path) -> None:
    values, errors = read(sources.text, b"\xef\xbb\xbfone\r\ntw\xffo\rthree\n\n\xfe\nlast", tmp_path)
    assert values == ["one", "three", "", "last"]
    assert errors == [
        {"location": "in, line 2", "error": r"b'\xff' is not utf-8 (invalid start byte)", "payload": b"tw\xffo"},
        {"location": "in, line 5", "error": r"b'\xfe' is not utf-8 (invalid start byte)", "payload": b"\xfe"},
    ]


def test_rows_that_do_not_fit_or_cannot_be_converted_are_diverted(tmp_path: Path) -> None:
    def rows(path: Path) -> Any:
        return sources.csv(path, convert={"n": int})

    content = b'a,n\nx,1\ny\n\xff,2\nz,three\n"q\nq",4\n"w"w,5\nlast,6\n"open,7\nend,8\n'
    values, errors = read(rows, content, tmp_path)
    assert values == [{"a": "x", "n": 1}, {"a": "q\nq", "n": 4}, {"a": "last", "n": 6}]
    assert [(each["location"], each["payload"]) for each in errors] == [
        ("in, line 3", ["y"]),
        ("in, line 4", b"\xff,2"),
        ("in, line 5", ["z", "three"]),
        ("in, line 8", '"w"w,5'),
        ("in, line 10", '"open,7\nend,8'),
    ]
    assert "1 columns where the header has 2" in errors[0]["error"] and "raised ValueError" in errors[2]["error"]


def test_text_whose_lines_cannot_be_found_in_bytes_is_refused_and_errors_are_the_default(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"one\ntw\xffo\n")
    graph = drift.Graph("read")
    graph.source("in", on_error="divert").sink("out")
    with pytest.raises(drift.SettingsError, match="a line's end cannot be seen"):
        drift.run(graph, {"in": sources.text(path, "utf-16")}).finish()
    graph = drift.Graph("read")
    graph.source("in").sink("out")
    with pytest.raises(drift.InputError, match="line 2"):
        drift.run(graph, {"in": sources.text(path)}).finish()


def test_items_without_a_time_are_diverted_at_the_greatest_time_before_them() -> None:
    policy = drift.EventTime(lambda row: row["t"], lateness=3, tie=lambda row: row["n"])
    graph = drift.Graph("timed")
    graph.source("in", time=policy, on_error="divert").sink("out")
    rows: list[Any] = [{"n": 0}, {"t": 5, "n": 1}, {"t": "six", "n": 2}, {"t": 9, "n": 3}, "no row", {"t": 7, "n": 4}]
    for how in [*ENGINES, {"batch_items": 1}, {"batch_items": 2}]:
        run = drift.run(graph, {"in": rows}, **how)
        found = [(item.time, item.sink, item.payload) for item in run]
        assert [(time, payload["n"]) for time, sink, payload in found if sink == "out"] == [(5, 1), (7, 4), (9, 3)]
        errors = [(time, payload["error"], payload["payload"]) for time, sink, payload in found if sink == "errors"]
        assert errors == [
            (-(2**63), "KeyError: 't'", {"n": 0}),
            (5, "its time is 'six', and no int of 64 bits, nor a moment with a zone", {"t": "six", "n": 2}),
            (9, "TypeError: string indices must be integers, not 'str'", "no row"),
        ]


def test_items_without_a_tie_are_diverted_in_the_same_place() -> None:
    graph = drift.Graph("tied")
    policy = drift.EventTime("t", lateness=3, tie=lambda row: row["n"] or object())
    graph.source("in", time=policy, on_error="divert", late="late").sink("out")
    rows = [{"t": 99}, {"t": 5, "n": 1}, {"t": 60}, {"t": 8, "n": 2}, {"t": 8, "n": 0}, {"t": 1, "n": 3}]
    for how in [*ENGINES, {"batch_items": 1}, {"batch_items": 2}]:
        found = [(item.time, item.sink, item.payload) for item in drift.run(graph, {"in": rows}, **how)]
        assert [(time, payload) for time, sink, payload in found if sink == "out"] == [(5, rows[1]), (8, rows[3])]
        assert [payload["payload"] for _, sink, payload in found if sink == "late"] == [rows[5]]
        errors = [(time, payload["payload"]) for time, sink, payload in found if sink == "errors"]
        assert errors == [(-(2**63), rows[0]), (5, rows[2]), (8, rows[4])]
        assert {payload["error"][:30] for _, sink, payload in found if sink == "errors"} == {
            "KeyError: 'n'", "NoCanonicalForm: a object has ",
        }  # fmt: skip


def test_a_tie_function_that_no_item_made_fail_ends_the_run() -> None:
    def tie(row: Any) -> int:
        raise MemoryError

    graph = drift.Graph("tied")
    graph.source("in", time=drift.EventTime("t", tie=tie), on_error="divert").sink("out")
    for how in ENGINES:
        with pytest.raises(drift.StepError, match=r"the tie function of source 'in' .* raised MemoryError"):
            drift.run(graph, {"in": [{"t": 1}]}, **how).finish()


def stepped() -> drift.Graph:
    graph = drift.Graph("stepped")
    numbers = graph.source("in", time=drift.EventTime(abs, lateness=40))
    tenths = numbers.map(lambda n: 10 // (n % 3), name="tenths", on_error="divert")
    few = tenths.filter(lambda n: [True, True][n // 5 - 1 if n < 15 else 9], name="few", on_error="divert")
    many = few.flat_map(lambda n: (10 // (n - 5 + each) for each in range(2)), name="many", on_error="divert")
    many.scan(lambda n: n % 2, 0, growing, name="sum", on_error="divert").sink("out")
    return graph


def growing(state: int, n: int) -> tuple[int, tuple[int, int]]:
    if state % 4 == 2:
        raise ValueError(f"{state} with {object()}")
    return state + n + 1, (n, state)


NUMBERS = [3, 1, 2, 20, 5, 9, 7, 4, 12, 30, 31, 17, 8, 25, 40, 28, 33]


def test_what_steps_cannot_take_is_diverted_in_the_order_of_the_output() -> None:
    results = [outputs(stepped(), {"in": NUMBERS}, **how) for how in [*ENGINES, {"batch_items": 1}, {"batch_items": 4}]]
    assert all(result == results[0] for result in results)
    _, out, errors = results[0]
    assert out and {each["location"] for each in errors} == {"tenths", "many", "sum"}
    assert {
        "location": "tenths",
        "error": "ZeroDivisionError: integer division or modulo by zero",
        "payload": 3,
    } in errors
    assert all("0x..." in each["error"] for each in errors if each["location"] == "sum")


@pytest.mark.long
@drift.testing.deterministic(stepped(), **{"in": st.lists(st.integers(0, 40), max_size=12)})
def test_no_schedule_changes_what_is_diverted(run: Any) -> None:
    assert all(item.payload[0] != MARK for item in run.output if isinstance(item.payload, tuple))


def test_what_is_diverted_is_recorded_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b'{"n": 1}\n{bad\n{"n": 0}\n{"n": 2}\n')
    graph = drift.Graph("recorded")
    rows = graph.source("in", on_error="divert")
    rows.map(lambda row: 10 // row["n"], name="divide", on_error="divert").sink("out")
    digest, out, errors = outputs(graph, {"in": sources.jsonl(path)}, record=tmp_path / "record")
    path.unlink()
    assert out == [10, 5] and [each["location"] for each in errors] == ["in, line 2", "divide"]
    for engine in ("local", "reference"):
        run = drift.replay(tmp_path / "record", graph, engine=engine)
        assert [item.payload for item in run if item.sink == "errors"] == errors
        assert run.digest == digest


@pytest.mark.parametrize("error", [RecursionError, MemoryError, SystemExit])
def test_what_is_not_the_item_s_fault_ends_the_run(error: type[BaseException]) -> None:
    def fail(payload: Any) -> Any:
        raise error("too much")

    graph = drift.Graph("ends")
    graph.source("in").map(fail, on_error="divert").sink("out")
    with pytest.raises(drift.StepError, match="too much"):
        drift.run(graph, {"in": [1]}).finish()


def test_on_error_is_one_of_two_words() -> None:
    graph = drift.Graph("words")
    with pytest.raises(drift.GraphError, match="it is 'error' or 'divert'"):
        graph.source("in", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(drift.GraphError, match="it is 'error' or 'divert'"):
        graph.source("in").map(abs, on_error=None)  # type: ignore[arg-type]


def test_a_client_that_dies_in_mid_line_or_sends_bad_bytes_ends_nobody_else() -> None:
    source = sources.tcp_lines(line_bytes_max=100)
    graph = drift.Graph("lines")
    graph.source("in", on_error="divert").sink("out")
    with connected(source) as healthy:
        send(source.address, b"whole\ndies in mid-l")
        send(source.address, b"good\nb\xffd\nafter\n" + b"x" * 101 + b"\nend\n")
        with connected(source) as flood:
            flood.sendall(b"y" * 101)
            healthy.sendall(b"still\n")
            run = drift.run(graph, {"in": source})
            found: list[Any] = []
            for item in run:
                found.append((item.sink, item.payload))
                if len(found) == 9:
                    break
            run.close()
    assert sorted(payload for sink, payload in found if sink == "out") == ["after", "end", "good", "still", "whole"]
    errors = {payload["payload"]: payload["error"] for sink, payload in found if sink == "errors"}
    assert set(errors) == {b"dies in mid-l", b"b\xffd", b"x" * 100, b"y" * 100}
    assert "13 bytes into the line" in errors[b"dies in mid-l"] and "is not UTF-8" in errors[b"b\xffd"]


def test_what_is_diverted_of_a_folder_reports_the_file_by_its_name_in_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jsonl").write_text("no\n1\n")
    graph = drift.Graph("folders")
    graph.source("in", on_error="divert").sink("out")
    for path, places in (
        (tmp_path / "*" / "x.jsonl", ["in, a/x.jsonl, line 1", "in, b/x.jsonl, line 1"]),
        (tmp_path / "a", ["in, x.jsonl, line 1"]),
    ):
        output = list(drift.run(graph, {"in": sources.jsonl(path)}))
        assert [item.payload["location"] for item in output if item.sink == "errors"] == places
        assert [item.payload for item in output if item.sink == "out"] == [1] * len(places)


TIMES = [5, 9, 7, 3, 20, 8, 19, 400, 18, 21, 4]


@pytest.mark.parametrize("policy", ["error", "divert"])
def test_late_items_are_a_sink_with_one_order_on_every_engine(policy: Any, tmp_path: Path) -> None:
    graph = drift.Graph("late")
    time = drift.EventTime(lambda n: n, lateness=2, late=policy, future_max=100)
    graph.source("in", time=time, late="late").map(lambda n: n, name="same").sink("out")
    results = []
    for how in ENGINES:
        for batch_items in (1, 3, 1000):
            run = drift.run(graph, {"in": TIMES}, **{**how, "batch_items": batch_items})
            items = [(item.sink, item.payload) for item in run]
            results.append((run.digest, items))
            assert run.late == []
            assert run.report.late_items == run.progress.late_items == run.report.sinks["late"] == 4
    assert all(result == results[0] for result in results)
    late = [payload for sink, payload in results[0][1] if sink == "late"]
    assert {report["payload"]: report["error"] for report in late} == {
        3: "its time 3 is 4 behind the heartbeat 7",
        8: "its time 8 is 10 behind the heartbeat 18",
        400: "its time 400 is 280 beyond what future_max allows",
        4: "its time 4 is 15 behind the heartbeat 19",
    }
    assert {report["location"] for report in late} == {"in"}
    assert [payload for sink, payload in results[0][1] if sink == "out"] == [5, 7, 9, 18, 19, 20, 21]
    written: list[Any] = []
    record = tmp_path / "record"
    first = drift.run(graph, {"in": TIMES}, record=record, sinks={"late": written}).finish()
    assert [item.payload for item in written] == late
    assert drift.replay(record, graph).finish().digest == first.digest == results[0][0]
    audit = drift.audit(record, graph)
    assert audit.level_result("reproduced") == "ok" and not audit.troubles


def test_items_without_a_time_are_replayed_as_they_were_diverted(tmp_path: Path) -> None:
    graph = drift.Graph("recorded")
    graph.source("in", time=drift.EventTime("t"), on_error="divert").sink("out")
    digest, out, errors = outputs(graph, {"in": [{"t": 1}, {"x": 2}, {"t": 3}]}, record=tmp_path / "record")
    assert out == [{"t": 1}, {"t": 3}] and len(errors) == 1
    assert outputs_of(drift.replay(tmp_path / "record", graph)) == (digest, out, errors)


def test_late_items_that_are_set_apart_come_again_from_a_checkpoint(tmp_path: Path) -> None:
    graph = drift.Graph("late")
    graph.source("in", time=drift.EventTime(lambda n: n, lateness=2), on_error="divert", late="late").sink("out")
    inputs = [n - 10 * (n % 7 == 6) if n % 11 else "no time" for n in range(100)]
    whole = drift.run(graph, {"in": inputs})
    expected = [(item.sink, item.payload) for item in whole]
    assert {sink for sink, _ in expected} == {"out", "late", "errors"}
    state = tmp_path / "state"
    found: dict[int, Any] = {}
    for length in (30, 60, 100):
        run = drift.run(
            graph, {"in": inputs[:length]}, state=drift.Checkpoints(state, every_items=10, every_s=100), batch_items=7
        )
        for item in run:
            found[item.position] = (item.sink, item.payload)
            if length < 100 and item.position > length - 20:
                run.close()
                break
    assert [found[position] for position in sorted(found)] == expected


def test_a_sink_of_late_items_has_a_name_of_its_own() -> None:
    graph = drift.Graph("late")
    with pytest.raises(drift.GraphError, match="late='errors', which is the sink of what cannot be read"):
        graph.source("in", late="errors")
    with pytest.raises(drift.GraphError, match="a sink is named 7"):
        graph.source("in", late=7)  # type: ignore[call-overload]
    for name in ("a", "b"):
        graph.source(name, time=drift.EventTime(lambda n: n), late="late").sink(f"out {name}")
    found = [(item.sink, item.payload) for item in drift.run(graph, {"a": [5, 1], "b": [6, 2]})]
    assert [report["location"] for sink, report in found if sink == "late"] == ["a", "b"]


@pytest.mark.parametrize("late", ["error", "divert"])
def test_an_item_without_a_time_at_the_beginning_is_no_time_to_be_ahead_of(late: Any) -> None:
    graph = drift.Graph("ahead")
    time = drift.EventTime("at", late=late, future_max=3600)
    graph.source("in", time=time, on_error="divert").sink("out")
    items: list[dict[str, Any]] = [{"at": "?"}, {"at": 1000}, {"at": 1001}, {"at": 1002}]
    for settings in ({"engine": "reference"}, {}, {"batch_items": 1}, {"batch_items": 2}):
        run = drift.run(graph, {"in": items}, **settings)  # type: ignore[arg-type]
        assert [item.payload for item in run if item.sink == "out"] == items[1:], settings
        assert run.late == []


@pytest.mark.parametrize("settings", ENGINES[:3], ids=str)
def test_a_time_function_that_raises_what_is_no_exception_is_named_in_the_error(settings: dict[str, Any]) -> None:
    def leaving(number: int) -> int:
        raise SystemExit(number)

    graph = drift.Graph("leaving")
    graph.source("in", time=drift.EventTime(leaving), on_error="divert").sink("out")
    with pytest.raises(drift.StepError, match=r"the time function of source 'in' .* raised SystemExit: 3; payload 3"):
        drift.run(graph, {"in": [3]}, **settings).finish()
