"""The examples: each gives what plain Python gives, and one digest on every engine, as a library and as a script."""

from __future__ import annotations

import gzip
import importlib
import json
import random
import re
import subprocess
import sys
import threading
from collections import Counter, deque
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from test_records_cli import call
from waiting import HANG_S

import drift

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))  # where workers are to find the examples' functions, too

#: One way to run on each engine: that all ways of each give one output is a law (`test_laws.py`).
ENGINES: list[dict[str, Any]] = [{"engine": "reference"}, {"engine": "local"}, {"engine": "zeromq", "workers": 2}]

#: What each script has for a digest, on every engine and every machine.
DIGESTS = {
    "wordcount": "8f910679789bbbadca3cac49055b0332",
    "grouping": "8f7f2e4d0e190798f766a9798beaceef",
    "sum_by_cycle": "a6f7836a59cf1290373853eab5453788",
    "diamond": "b3469bd73776605538ac379b06cd79e5",
    "bfs": "88da77d131fdd0a928d697a49ad85901",
    "flights": "a21eaf61df0638bad75a92824b7a3629",
}


def example(name: str) -> Any:
    return importlib.import_module(name)


def sources(name: str) -> dict[str, Any]:
    module = example(name)
    return {
        "wordcount": lambda: {"lines": drift.sources.text(module.HAMLET)},
        "grouping": lambda: {"numbers": range(1, 9)},
        "sum_by_cycle": lambda: {"numbers": range(1, 11)},
        "diamond": lambda: {"deposits": module.DEPOSITS},
        "bfs": lambda: {"edges": module.MARRIAGES, "roots": ["Medici"]},
        "flights": lambda: {"flights": module.departures()},
    }[name]()


def payloads(run: drift.Run) -> list[Any]:
    return [item.payload for item in run]


def counted(words: list[str]) -> list[tuple[str, int]]:
    """What a word count gives, by a plain loop."""
    counts: Counter[str] = Counter()
    running = []
    for word in words:
        counts[word] += 1
        running.append((word, counts[word]))
    return running


@pytest.mark.smoke
def test_every_example_is_tested() -> None:
    others = {"audit", "backfill", "labels", "survives"}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*DIGESTS, *others}


@pytest.mark.parametrize("name", DIGESTS)
def test_an_example_has_one_digest_on_every_engine(name: str) -> None:
    for settings in ENGINES if name in ("wordcount", "bfs") else ENGINES[:2]:
        run = drift.run(example(name).graph, sources(name), **settings)
        assert run.finish().digest == DIGESTS[name]


@pytest.mark.parametrize("name", DIGESTS)
def test_an_example_run_as_a_script_prints_its_digest(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    digests = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("digest ")]
    assert set(digests) == {DIGESTS[name]}
    assert len(done.stdout.splitlines()) >= 2


def test_the_audit_reports_the_edited_line_and_writes_its_reports(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "audit.py", tmp_path], capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("digest ")] == [DIGESTS["flights"]] * 5
    assert "edited: at position 3, a function was changed: 'scan add', flights_edited.py:46" in lines
    assert '    +    flights, minutes = delays[0] + 1, delays[1] + max(int(flight["dep_delay"]), 0)' in lines
    assert "    all is the same up to what 'scan add' made of 2 items" in lines
    for name, headline in (("audit", "Intact and reproduced"), ("edited", "Not reproduced")):
        assert f"<strong>{headline}</strong>" in (tmp_path / f"{name}.html").read_text()


def commands() -> list[tuple[str, str]]:
    """(name, command) for each `drift run` that an example's docstring shows."""
    shown = re.compile(r"^    (drift run examples/(\w+)\.py:graph .*)$", re.MULTILINE)
    return [
        (name, command)
        for path in (ROOT / "examples").glob("*.py")
        for command, name in shown.findall(path.read_text())
    ]


@pytest.mark.parametrize(("name", "command"), sorted(commands()))
def test_the_command_that_an_example_shows_gives_its_digest(
    name: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = call(*command.split()[1:], "--digest")
    assert done.exit_code == 0, done.stderr
    assert DIGESTS[name] in done.stdout.splitlines()[-1]


@pytest.mark.smoke
def test_wordcount_counts_the_words_of_hamlet() -> None:
    with gzip.open(example("wordcount").HAMLET, "rt") as text:
        words = text.read().split()
    assert len(words) == 31_656
    assert payloads(drift.run(example("wordcount").graph, sources("wordcount"))) == counted(words)


def test_wordcount_takes_the_path_of_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or\nnot to be\n")
    example("wordcount").main(text)
    assert "      2  be\n      2  to\n      1  not\n" in capsys.readouterr().out


@pytest.mark.smoke
def test_grouping_gives_the_tuples_of_the_paper() -> None:
    tuples = payloads(drift.run(example("grouping").graph, sources("grouping")))
    assert tuples == [(1,), (2,), (1, 3), (2, 4), (1, 3, 5), (2, 4, 6), (3, 5, 7), (4, 6, 8)]


@pytest.mark.smoke
def test_sum_by_cycle_gives_every_sum_once() -> None:
    module = example("sum_by_cycle")
    sums = payloads(drift.run(module.graph, {"numbers": range(1, 501)}, batch_items=50))
    assert sums == [module.Sum(n * (n + 1) // 2) for n in range(1, 501)]


@pytest.mark.smoke
def test_diamond_books_a_deposit_before_its_fee_whatever_comes_first() -> None:
    module = example("diamond")
    arrivals = list(module.DEPOSITS)
    for seed in range(20):
        random.Random(seed).shuffle(arrivals)
        run = drift.run(module.graph, {"deposits": arrivals}, batch_items=1 + seed % 3)
        lines = payloads(run)
        assert run.digest == DIGESTS["diamond"]
        assert [line[1:] for line in lines if line[0] == "Ann"] == [
            ("deposit", 250_00, 250_00),
            ("fee", -2_50, 247_50),
            ("deposit", 60_00, 307_50),
            ("deposit", 120_00, 427_50),
            ("fee", -1_20, 426_30),
        ]


def distances(edges: list[str], roots: list[str]) -> dict[str, int]:
    """A plain breadth-first search."""
    neighbours: dict[str, list[str]] = {}
    for edge in edges:
        one, other = edge.split()
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    found = dict.fromkeys(roots, 0)
    todo = deque(found)
    while todo:
        node = todo.popleft()
        for neighbour in neighbours.get(node, ()):
            if neighbour not in found:
                found[neighbour] = found[node] + 1
                todo.append(neighbour)
    return found


@given(
    edges=st.lists(st.tuples(st.sampled_from("ABCDEFGH"), st.sampled_from("ABCDEFGH")).map(" ".join), max_size=16),
    roots=st.lists(st.sampled_from("ABCDEFGH"), max_size=3),
)
def test_bfs_gives_the_distances_of_the_graph_so_far_after_every_edge(edges: list[str], roots: list[str]) -> None:
    items = list(drift.run(example("bfs").graph, {"edges": edges, "roots": roots}, batch_items=5))
    for time in range(max(len(edges), len(roots))):
        latest = dict(item.payload for item in items if item.time <= time)
        assert latest == distances(edges[: time + 1], roots[: time + 1])


@pytest.mark.smoke
def test_bfs_gives_the_true_distances_of_a_graph_of_some_size() -> None:
    draw = random.Random(0)
    nodes = [str(number) for number in range(100)]
    edges = [" ".join(draw.sample(nodes, 2)) for _ in range(300)]
    run = drift.run(example("bfs").graph, {"edges": edges, "roots": ["0", "1"]})
    assert dict(payloads(run)) == distances(edges, ["0", "1"])


def test_flights_gives_the_running_means_of_the_timetable() -> None:
    module = example("flights")
    feed = module.departures()
    flights, minutes = Counter[str](), Counter[str]()
    means = []
    for flight in sorted(feed, key=lambda it: (module.scheduled(it), xxhash.xxh64_intdigest(drift.canonical(it)))):
        origin = flight["origin"]
        flights[origin] += 1
        minutes[origin] += int(flight["dep_delay"])
        name = f"{flight['carrier']} {flight['flight']}"
        means.append((origin, name, flights[origin], round(minutes[origin] / flights[origin], 2)))
    assert payloads(drift.run(module.graph, {"flights": feed})) == means


def test_flights_have_the_disorder_that_the_example_speaks_of() -> None:
    module = example("flights")
    feed = module.departures()
    assert (len(feed), module.disorder(feed)) == (7856, (4100, 899))
    report = drift.run(module.graph, {"flights": feed}, batch_items=16).finish()
    assert report.late_items == report.tombstones == 0


# Hamlet, lines numbered, so that they may come in another order.

LINES = 3000


def numbered_words(line: tuple[int, str]) -> list[str]:
    return line[1].split()


def numbered_wordcount() -> drift.Graph:
    graph = drift.Graph("numbered wordcount")
    lines = graph.source("lines", time=drift.EventTime(time=lambda line: line[0], lateness=500))
    lines.flat_map(numbered_words).count(key=lambda word: word).sink("counts")
    return graph


@cache
def hamlet() -> list[tuple[int, str]]:
    with gzip.open(example("wordcount").HAMLET, "rt") as lines:
        return list(enumerate(line.rstrip("\n") for line in lines))[:LINES]


def shuffled(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Lines out of order, none more than 500 behind."""
    draw = random.Random(4)
    return sorted(lines, key=lambda line: line[0] + draw.uniform(0, 500))


@pytest.mark.parametrize("settings", ENGINES[1:], ids=["local", "zeromq-2"])
def test_wordcount_of_hamlet_has_one_digest_in_any_order_of_arrival(settings: dict[str, Any]) -> None:
    lines = hamlet()
    for arrivals in (lines, shuffled(lines)):
        report = drift.run(numbered_wordcount(), {"lines": arrivals}, **settings).finish()
        assert report.digest == reference_digest()
        if settings["engine"] == "local":  # nothing is done before its turn while there is more to read
            assert not report.tombstones


@cache
def reference_digest() -> str:
    return drift.run(numbered_wordcount(), {"lines": hamlet()}, engine="reference").finish().digest


@pytest.mark.kills
def test_a_table_is_right_after_its_process_was_killed_three_times(postgres_url: str) -> None:
    pytest.importorskip("duckdb")
    program = [sys.executable, str(ROOT / "examples" / "survives.py"), postgres_url, "3"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "479 rows, each once, and equal to DuckDB's: True"
    rows = [int(line.split()[-2]) for line in lines[:-1]]
    assert len(rows) == 3 and 0 < rows[0] <= rows[1] <= rows[2] < 479
    assert [line.partition(" killed")[0] for line in lines[:-1]] == ["caller", "worker 1", "worker 0"]


@pytest.mark.smoke
def test_labels_asks_a_model_once_about_each_text(tmp_path: Path) -> None:
    keys: list[str] = []

    class Model(BaseHTTPRequestHandler):
        """Says what it is, in the words of the chat completions interface."""

        def do_POST(self) -> None:
            keys.append(self.headers["Idempotency-Key"])
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = asked["messages"][0]["content"].partition("this? ")[2]
            said = {"choices": [{"message": {"content": example("labels").stub(text)["label"].title() + "."}}]}
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    labels = example("labels")
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1/chat/completions"
        graph = labels.made(labels.model(url, "any"))
        run = drift.run(graph, {"texts": labels.TEXTS}, record=tmp_path / "record")
        out = [(item.sink, item.payload) for item in run]
        first_keys = keys.copy()
        script = [sys.executable, "examples/labels.py", url, "any", str(tmp_path / "state")]
        printed = [
            subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=True).stdout
            for _ in range(2)
        ]
        server.shutdown()
    assert sorted(keys) == sorted(2 * first_keys), "the second run of the script asks nothing"
    assert printed == ["".join(f"{sink} {payload}\n" for sink, payload in out), ""]
    assert len(set(first_keys)) == len(first_keys) == len(labels.TEXTS)
    stubbed = drift.run(graph, {"texts": labels.TEXTS}, calls="stub")
    assert [(item.sink, item.payload) for item in stubbed] == out
    assert drift.replay(tmp_path / "record", graph).finish().digest == run.digest
    assert len(keys) == 2 * len(labels.TEXTS)
