"""A run seen while it runs: its page in a browser, its numbers over HTTP, what it says to the log and on a terminal."""

from __future__ import annotations

import itertools
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml
from browser import browser
from hypothesis import given
from hypothesis import strategies as st
from waiting import HANG_S, wait_until

import drift
from drift.cli.progress import COLUMNS, line_text, short
from drift.engines.base import Progress
from drift.engines.metrics import Reading, named, on_page
from drift.engines.observed import SourceState, Timeline
from drift.machines.nodes.intake import Intake
from drift.show import as_svg
from drift.show.steps import columns_of
from drift.web.address import as_address
from drift.web.metrics import as_text
from drift.web.status import Status
from drift_graph.meta import pack_time
from drift_graph.policies import ArrivalTime
from drift_graph.times import SourceMachine

WATCHED = ["local", "zeromq"]


def words() -> drift.Graph:
    graph = drift.Graph("words")
    lines = graph.source("lines", on_error="divert")
    lines.flat_map(str.split, name="split").count(key=str.lower, name="count").sink("counts")
    return graph


class Lines:
    """Lines without end, until `ended` is set; they stop at `enough` until then."""

    def __init__(self, enough: int = 200) -> None:
        self.ended = threading.Event()
        self._enough = enough

    def __iter__(self) -> Iterator[str]:
        for n in itertools.count():
            if n >= self._enough:
                self.ended.wait()
                return
            yield f"to be {n} <b>bold</b>"


class Seen:
    """A run that goes on in a thread of its own, so that this one can look at it."""

    def __init__(self, engine: str = "local", *, web: int | str = 0, enough: int = 200, **settings: Any) -> None:
        self.lines = Lines(enough)
        if engine == "zeromq":
            settings["workers"] = 2
        source = drift.sources.live(iter(self.lines))
        self.run = drift.run(words(), {"lines": source}, engine=engine, web=web, **settings)  # type: ignore[arg-type]
        self.report: drift.Report | None = None
        self._thread = threading.Thread(target=self._finish)

    def _finish(self) -> None:
        self.report = self.run.finish()

    def __enter__(self) -> Seen:
        self._thread.start()
        wait_until(lambda: self.run.progress.items_in == self.lines._enough, "all lines read")
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.lines.ended.set()
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()

    def get(self, path: str = "", **headers: str) -> str:
        return got(self.run.web + path, **headers)

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.get("status.json"))
        return told


def got(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=HANG_S) as answer:
        return str(answer.read().decode())


def code_of(url: str, **headers: str) -> int:
    try:
        got(url, **headers)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    return 200


def listens(url: str) -> bool:
    found = re.search(r":(\d+)/", url)
    assert found is not None
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", int(found[1]))) == 0


def page_of(run: drift.Run) -> tuple[socket.socket, threading.Thread | None]:
    """Where its page listens, and what serves it: its own, since a port that was given back may be anybody's."""
    page = run._watching.page
    assert page is not None
    return page._socket, page._thread


def gone(page: tuple[socket.socket, threading.Thread | None]) -> bool:
    listens, thread = page
    return listens.fileno() == -1 and (thread is None or not thread.is_alive())


@pytest.mark.parametrize("engine", WATCHED)
def test_what_leaves_each_operator_is_counted(engine: Any) -> None:
    lines = [f"to be {n} or not" for n in range(300)]
    workers = 2 if engine == "zeromq" else 1
    run = drift.run(words(), {"lines": lines}, engine=engine, workers=workers, counted=True)
    run.finish()
    counts = run.observed().counts
    assert counts["lines"][0] == 300 and counts["lines.good"][0] == 300 and counts["split"][0] == 1500
    assert counts["lines.errors"][:3] == (0, 0, 0)
    items, size, tombstones, busy_s = counts["count.output"]
    assert busy_s > 0 == counts["lines"].busy_s
    assert items - 2 * tombstones == 1500 and size > 1500 * 40


def test_nothing_is_counted_where_nobody_asks() -> None:
    run = drift.run(words(), {"lines": ["to be"]})
    run.finish()
    assert not run.observed().counts and not run.observed().bars and run.web == ""


def test_a_run_without_a_page_loads_no_server_and_starts_no_thread() -> None:
    code = (
        "import drift, sys, threading; graph = drift.Graph('g'); graph.source('n').sink('out');"
        "drift.run(graph, {'n': [1]}).finish();"
        "print({'starlette', 'uvicorn', 'prometheus_client', 'asyncio'} & set(sys.modules), threading.active_count())"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["set()", "1"]


@pytest.mark.parametrize("engine", WATCHED)
def test_a_run_is_seen_over_http_and_nothing_of_it_is_left(engine: str) -> None:
    with Seen(engine) as seen:
        page = page_of(seen.run)
        wait_until(lambda: seen.status()["items_out"] == 800, "all released and told")
        wait_until(lambda: seen.status()["operators"].get("split", {}).get("items") == 800, "all counted")
        told = 1 if engine == "local" else 3
        wait_until(lambda: len(seen.status()["processes"]) == told, "all processes have told of themselves")
        status = seen.status()
        assert (status["graph"], status["engine"], status["state"]) == ("words", engine, "running")
        assert status["items_in"] == 200 and status["sinks"] == {"errors": 0, "counts": 800}
        assert status["held_by"] in ("source lines", "") and status["sources"][0]["items"] == 200
        names = [each["name"] for each in status["processes"]]
        assert names[0] == "run" and (engine == "local" or "worker 1" in names)
        assert all(each["memory_bytes"] > 1e6 for each in status["processes"])
        assert status["output"][0]["position"] == 799 and status["output"][0]["payload"] == "('<b>bold</b>', 200)"
        wait_until(lambda: seen.status()["bars"], "a batch on the timeline")
        assert seen.get("graph.svg") == as_svg(words().build(), live=True)
        metrics = seen.get("metrics")
        assert 'drift_items_in_total{graph="words"} 200.0' in metrics
        assert 'drift_operator_items_total{graph="words",operator="split"} 800.0' in metrics
        assert "Content-Security" not in seen.get() and "<title>drift</title>" in seen.get()
        with urllib.request.urlopen(seen.run.web + "events", timeout=HANG_S) as events:
            first = json.loads(events.readline().removeprefix(b"data: "))
            assert first["items_in"] == 200 and first["bars"]
            seen.end()
            last = [line for line in events.read().decode().splitlines() if line][-1]
        assert json.loads(last.removeprefix("data: "))["state"] == "finished"
    assert gone(page)
    plain = drift.run(words(), {"lines": [f"to be {n} <b>bold</b>" for n in range(200)]})
    assert [report.items_out for report in (seen.report, plain.finish()) if report] == [800, 800]


def test_metrics_have_the_late_items_that_were_found_by_now() -> None:
    graph = drift.Graph("g")
    graph.source("s", time=drift.EventTime("at", lateness=5, late="divert")).sink("out")
    rows = [{"at": 100}, {"at": 200}, *({"at": n} for n in range(50)), {"at": 300}]
    with drift.run(graph, {"s": rows}, web=0, batch_items=1) as run:
        next(run)
        before = got(run.web + "metrics")  # which samples the run for its page
        next(run)
        after = got(run.web + "metrics")
        for late in ('drift_late_items_total{graph="g"} ', 'drift_source_late_items_total{graph="g",source="s"} '):
            assert f"{late}0.0" in before and f"{late}50.0" in after


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_late_items_in_a_sink_of_their_own_count_for_their_source(engine: Any, tmp_path: Path) -> None:
    graph = drift.Graph("g")
    for name in ("s", "punctual"):
        graph.source(name, time=drift.EventTime("at", lateness=5), late="late").sink(f"of {name}")
    rows = [{"at": 100}, *({"at": n} for n in range(50)), {"at": 300}]
    inputs = {"s": rows, "punctual": [{"at": 1}, {"at": 400}]}
    with drift.run(graph, inputs, web=0, engine=engine, record=tmp_path / "record") as run:
        shown = next(got(run.web + "metrics") for item in run if item.time == 300)
    assert 'drift_source_late_items_total{graph="g",source="s"} 50.0' in shown
    assert 'drift_source_late_items_total{graph="g",source="punctual"} 0.0' in shown


def test_a_page_changes_nothing_of_the_output() -> None:
    lines = [f"to be {n % 7}" for n in range(5000)]
    watched = drift.run(words(), {"lines": lines}, web=0).finish()
    assert watched.digest == drift.run(words(), {"lines": lines}).finish().digest


def test_the_page_of_a_run_that_is_interrupted_is_gone() -> None:
    run = drift.run(words(), {"lines": itertools.repeat("to be")}, web=0)
    with pytest.raises(KeyboardInterrupt), run:
        for item in run:
            if item.position == 10_000:
                page = page_of(run)
                assert code_of(run.web) == 200 and not gone(page)
                raise KeyboardInterrupt
    assert gone(page)


def test_a_page_ends_though_somebody_looks_who_takes_nothing() -> None:
    with Seen() as seen:
        page = page_of(seen.run)
        port = int(seen.run.web.rsplit(":", 1)[1].strip("/"))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            seen.end()
    assert gone(page)


def test_the_page_of_a_run_that_never_begins_is_gone_with_it() -> None:
    run = drift.run(words(), {"lines": ["to be"]}, web=0)
    page = page_of(run)
    assert not gone(page)
    run.close()
    assert gone(page)


def test_a_failed_run_is_reported_as_failed() -> None:
    graph = drift.Graph("bad")
    graph.source("n").map(lambda n: 1 // n).sink("out")
    run = drift.run(graph, {"n": [1, 0]}, web=0)
    states: list[str] = []
    status = run._watching.status
    with pytest.raises(drift.StepError):
        states.extend(status.sample()["state"] for _ in run.batches())
    assert (
        set(states) == {"running"}
        and status.sample()["state"] == "failed"
        and "ZeroDivisionError" in status.sample()["error"]
    )


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_the_page_of_the_command_is_gone_after_a_signal(signal_number: int, tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text("import drift\ngraph = drift.Graph('g')\ngraph.source('n').sink('out')\n")
    command = [sys.executable, "-m", "drift", "run", "graph.py:graph", "--source", "tcp://127.0.0.1:0", "--web", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = next(line.split()[-1] for line in process.stderr if line.startswith("see the run at"))
        wait_until(lambda: listens(url), "the page")
        assert json.loads(got(url + "status.json"))["graph"] == "g"
        process.send_signal(signal_number)
        assert process.wait(HANG_S) == (130 if signal_number == signal.SIGINT else 0)


def test_on_loopback_only_who_names_it_is_served() -> None:
    with Seen() as seen:
        assert code_of(seen.run.web) == 200
        assert code_of(seen.run.web + "status.json", Host="localhost:80") == 200
        assert code_of(seen.run.web + "status.json", Host="evil.example") == 421
        request = urllib.request.Request(seen.run.web + "status.json", b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError, match="405") as raised:
            urllib.request.urlopen(request, timeout=HANG_S)
        raised.value.close()


def test_elsewhere_a_token_is_asked_for() -> None:
    with Seen(web="0.0.0.0:0") as seen:
        found = re.fullmatch(r"http://[^:]+:(\d+)/\?token=(\S{20,})", seen.run.web)
        assert found is not None
        at, token = f"http://127.0.0.1:{found[1]}/", found[2]
        for path in ("", "status.json", "events", "metrics", "graph.svg"):
            assert code_of(at + path) == 401 and code_of(f"{at}{path}?token=wrong") == 401
        assert code_of(f"{at}?token={token}") == 200
        assert code_of(at + "metrics", Authorization=f"Bearer {token}") == 200


def test_a_token_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFT_WEB_TOKEN", "s3cret")
    assert as_address("example.org:80").token == as_address(80).token == "s3cret"
    assert as_address("[::1]:80").host == "::1" and as_address("8080").port == 8080


@pytest.mark.parametrize("web", [-1, 70000, "here", "host:", ":80", True, "host:x", 1.5])
def test_what_is_no_address_is_refused(web: Any) -> None:
    with pytest.raises(drift.SettingsError, match="web="):
        drift.run(words(), {"lines": []}, web=web)


def test_the_page_in_a_browser() -> None:
    with browser() as window, Seen(enough=3000) as seen:
        for width in (2560, 1400, 400):
            window.open(seen.run.web, width=width)
            window.wait_for("return document.querySelectorAll('#output td').length > 20 && bars.length > 0")
            wide = window.run("return [document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1] == width
            graph = window.run("const graph = document.getElementById('graph'); return [graph.scrollWidth, "
                               "graph.clientWidth, graph.scrollHeight, graph.clientHeight]")  # fmt: skip
            assert graph[0] <= graph[1] and graph[2] <= graph[3]
        assert window.run("return document.querySelectorAll('#graph g.node').length") == 5
        text = window.text()
        assert "words" in text and "running" in text and "source lines" in text
        assert "('<b>bold</b>', 3000)" in text and window.run("return document.querySelector('#output b')") is None
        assert "Work of each step" in text and "count" in window.run("return document.getElementById('busy').innerText")
        edges = window.run("return [...document.querySelectorAll('#graph text')].map((each) => each.textContent)")
        assert any(edge.startswith("12.0k, ") for edge in edges)
        seen.end()
        window.wait_for("return document.getElementById('state').textContent === 'finished'")
        assert window.troubles() == []


def test_times_in_milliseconds_are_dates_with_a_lag_and_others_are_numbers() -> None:
    now_ms = 1_800_000_000_000

    def lag_of(time: int, state: str = "running") -> Any:
        source = SourceState("s", 1, 0, pack_time(time), 0.0)
        progress = Progress(minimal_bytes=pack_time(time))
        reading = Reading(progress, state, 1.0, sources=[source], clock_ms=now_ms)
        text = as_text("g", reading).decode()
        lag = on_page(reading)["lag_s"]
        assert (f'drift_lag_seconds{{graph="g"}} {lag}' in text) == (lag is not None)
        assert on_page(reading, "source")["s"]["lag_s"] == lag
        return lag

    assert lag_of(now_ms - 1500) == 1.5
    assert lag_of(now_ms // 1000) is lag_of(7) is lag_of(now_ms, "finished") is None


def test_the_latest_diverted_items_are_shown_with_why_and_their_payloads() -> None:
    graph = drift.Graph("g")
    graph.source("n").map(lambda n: 10 // n, name="tenth", on_error="divert").sink("out")
    run = drift.run(graph, {"n": [5, 0, 2]})
    status = Status(run)
    for batch in run.batches():
        status.take(batch)
    (error,) = status.sample()["errors"]
    assert error["location"] == "tenth" and error["payload"] == "0" and "division" in error["error"]


def test_checkpoints_are_told_of_by_age_size_and_time(tmp_path: Path) -> None:
    def run() -> drift.Run:
        graph = drift.Graph("g")
        graph.source("n").count(key=str, name="count").sink("out")
        return drift.run(graph, {"n": range(100)}, state=drift.Checkpoints(tmp_path, every_s=3600))

    first = run()
    assert first.checkpoint_state() == (0, 0, None, None)
    first.finish()
    state = first.checkpoint_state()
    assert state is not None and state.written == 1 and state.size_bytes and state.seconds is not None
    with run() as again:
        numbers = again._watching.status.sample()
        assert again.checkpoint_state() == (0, state.taken_ms, None, None)
        assert numbers["checkpoints"] == 1 and numbers["checkpoint_age_s"] >= 0
        assert numbers["checkpoint_bytes"] == state.size_bytes and numbers["checkpoint_s"] == round(state.seconds, 4)
    assert drift.run(words(), {"lines": []}).checkpoint_state() is None


def test_a_source_says_what_is_left_to_read_where_it_knows(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("to be\n" * 300_000)
    table = pa.table({"n": range(3000)})
    graph = drift.Graph("g")
    graph.source("rows").merge(graph.source("lines")).merge(graph.source("list")).sink("out")
    sources = {
        "rows": drift.sources.table(table),
        "lines": drift.sources.text(tmp_path / "lines"),
        "list": ["a"] * 3000,
    }
    run = drift.run(graph, sources, batch_items=10)
    left: list[dict[str, Any]] = []
    for _, _ in zip(range(40), run.batches()):
        reading = Reading(run.progress, "running", 0.0, sources=run.source_states())
        left.append(on_page(reading, "source"))
    run.close()
    assert left[0]["rows"]["backlog_items"] is None  # nobody had asked before
    rows, lines, unknown = left[-1]["rows"], left[-1]["lines"], left[-1]["list"]
    assert 0 < rows["backlog_items"] < 3000 and rows["backlog_bytes"] is None
    assert 0 < lines["backlog_bytes"] < 1_800_000 and lines["backlog_items"] is None
    assert unknown["backlog_items"] is unknown["backlog_bytes"] is None


@pytest.mark.parametrize("name", ["drift-alerts.yml", "drift-dashboard.json"])
def test_alerts_and_the_dashboard_ask_for_metrics_that_there_are(name: str) -> None:
    loaded = yaml.safe_load((Path(__file__).parents[2] / "docs/monitoring" / name).read_text())
    if name.endswith(".json"):
        asked = [target["expr"] for panel in loaded["panels"] for target in panel["targets"]]
        asked.append(loaded["templating"]["list"][1]["query"])
    else:
        asked = [rule["expr"] for group in loaded["groups"] for rule in group["rules"]]
    there = {found + "_total" * metric.counts: metric.label for found, metric in named("prometheus")}
    promql = pytest.importorskip("promql_parser")
    assert all(isinstance(promql.parse(each), promql.Expr) for each in asked if "label_values" not in each)
    used = set(re.findall(r"drift_\w+", " ".join(asked)))
    assert len(used) > 5 and used <= there.keys()
    labels = {"graph", *there.values()}
    shown = re.findall(r"{{ *\$?(?:labels\.)?(\w+) *}}", json.dumps(loaded))
    assert shown and set(shown) <= labels


def test_grafana_takes_all_of_the_dashboard() -> None:
    dashboard = pytest.importorskip("grafana_foundation_sdk.models.dashboard").Dashboard
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder").JSONEncoder
    written = json.loads((Path(__file__).parents[2] / "docs/monitoring/drift-dashboard.json").read_text())
    taken = json.loads(encoder(sort_keys=True).encode(dashboard.from_json(written)))

    def kept(given: Any, found: Any) -> Any:
        """What was found, without what Grafana adds."""
        if isinstance(given, dict):
            return {name: kept(each, found.get(name)) for name, each in given.items()}
        return [kept(*pair) for pair in zip(given, found, strict=True)] if isinstance(given, list) else found

    assert kept(written, taken) == written


def test_batches_that_follow_closely_are_one_bar_and_each_bar_is_reported_once() -> None:
    timeline, now_s = Timeline(), time.monotonic() - 100
    for n in range(100):
        timeline.add(now_s + n * 0.002, now_s + n * 0.002 + 0.001, 10, 1)
    timeline.add(now_s + 50, now_s + 51, 7, 0)
    bars = timeline.take()
    assert sum(bar.items for bar in bars) == 1007 and sum(bar.batches for bar in bars) == 101
    assert sum(bar.tombstones for bar in bars) == 100 and 10 <= len(bars) <= 12
    assert bars[-1].busy_s == pytest.approx(1.0) and timeline.take() == []


# What it says on a terminal.


@given(
    st.builds(
        Progress,
        items_in=st.integers(0, 10**13),
        items_out=st.integers(0, 10**13),
        unsettled=st.integers(0, 10**7),
        tombstones=st.integers(0, 10**12),
        late_items=st.integers(0, 10**9),
        minimal_bytes=st.integers(-(2**62), 2**62).map(pack_time),
        held_by=st.sampled_from(["", "worker 3"]) | st.text("ab語 ", max_size=90).map("source {}".format),
        fraction=st.none() | st.floats(0.001, 1),
        silent_since_s=st.none() | st.just(0.0),
    ),
    st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)),
    st.floats(0, 1e6),
)
def test_the_progress_line_fits_and_says_first_what_holds_the_output_back(
    progress: Progress, rates: tuple[float, float], seconds: float
) -> None:
    line = line_text(progress, rates, seconds)
    assert columns_of(line) <= COLUMNS == 80
    assert line.startswith(f"held by {progress.held_by[:20]}" if progress.held_by else "running")
    assert f"  in {short(progress.items_in)} " in line


# Who is silent.


def test_a_source_is_silent_since_it_last_gave_an_item() -> None:
    machine = SourceMachine("ticks", 0, ArrivalTime(), live=True)
    intake = Intake([machine], batch_items=10, in_flight_max=10, now_s=5.0)
    assert intake.silent_since_s(0) == 5.0
    intake.give(0, ["tick"], 100, 7.0)
    assert intake.silent_since_s(0) == 7.0
    intake.give(0, [], 100, 8.0)  # its heartbeat stands where it was
    assert intake.silent_since_s(0) == 7.0
    intake.give(0, [], 200, 9.0)
    assert intake.silent_since_s(0) == 9.0
    intake.give(0, None, 0, 10.0)
    assert intake.silent_since_s(0) is None


def test_a_silent_source_is_reported_where_items_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.engines.base.time", SimpleNamespace(monotonic=lambda: 175.0))
    since_s = 100.0
    waiting = Progress(held_by="source b", silent_since_s=since_s, unsettled=115_935)
    assert line_text(waiting, (0.0, 0.0), 80).startswith("held by source b, silent 1:15  ")
    nothing_waits = Progress(held_by="source b", silent_since_s=since_s)
    assert line_text(nothing_waits, (0.0, 0.0), 80).startswith("held by source b  ")


# What it says to the log.


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What runs of this thread have logged; others of the process may log, too."""
    thread = threading.get_ident()
    return [each for each in caplog.records if each.name == "drift" and each.thread == thread]


def test_a_run_says_when_it_starts_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "drift")
    drift.run(words(), {"lines": ["to be"]}).finish()
    assert [record.message.split(",")[0] for record in logged(caplog)] == [
        "graph 'words': run started on local",
        "graph 'words': run finished",
    ]


def test_late_and_diverted_items_are_warned_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    graph = drift.Graph("late")
    late = drift.EventTime(time=int, late="divert")
    graph.source("n", time=late, on_error="divert").map(lambda n: 10 // n, on_error="divert").sink("out")
    run = drift.run(graph, {"n": [*range(0, 100, 5), *range(60)]}, batch_items=10)
    run.finish()
    warnings = [record.message for record in logged(caplog) if record.levelno == logging.WARNING]
    assert any("late items diverted" in message for message in warnings) and len(warnings) <= 5
    assert any("1 items that could not be processed" in message for message in warnings)


def test_a_run_that_fails_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    graph = drift.Graph("bad")
    graph.source("n").map(lambda n: 1 // n).sink("out")
    with pytest.raises(drift.StepError):
        drift.run(graph, {"n": [0]}).finish()
    (record,) = [record for record in logged(caplog) if record.levelno == logging.ERROR]
    assert "run failed, StepError: " in record.message and "ZeroDivisionError" in record.message


def test_nothing_is_printed_where_logging_is_not_set_up() -> None:
    code = (
        "import drift; graph = drift.Graph('g'); graph.source('n').map(lambda n: 1 // n, on_error='divert').sink('o');"
        "drift.run(graph, {'n': [0]}).finish()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# What it gives to OpenTelemetry.


def test_a_run_is_a_span_and_its_counters_end_where_the_run_does(tmp_path: Path) -> None:
    code = """
import drift, itertools, json
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

reader, exporter, tracers = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
metrics.set_meter_provider(MeterProvider([reader]))
tracers.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(tracers)
graph = drift.Graph("g")
graph.source("n").map(lambda n: 10 // n, name="tenth", on_error="divert").sink("out")
drift.run(graph, {"n": [5, 0, 2]}, otel=True).finish()
bad = drift.Graph("bad")
bad.source("n").map(lambda n: 10 // n).sink("out")
try:
    drift.run(bad, {"n": [0]}, otel=True).finish()
except drift.StepError:
    pass
points = {}
for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
    for metric in scope.metrics:
        for point in metric.data.data_points:
            if point.attributes["drift.graph"] == "g":
                points[metric.name, point.attributes.get("drift.operator", "")] = point.value
spans = [(each.name, each.status.status_code.name, len(each.events)) for each in exporter.get_finished_spans()]
print(json.dumps([sorted([*key, value] for key, value in points.items()), spans]))
"""
    points, spans = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    values = {(name, operator): value for name, operator, value in points}
    assert values["drift.items.in", ""] == 3 and values["drift.items.out", ""] == 3
    assert values["drift.items.diverted", ""] == 1 and values.get(("drift.items.unsettled", ""), 0) == 0
    assert values["drift.operator.items", "n"] == 3
    assert spans == [["drift run g", "UNSET", 0], ["drift run bad", "ERROR", 1]]
