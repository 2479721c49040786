"""A service that counts what it is asked, and runs that ask it and are killed.

    python tests/asked.py 200            so many deaths of the caller, and as many of workers
    python tests/asked.py 20 --seed 7    the same runs, as far as clocks allow

The service answers late, out of order, at times with an error, and differently each time. Whoever dies, when, is drawn.
After each death the log of answers is read: nothing in it is asked about again. In the end the output equals that of a
run without deaths that gets the logged answers; a record of that run is replayed and audited, and nothing is asked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from waiting import command_of

import drift
from drift.calling.asks import key_of
from drift.segments.answers import AnswerLog

ITEMS = 400
WORKERS = 2
GRAPH, STEP = "asked", "ask"


class Service:
    """Answers over HTTP; for a with statement.

    Args:
        chosen: decides how late and with how many errors it answers; None for at once, and none.
        on_asked: called with the number of questions so far, before each answer.

    Attributes:
        asked: how often it was asked, by key.
    """

    def __init__(self, chosen: Random | None = None, on_asked: Callable[[int], None] | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.failed: set[str] = set()
        self._chosen = chosen
        self.on_asked = on_asked
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                service._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        key, item = request.headers["Idempotency-Key"], int(request.rfile.read(int(request.headers["Content-Length"])))
        with self._lock:
            late_s, fails = 0.0, False
            if self._chosen is not None:
                late_s = self._chosen.choice([0.0, 0.001, 0.003, 0.03])
                fails = key not in self.failed and self._chosen.random() < 0.05
            if fails:  # once: then it is asked again, and this does not count
                self.failed.add(key)
            else:
                self.asked[key] += 1
            total = self.asked.total()
            answer = item * 1000 + total % 1000
        if self.on_asked is not None:
            self.on_asked(total)
        if late_s:
            threading.Event().wait(late_s)
        body = json.dumps(answer).encode()
        request.send_response(500 if fails else 200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Who has asked is dead."""


def asking(port: int) -> Callable[[int, drift.Call], int]:
    """A function that asks the service."""

    def ask(item: int, call: drift.Call) -> int:
        connection = HTTPConnection("127.0.0.1", port)
        try:
            connection.request("POST", "/", str(item), {"Idempotency-Key": call.key})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise ConnectionError(f"the service says {response.status}")
        answer: int = json.loads(body)
        return answer

    return ask


def graph(ask: Callable[..., Any]) -> drift.Graph:
    made = drift.Graph(GRAPH)
    sums = made.source("numbers").scan(lambda n: n % 7, 0, lambda total, n: (total + n, total + n), name="sums")
    answers = sums.call(ask, concurrency=16, name=STEP)
    answers.scan(lambda n: n % 5, 0, lambda count, n: (count + 1, (n, count)), name="counts").sink("out")
    return made


def run(folder: Path, ask: Callable[..., Any], engine: str, **more: Any) -> drift.Run:
    state = drift.Checkpoints(folder / "state", every_s=0.02, complete_logs=True)
    workers = {"workers": WORKERS} if engine == "zeromq" else {}
    sinks = {"out": drift.sinks.jsonl(folder / "out.jsonl")}
    every: dict[str, Any] = {"engine": engine, "state": state, "sinks": sinks, "batch_items": 32, **workers, **more}
    return drift.run(graph(ask), {"numbers": range(ITEMS)}, **every)


def logged(folder: Path) -> dict[str, int]:
    """The answers in the log, by key."""
    log = AnswerLog(folder / "state" / "inputs" / "answers+1", "the test")
    log.open_to_read(b"")
    log.close()
    return {key_of(GRAPH, STEP, meta): answer for meta, (_, answer) in log._found.items()}


class Killed:
    """A run in a process of its own."""

    def __init__(self, folder: Path, port: int, engine: str) -> None:
        arguments = [sys.executable, __file__, "--run", str(folder), str(port), engine]
        self.process = subprocess.Popen(arguments, start_new_session=True)

    def kill(self) -> None:
        """The caller, and with it everything."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_worker(self, chosen: Random) -> bool:
        """One of its workers; returns whether there was one."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        workers = [int(child) for child in children if b"worker" in command_of(child)]
        try:
            os.kill(chosen.choice(workers), signal.SIGKILL)
        except (IndexError, ProcessLookupError):  # none is there, or it has ended meanwhile
            return False
        return True


def check(folder: Path, service: Service, deaths: Iterable[Collection[str]]) -> None:
    """The counts of a run that was killed, and its output, against a run without deaths that gets the same answers.

    Then replays and audits ask nothing.
    """
    again = [key for key, count in service.asked.items() if count > 1]
    died = list(deaths)
    for key in again:
        in_flight = sum(key not in before for before in died)
        assert service.asked[key] <= 1 + in_flight, f"{key} was asked {service.asked[key]} times, {in_flight} deaths"
    assert len(service.asked) == ITEMS
    answers = logged(folder)
    given = graph(lambda item, call: answers[call.key])
    expected = drift.run(given, {"numbers": range(ITEMS)}, record=folder / "record")
    wanted = [json.dumps(item.payload) for item in expected]
    found = [json.dumps(json.loads(line)["payload"]) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert found == wanted, f"{len(found)} items of output, {len(wanted)} expected"
    counts, as_asked = service.asked.copy(), graph(asking(service.port))
    assert drift.replay(folder / "record", as_asked).finish().digest == expected.digest
    assert drift.audit(folder / "record", as_asked).ok
    run(folder, asking(service.port), "local").finish()
    assert service.asked == counts, "a replay, an audit or a resumed run has asked"


def campaign(deaths: int, seed: int, *, workers: bool) -> None:
    """Runs that are killed until there were so many deaths."""
    chosen, died, requests = Random(seed), 0, Counter[int]()
    while died < deaths:
        at_once = chosen.randint(1, 2 if workers else 5)  # a worker that dies three times at one place ends its run
        with tempfile.TemporaryDirectory() as name:
            folder, moments = Path(name), iter(sorted(chosen.sample(range(1, ITEMS), min(at_once, deaths - died))))
            died += one(folder, chosen, list(moments), workers=workers, requests=requests)
        of = ", ".join(f"{count} {number} time{'s' * (number > 1)}" for number, count in sorted(requests.items()))
        print(f"{died} deaths of {'workers' if workers else 'the caller'}; asked about: {of}", flush=True)


def one(
    folder: Path, chosen: Random, moments: list[int], *, workers: bool, requests: Counter[int] | None = None
) -> int:
    """One run, somebody of which dies when so many questions have come; returns how often.

    Args:
        requests: gets how many items were asked about how often.
    """
    reached = threading.Semaphore(0)
    left = list(moments)

    def on_asked(total: int) -> None:
        if left and total >= left[0]:
            left.pop(0)
            reached.release()

    before: list[Collection[str]] = []
    with Service(chosen, on_asked) as service:
        engine = "zeromq" if workers else chosen.choice(["local", "local", "zeromq"])
        killed, died = Killed(folder, service.port, engine), 0
        for _ in moments:
            while not reached.acquire(timeout=0.05):
                if killed.process.poll() is not None:
                    break
            if killed.process.poll() is not None:
                break
            if workers:
                died += killed.kill_worker(chosen)
                continue
            killed.kill()
            before.append(logged(folder))
            died += 1
            killed = Killed(folder, service.port, engine)
        assert killed.process.wait() == 0
        check(folder, service, before)
    if requests is not None:
        requests.update(service.asked.values())
    return died


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        folder, port, engine = sys.argv[2:]
        run(Path(folder), asking(int(port)), engine).finish()
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("deaths", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", choices=["caller", "workers", "both"], default="both")
    options = parser.parse_args()
    for workers in {"caller": [False], "workers": [True], "both": [False, True]}[options.of]:
        campaign(options.deaths, options.seed, workers=workers)


if __name__ == "__main__":
    main()
