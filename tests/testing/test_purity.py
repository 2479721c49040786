"""The purity check finds each kind of impure function, says the likely cause, and leaves pure functions alone.

The replicas' hash seeds are fixed; that of the test process is not, so that what is found here does not hang on it.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import itertools
import locale
import logging
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import settings, strategies
from test_records_cli import call
from waiting import HANG_S, processes_with, wait_until

import drift
import drift.testing
from drift.purity import PurityCheck
from drift_graph.errors import GraphError, ImpureStep

FILE = str(Path(__file__))
WORDS = ["red", "green", "blue", "black"]

seen: set[Any] = set()
calls = 0
numbers = itertools.count()
generator = random.Random(5)
system = random.SystemRandom()
cache: dict[Any, Any] = {}
ids: dict[Any, int] = {}


def repr_of_a_set(payload: Any) -> str:
    return repr(payload)


def over_a_set(payload: Any) -> list[Any]:
    return [word.upper() for word in set(payload)]


def sum_of_a_set(payload: frozenset[float]) -> float:
    total = 0.0
    for number in payload:
        total += number
    return total


def counts(payload: Any) -> Any:
    global calls
    calls += 1
    return payload, calls


def once(payload: Any) -> bool:
    new = payload not in seen
    seen.add(payload)
    return new


def numbered(payload: Any) -> Any:
    return next(numbers), payload


def clocked(payload: Any) -> Any:
    return payload, time.time()


def dated(payload: Any) -> Any:
    return payload, date.today().year


def dated_by_module(payload: Any) -> Any:
    return payload, datetime.datetime.now(datetime.UTC).date().isoformat()


def drawn(payload: Any) -> Any:
    return payload, random.randint(0, 10**9)


def drawn_this_year(payload: Any) -> Any:
    return random.randint(0, 1), date.today().year


def drawn_some_time(payload: Any) -> Any:
    return random.randint(0, 1), time.time() > 0


def from_a_generator(payload: Any) -> Any:
    return payload, generator.random()


def unique(payload: Any) -> Any:
    return payload, uuid.uuid4().hex


def addressed(payload: Any) -> Any:
    return id(payload)


def shown_address(payload: Any) -> Any:
    return repr(object())


def hashed(payload: Any) -> Any:
    return hash(payload) % 1000


def configured(payload: Any) -> Any:
    return payload, os.environ.get("DRIFT_TEST_MODE", "plain")


def owned(payload: Any) -> Any:
    return os.getpid()


def default_grows(payload: Any, known: list[Any] = []) -> Any:  # noqa: B006
    known.append(payload)
    return len(known)


def memo(payload: Any) -> Any:
    if payload not in ids:
        ids[payload] = len(ids)
    return ids[payload]


def in_folder(payload: Any) -> Any:
    return str(Path.cwd()), payload


def from_file(payload: Any) -> Any:
    return Path("pyproject.toml").exists(), payload


def in_locale(payload: float) -> str:
    return f"{payload:n} by {locale.setlocale(locale.LC_NUMERIC)}"


def local_time(payload: float) -> Any:
    return datetime.datetime.fromtimestamp(payload).isoformat()


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def tag(self, payload: Any) -> Any:
        self.count += 1
        return payload, self.count


def around() -> Callable[[Any], Any]:
    last: Any = None

    def follows(payload: Any) -> Any:
        nonlocal last
        last, before = payload, last
        return before, payload

    return follows


def raises_at_times(payload: Any) -> Any:
    global calls
    calls += 1
    if calls % 2:
        raise ValueError(payload)
    return payload


def in_thread(payload: Any) -> Any:
    return payload, threading.current_thread().name


def from_the_system(payload: Any) -> Any:
    return payload, system.random()


def secret(payload: Any) -> Any:
    return payload, secrets.token_hex(4)


def drawn_by_numpy(payload: Any) -> Any:
    return payload, float(numpy.random.rand())


def seeded_by_the_system(payload: Any) -> Any:
    return payload, float(numpy.random.default_rng().random())


def hour_of(clock: Callable[[], float], payload: Any) -> Any:
    return payload, int(clock()) // 3600


def year_of(now: Callable[[], Any], payload: Any) -> Any:
    return payload, now().year


def hour_around(clock: Callable[[], float]) -> Callable[[Any], Any]:
    def hour_of_cell(payload: Any) -> Any:
        return payload, int(clock()) // 3600

    return hour_of_cell


@dataclass(frozen=True)
class Tagged:
    tags: frozenset[Any]


class Checked:
    """One purity check for many graphs of one step, so that processes need not start for each."""

    def __init__(self, steps: list[tuple[Callable[..., Any], str]]) -> None:
        graph = drift.Graph("steps")
        self._sources = [f"source {number}" for number in range(len(steps))]
        for source, (function, method) in zip(self._sources, steps):
            getattr(graph.source(source), method)(function, name=f"of {source}").sink(f"sink of {source}")
        self.purity = PurityCheck(graph.build())

    def check(self, number: int, payloads: list[Any]) -> None:
        """As the harness does it: the reference runs, then the calls it made are made again."""
        inputs = {source: payloads if source == f"source {number}" else [] for source in self._sources}
        try:
            drift.run(self.purity.dataflow, inputs, engine="reference").finish()
        except ImpureStep:
            raise
        except drift.StepError:
            pass
        self.purity.check()


def lines() -> dict[str, str]:
    """The place of each function's last line before its return, or of its only one."""
    found = {name: each for name, each in globals().items() if hasattr(each, "__code__")} | {"tag": Counter.tag}
    later = {"counts": 2, "memo": 2}
    return {name: f"{FILE}:{each.__code__.co_firstlineno + later.get(name, 1)}" for name, each in found.items()}


IMPURE: list[tuple[Callable[..., Any], list[Any], str, str]] = [
    (repr_of_a_set, [frozenset(WORDS)], "map", "the order of a set in its input"),
    (repr_of_a_set, [Tagged(frozenset(WORDS))], "map", "the order of a set in its input"),
    (over_a_set, [WORDS], "flat_map", "the order of a set that it builds at {over_a_set}"),
    (sum_of_a_set, [frozenset({0.1 * n for n in range(40)})], "map", "the order of a set in its input"),
    (counts, ["a", "b"], "map", "has a state between calls: the global 'calls' changed at {counts}"),
    (once, ["a", "b"], "filter", "the global 'seen' changed at {once}"),
    (numbered, ["a"], "map", "the global 'numbers' changed at {numbered}"),
    (default_grows, ["a"], "map", "the default of 'known' changed"),
    (Counter().tag, ["a"], "map", "the attribute 'count' changed at {tag}"),
    (around(), ["a", "b"], "map", "the variable 'last' of the function around it changed"),
    (raises_at_times, ["a"], "map", "the global 'calls' changed"),
    (clocked, ["a"], "map", "reads the clock, time.time() at {clocked}"),
    (dated, ["a"], "map", "reads the clock, date.today() at {dated}"),
    (dated_by_module, ["a"], "map", "reads the clock, datetime.now() at {dated_by_module}"),
    (drawn, ["a"], "map", "random numbers, random.randint() at {drawn}"),
    (drawn_this_year, list(range(9)), "map", "random numbers, random.randint() at {drawn_this_year}"),
    (drawn_some_time, list(range(9)), "map", "random numbers, random.randint() at {drawn_some_time}"),
    (functools.partial(drawn), ["a"], "map", "random numbers, random.randint() at {drawn}"),
    (from_a_generator, ["a"], "map", "whose state lasts from call to call, Random.random() at {from_a_generator}"),
    (unique, ["a"], "map", "random numbers, uuid.uuid4() at {unique}"),
    (addressed, [(1, 2)], "map", "address of an object in memory, id() at {addressed}"),
    (shown_address, ["a"], "map", "the repr() of an object that has none of its own"),
    (hashed, ["text"], "map", "calls hash() at {hashed}"),
    (owned, ["a"], "map", "it reads a property of its process, os.getpid() at {owned}"),
    (configured, ["a"], "map", "the environment variable 'DRIFT_TEST_MODE' at {configured}"),
    (memo, ["a", "b"], "map", "earlier calls, or on what its module made when it was imported: the global 'ids' at"),
    (in_folder, ["a"], "map", "a file by a path that is relative to it: os.getcwd() at {in_folder}"),
    (from_file, ["a"], "map", "or a file by a path that is relative to it: os.stat() at {from_file}"),
    (local_time, [1e9], "map", "it reads the machine's time zone"),
    (in_thread, ["a"], "map", "a property of its process, threading.current_thread() at {in_thread}"),
    (from_the_system, ["a"], "map", "random numbers, SystemRandom.random() at {from_the_system}"),
    (secret, ["a"], "map", "random numbers, secrets.token_hex() at {secret}"),
    (drawn_by_numpy, ["a"], "map", "random numbers, numpy.random at {drawn_by_numpy}"),
    (seeded_by_the_system, ["a"], "map", "random numbers, numpy.random.default_rng() at {seeded_by_the_system}"),
    (functools.partial(hour_of, time.time), ["a"], "map", "reads the clock, time.time() at {hour_of}"),
    (functools.partial(year_of, datetime.datetime.now), ["a"], "map", "reads the clock, datetime.now() at {year_of}"),
    (hour_around(time.time), ["a"], "map", "reads the clock, time.time()"),
]  # fmt: skip


@pytest.fixture(scope="module")
def impure() -> Iterator[Checked]:
    steps = Checked([(function, method) for function, _, method, _ in IMPURE])
    with steps.purity:
        yield steps


@pytest.mark.parametrize("number", range(len(IMPURE)), ids=[str(likely) for *_, likely in IMPURE])
def test_what_is_not_pure_is_found_with_its_cause(number: int, impure: Checked) -> None:
    _, payloads, _, likely = IMPURE[number]
    with pytest.raises(ImpureStep) as raised:
        impure.check(number, payloads)
    message = str(raised.value)
    assert likely.format_map(lines()) in message
    assert message.startswith(f"step 'of source {number}' (") and f"at       {FILE}:" in message and "to do" in message


def test_what_each_process_makes_at_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_at_import.py").write_text(
        "import time, functools\nSTARTED = time.time_ns()\n"
        "def by_default(payload, at=time.time_ns()):\n    return payload, at\n"
        "def by_global(payload):\n    return payload, STARTED\n"
        "@functools.lru_cache\ndef once(payload):\n    return payload, time.time()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("made_at_import")
    found = {
        "by_default": "imported: the default of 'at'",
        "by_global": "imported: the global 'STARTED' at",
        "once": r"time\.time\(\)",
    }
    for name, likely in found.items():
        steps = Checked([(getattr(module, name), "map")])
        with steps.purity, pytest.raises(ImpureStep, match=likely):
            steps.check(0, ["a"])


MOVED = """
import time, zoneinfo
from drift.purity import clocks
clocks.make_movable()
import datetime as dates

def of_now():
    return [
        time.time(), time.time_ns() / 1e9, time.clock_gettime(time.CLOCK_REALTIME), time.mktime(time.localtime()),
        time.mktime(time.strptime(time.ctime())), time.mktime(time.strptime(time.asctime())),
        time.mktime(time.strptime(time.strftime("%Y-%m-%d %H:%M:%S"), "%Y-%m-%d %H:%M:%S")),
        dates.datetime.now().timestamp(), dates.datetime.now(dates.UTC).timestamp(), dates.datetime.today().timestamp(),
        dates.datetime.utcnow().replace(tzinfo=dates.UTC).timestamp(), dates.date.today().toordinal() * 86400,
        time.mktime(time.gmtime()) - time.timezone,
    ]

before = of_now()
clocks.move(clocks.SHIFT_S)
moved = [round((late - early) / clocks.SHIFT_S, 2) for early, late in zip(before, of_now())]
assert moved == [1.0] * 13, moved
for days in range(0, 400, 100):  # in summer too
    clocks.move(days * 86400.0)
    assert abs(dates.datetime.now(zoneinfo.ZoneInfo("America/New_York")).timestamp() - time.time()) < 60
assert time.gmtime(0)[0] == 1970 and time.strftime("%Y", time.gmtime(0)) == "1970" and time.asctime(time.gmtime(0))
assert type(dates.datetime.now()) is dates.datetime and not dates.datetime.now().tzinfo
"""


def test_whatever_shows_the_time_is_moved(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MOVED], env={**os.environ, "TZ": "UTC"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


# What is pure is left alone.


def logged(payload: Any) -> Any:
    logging.getLogger("drift.of a test").warning("%s", payload)
    return payload


def timed_by_another(payload: Any, clock: Callable[[], float] = time.perf_counter) -> Any:
    clock()
    return payload


@functools.cache
def remembered(payload: Any) -> Any:
    return payload * 2


def timed(payload: Any) -> Any:
    start = time.perf_counter()
    result = payload * 2
    cache["took"] = time.perf_counter() - start + datetime.datetime.now().timestamp()
    return result


def seeded(payload: Any) -> Any:
    return random.Random(drift.canonical(payload)).random()


def in_order(payload: Any) -> list[Any]:
    return sorted(set(payload))


def as_generator(payload: Any) -> Iterator[Any]:
    yield from (payload, payload)


def copies(payload: list[Any]) -> list[Any]:
    copy = list(payload)
    copy.append(1)
    return copy


def fails(payload: Any) -> Any:
    raise ValueError(payload)


def parsed(payload: str) -> Any:
    return datetime.datetime.strptime(payload, "%Y-%m-%d") - datetime.timedelta(days=1), date.fromisoformat(payload)


def tagged(payload: Any) -> Tagged:
    return Tagged(frozenset(payload))


def without_a_form(payload: Any) -> Any:
    return object()


def size(payload: Any) -> int:
    return len(payload.tags) if isinstance(payload, Tagged) else len(payload)


PURE: list[tuple[Callable[..., Any], list[Any], str]] = [
    (remembered, ["a", 1, (1.5,)], "map"),
    (list, [{"b": 1, "a": 2}, {"a": 2, "b": 1}], "map"),  # the rows of a source keep the order of their columns
    (timed, ["a", 1], "map"),
    (seeded, ["a", 1], "map"),
    (in_order, [WORDS, []], "flat_map"),
    (as_generator, WORDS, "flat_map"),
    (copies, [[], [1]], "map"),
    (fails, ["a"], "map"),
    (parsed, ["2026-11-21"], "map"),
    (tagged, [WORDS], "map"),
    (size, [Tagged(frozenset(WORDS)), {1: 2}, {*WORDS}], "map"),
    (str.split, ["a b", ""], "flat_map"),
    (len, ["a", (1, 2), {"a": 1}], "filter"),
    (lambda words: next(iter({*words}), None), [WORDS, []], "filter"),  # another word, and as true
    (float, ["nan", "-0.0", "1e300", "no"], "map"),
    (functools.partial(max, 3), [1, 5], "map"),
    (lambda payload: [payload, *WORDS], ["a"], "flat_map"),
    (logged, ["a"], "map"),
    (timed_by_another, ["a"], "map"),
]


def test_what_is_pure_passes() -> None:
    steps = Checked([(function, method) for function, _, method in PURE])
    with steps.purity:
        for number, (_, payloads, _) in enumerate(PURE):
            steps.check(number, payloads)
        assert steps.purity.unchecked == 0 and steps.purity.checked > len(PURE)


# Every place that takes a function.


def first_of(payload: Any) -> Any:
    return payload[0]


def extends(state: tuple[Any, ...], payload: Any) -> tuple[tuple[Any, ...], int]:
    return (*state, payload), len(state) + 1


def ticks(state: int, payload: Any) -> tuple[int, Any]:
    return state + 1, (payload, time.time_ns())


def anyhow(one: Any, other: Any) -> Any:
    return one, other, random.random()


def any_key(payload: Any) -> Any:
    return hash(payload) % 1000


def any_time(payload: Any) -> int:
    return int(time.time() * 1e6)


PLACES: dict[str, tuple[Callable[[drift.Stream[Any]], drift.Stream[Any]], drift.EventTime | None, str]] = {
    "key of a grouping": (lambda items: items.group(any_key, 2, name="it"), None, "the key of step 'it' (any_key)"),
    "key of a scan": (
        lambda items: items.scan(any_key, (), extends, name="it"), None, "the key of step 'it' (any_key)"
    ),
    "key of a count": (lambda items: items.count(any_key, name="it"), None, "the key of step 'it' (any_key)"),
    "step of a scan": (lambda items: items.scan(first_of, 0, ticks, name="it"), None, "step 'it' (scan ticks)"),
    "function of a reduce": (
        lambda items: items.reduce(lambda item: 0, anyhow, name="it"), None, "step 'it' (scan anyhow)"
    ),
    "predicate": (lambda items: items.filter(once, name="it"), None, "step 'it' (map keep once)"),
    "event time": (lambda items: items, drift.EventTime(any_time), "the time function of source 'items' (any_time)"),
    "tie": (lambda items: items, drift.EventTime(len, tie=any_key), "the tie function of source 'items' (any_key)"),
}  # fmt: skip


def placed(place: str) -> tuple[drift.Graph, str]:
    seen.clear()
    build, policy, title = PLACES[place]
    graph = drift.Graph("placed")
    build(graph.source("items", time=policy)).sink("out")
    return graph, title


@pytest.mark.parametrize("place", PLACES)
def test_a_run_checks_every_function_of_a_graph(place: str) -> None:
    graph, title = placed(place)
    engine = "local" if len(place) % 2 else "reference"
    with pytest.raises(ImpureStep) as raised:
        drift.run(graph, {"items": ["one", "two", "six"]}, engine=engine, check_purity=True).finish()
    assert str(raised.value).startswith(title)
    assert raised.value.where.startswith(FILE)
    assert raised.value.step == ("items" if "source" in title else "it")


@pytest.mark.parametrize("engine", ["local", "reference", "zeromq"])
def test_a_checked_run_gives_the_output_of_another(engine: str) -> None:
    graph = drift.Graph("pure")
    words = graph.source("lines", time=drift.EventTime(len, lateness=50, tie=str)).flat_map(str.split)
    words.filter(len).scan(first_of, (), extends).sink("sizes")
    words.count(key=str.lower).map(str).group(len, 3).sink("counts")
    lines = ["to be or", "not to be", "that is", "the question"]
    plain = drift.run(graph, {"lines": lines}, engine=engine).finish()
    watched = drift.run(graph, {"lines": lines}, engine=engine, check_purity=True).finish()
    assert watched.digest == plain.digest and watched.items_out == 20


@pytest.mark.parametrize("words", [["a", "b"], ["a", "a", "b"], list("abcde")])
def test_a_run_finds_numbers_that_hang_on_the_order_of_calls(words: list[str]) -> None:
    ids.clear()
    graph = drift.Graph("numbers")
    graph.source("words").map(memo).sink("out")
    with pytest.raises(ImpureStep, match="depends on earlier calls") as raised:
        drift.run(graph, {"words": words}, check_purity=True).finish()
    assert "the global 'ids' at" in str(raised.value)


def test_a_run_finds_what_hangs_on_the_time_zone_the_locale_or_the_folder() -> None:
    for function, payload, likely in (
        (local_time, 1e9, "machine's time zone"),
        (in_folder, 1, "working directory"),
        (in_locale, 1.5, r"it reads the locale, locale\.setlocale\(\)"),
    ):
        graph = drift.Graph("places")
        graph.source("items").map(function).sink("out")
        with pytest.raises(ImpureStep, match=likely):
            drift.run(graph, {"items": [payload]}, check_purity=True).finish()


AWAY = """
import os, tempfile
from drift.engines.surroundings import surroundings
from drift.purity.replica import go_elsewhere

home = surroundings()

def refused():
    raise AssertionError("Python finds that folder by making a file in it, which stays if the process ends just then")

tempfile.gettempdir = refused
go_elsewhere(home)
print(os.getcwd())
"""


def test_a_process_that_goes_elsewhere_is_told_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", AWAY]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / "temporary"), "")


def test_two_workers_that_would_give_two_answers_are_found_out() -> None:
    """What once made a law of ours fail: a set that holds a text has another order in another worker."""
    graph = drift.Graph("story")
    graph.source("items").map(lambda item: frozenset({item, str(item)})).map(repr, name="shown").sink("out")
    with pytest.raises(ImpureStep, match=r"step 'shown'[^!]*order of a set in its input"):
        run = drift.run(graph, {"items": range(64)}, engine="zeromq", workers=2, batch_items=4, check_purity=True)
        run.finish()


def test_a_share_of_the_calls_is_checked() -> None:
    graph = drift.Graph("share")
    graph.source("items").map(str).sink("out")
    with PurityCheck(graph.build(), first=3, every=10, at_once=True) as purity:
        drift.run(purity.dataflow, {"items": range(35)}, engine="reference").finish()
        assert purity.checked == 6  # 0, 1, 2 and 9, 19, 29


def test_what_cannot_be_compared_is_counted() -> None:
    graph = drift.Graph("formless")
    graph.source("items").map(without_a_form).map(type).map(str).sink("out")
    with PurityCheck(graph.build()) as purity:
        drift.run(purity.dataflow, {"items": [1, 2]}, engine="reference").finish()
        purity.check()
        assert purity.unchecked == 6 and purity.checked == 0


def test_a_finding_is_found_again() -> None:
    """Test tools run a failing example again, and must meet the same failure."""
    graph = drift.Graph("again")
    graph.source("items").map(drawn).sink("out")
    with PurityCheck(graph.build()) as purity:
        messages = set()
        for _ in range(2):
            with pytest.raises(ImpureStep) as raised:
                drift.run(purity.dataflow, {"items": ["a"]}, engine="reference").finish()
                purity.check()
            messages.add(str(raised.value))
    assert len(messages) == 1


asked: list[str] = []


def tired(item: str) -> tuple[str, bool]:
    """A replica, which is asked once about a payload, does not see it."""
    asked.append(item)
    return item, len(asked) > 30


def test_a_step_that_changes_its_answer_later_on_is_found() -> None:
    asked.clear()
    graph = drift.Graph("tired")
    graph.source("items").map(tired).sink("out")
    run = drift.run(graph, {"items": ["a"] * 60}, check_purity=True, batch_items=1)
    with pytest.raises(ImpureStep, match=r"\('a', True\)"):
        run.finish()
    assert len(asked) == 31


def test_what_was_not_compared_because_of_a_finding_is_compared_the_next_time() -> None:
    graph = drift.Graph("two")
    graph.source("items").map(repr_of_a_set, name="shown").sink("out")
    found = []
    with PurityCheck(graph.build()) as purity:
        for items in ([frozenset(WORDS), frozenset(WORDS[1:])], [frozenset(WORDS[1:])]):
            with pytest.raises(ImpureStep) as raised:
                drift.run(purity.dataflow, {"items": items}, engine="reference").finish()
                purity.check()
            found.append("'red'" in str(raised.value))
    assert found == [True, False]


def test_what_is_said_does_not_hang_on_the_hash_seed_of_the_run() -> None:
    program = (
        "import sys, drift; from drift.purity import PurityCheck; graph = drift.Graph('g');"
        "graph.source('items').map(repr).sink('out'); purity = PurityCheck(graph.build());"
        f"drift.run(purity.dataflow, {{'items': [frozenset({WORDS})]}}, engine='reference').finish(); purity.check()"
    )
    said = set()
    for hash_seed in ("1", "5", "6"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        said.add("".join(line for line in done.stderr.splitlines(True) if line.startswith("  result")))
    assert len(said) == 1 and next(iter(said)).count("result") == 2


# Processes.


#: A step that goes on for ever, but only where it is called again.
SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start background jobs with it ignored
from pathlib import Path
import drift

THERE = Path("there").resolve()

def slow(payload):
    if payload == 3 and os.environ["PYTHONHASHSEED"] == "1":
        THERE.touch()
        time.sleep(1000)
    return payload

graph = drift.Graph("script")
graph.source("items").map(slow, name="slow").sink("out")
drift.run(graph, {"items": range(5)}, engine=sys.argv[1], batch_items=1, check_purity=True).finish()
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("engine", "number"),
    [("local", signal.SIGINT), ("local", signal.SIGKILL), ("zeromq", signal.SIGTERM), ("zeromq", signal.SIGKILL)],
)
def test_no_process_is_left(engine: str, number: signal.Signals, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "DRIFT_TEST_MARK": mark, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        [sys.executable, "script.py", engine], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    ) as script:
        wait_until((tmp_path / "there").exists, "the other process is in the call")
        assert any("drift.purity.replica" in each for each in processes_with(mark))
        script.send_signal(number)
        script.wait(HANG_S)
    wait_until(lambda: not processes_with(mark), "no process is left")


def test_a_function_that_cannot_be_sent_is_a_clear_error() -> None:
    graph = drift.Graph("locked")
    lock = threading.Lock()
    graph.source("items").map(lambda item: lock.locked(), name="held").sink("out")
    with pytest.raises(GraphError, match=r"step 'held'.*cannot be sent to other processes"):
        drift.run(graph, {"items": [1]}, check_purity=True)


def test_a_step_that_ends_its_other_process_is_a_clear_error() -> None:
    graph = drift.Graph("ends")
    me = os.getpid()
    graph.source("items").map(lambda item: os.getpid() == me or os._exit(3)).sink("out")
    with pytest.raises(drift.ProcessError, match="exit code 3"):
        drift.run(graph, {"items": [1]}, check_purity=True).finish()


def test_the_command_line_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.py").write_text(
        "import drift\ncount = 0\n\ndef tag(line):\n    global count\n    count += 1\n    return line, count\n\n"
        "graph = drift.Graph('flow')\ngraph.source('lines').map(tag).sink('out')\n"
    )
    (tmp_path / "lines.txt").write_text("a\nb\n")
    done = call("run", "flow.py:graph", "--source", "lines.txt", "--quiet", "--check-purity")
    assert done.exit_code == 4
    assert done.stderr == (
        "error: step 'map tag' (map one tag) is not pure: for equal input it gave different results\n"
        f"  at       {tmp_path}/flow.py:4\n"
        "  input    'a'\n"
        "  result   ('a', 3)    the first time\n"
        "  result   ('a', 4)    called again\n"
        f"  likely   it has a state between calls: the global 'count' changed at {tmp_path}/flow.py:6\n"
        "  to do    make it a state of the graph: use scan(key, initial, step), count or reduce\n"
        "0 items were released before this; they stand\n"
    )
    assert call("run", "flow.py:graph", "--source", "lines.txt", "--quiet").exit_code == 0


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_a_function_that_numbers_few_names_as_they_come_is_found(names: str) -> None:
    numbers_of: dict[str, int] = {}

    def numbered(word: str) -> tuple[str, int]:
        if word not in numbers_of:
            numbers_of[word] = len(numbers_of)
        return word, numbers_of[word]

    graph = drift.Graph("numbered")
    graph.source("words").map(numbered).sink("out")

    @settings(max_examples=1, database=None)
    @drift.testing.deterministic(graph, words=strategies.lists(strategies.sampled_from(names), max_size=6))
    def numbers_words() -> None: ...

    with pytest.raises(ImpureStep, match="numbered"):
        numbers_words()
