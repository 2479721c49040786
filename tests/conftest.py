"""What every test has: how Hypothesis looks, who runs with whom, one session of Spark, what may be left behind.

The verdict of a test is the same each time: Hypothesis draws the same examples for the same code, few of them, since
each law is drawn on several graphs and engines. DRIFT_TESTS=anew has it draw others, six times as many; =long so many
that it takes a night; =breakages is for finding a failure, not for shrinking it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from spark_archive import options
from waiting import HANG_S

import drift
import drift_kernel
from drift.engines.zeromq import engine as zeromq_engine

_common = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
}
settings.register_profile("usual", max_examples=25, database=None, derandomize=True, **_common)  # type: ignore[arg-type]
settings.register_profile("anew", max_examples=150, **_common)  # type: ignore[arg-type]
settings.register_profile("long", max_examples=5000, **_common)  # type: ignore[arg-type]
settings.register_profile(
    "breakages",
    max_examples=150,
    phases=[Phase.explicit, Phase.generate],
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    **_common,  # type: ignore[arg-type]
)
settings.load_profile(os.environ.get("DRIFT_TESTS", "usual"))

# What a shell without job control runs in the background ignores Ctrl-C; children inherit that, and tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", options())
zeromq_engine._START_S = HANG_S  # that a busy machine starts a worker slowly is no verdict

# Tests, and children of theirs, import what is beside them and what is in other areas.
_HERE = Path(__file__).parent
_folders = [str(_HERE), *(str(folder) for folder in sorted(_HERE.iterdir()) if any(folder.glob("test_*.py")))]
sys.path += [folder for folder in _folders if folder not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *_folders]))

_names = [path.name for path in _HERE.rglob("test_*.py")]
if twice := {name for name in _names if _names.count(name) > 1}:
    raise RuntimeError(f"each file of tests is a module of its name, and more than one is called {', '.join(twice)}")

_tree = os.environ.get("DRIFT_TREE")
if _tree is not None and not Path(drift.__file__ or "").is_relative_to(_tree):
    raise RuntimeError(f"the tests are to run on the copy in {_tree}, and drift was imported from {drift.__file__}")


# `make test` runs what is short, and of what is long smoke tests (`@pytest.mark.smoke`); `make test-all` everything;
# `pytest --part K` one of five parts of what `make test` leaves out. CI runs `make test`, and a part by its commit.
#
# In three processes (some tests wait), files stay whole, but for documents, each of which is by itself. Files that need
# a session of Spark are two units of about the same length. What takes longest goes first.

_PARTS = 5
_SESSIONS = {
    "session 1": (
        "spark",
        "spark_acceptance",
        "spark_calls",
        "spark_scans",
        "spark_streaming",
        "spark_values",
        "catalogue_operator",
        "tables",
    ),
    "session 2": (
        "spark_frames",
        "spark_going_on",
        "spark_kernels",
        "spark_later",
        "spark_laws",
        "spark_parts",
        "spark_records",
        "spark_rows",
        "spark_session",
        "spark_writing",
    ),
}
_LONG = (
    *_SESSIONS,
    "tests/spark/",
    "tests/state/test_state.py",
    "tests/rows/test_rows_resumed.py",
    "tests/engines/test_laws.py",
    "tests/testing/test_simulate.py",
    "tests/engines/test_shipping.py",
    "docs/",
    "tests/testing/test_testing.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/engines/test_zeromq.py",
    "tests/project/test_examples.py",
    "tests/engines/test_kills.py",
    "tests/testing/test_purity.py",
    "tests/engines/test_recovery.py",
    "tests/records/test_divergence.py",
    "tests/project/test_nexmark.py",
    "tests/state/test_growth.py",
    "tests/state/test_state_storage.py",
    "tests/state/test_state_laws.py",
    "tests/state/test_backfill.py",
    "tests/engines/test_hosts.py",
    "tests/engines/test_deaths.py",
    "tests/engines/test_outside_law.py",
    "tests/calls/test_calls_simulated.py",
    "tests/command/test_web.py",
    "tests/command/test_stored_runs.py",
    "tests/command/test_plots.py",
    "tests/engines/test_segments.py",
    "tests/rows/test_rows_undone.py",
    "tests/rows/test_joined_rows.py",
    "tests/project/test_benchmarks.py",
    "tests/project/test_scale.py",
    "tests/engines/test_callers.py",
    "tests/engines/test_nothing_left.py",
    "README.md",
    "tests/records/",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"run one of {_PARTS} parts of what `make test` leaves out, that of this number, whatever it is"
    parser.addoption("--part", type=int, help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or "spark" in item.nodeid.lower():
            item.add_marker(pytest.mark.spark)
        if unit_of(item.nodeid).startswith(_LONG):
            item.add_marker(pytest.mark.long)
    if (part := config.getoption("part")) is not None:
        items[:] = _of_part(part, items)

    if "DRIFT_ALONE" not in os.environ:  # what other tests left warns when it is collected: no verdict of this test
        ignored = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
        for module in {item.getparent(pytest.Module): None for item in items}:
            if module is not None and module.get_closest_marker("filterwarnings") is not None:
                module.add_marker(ignored)

    items.sort(key=lambda item: _place(unit_of(item.nodeid)))
    if "DRIFT_ALONE" in os.environ:  # test_nothing_left.py
        items[:] = [item for item in items if "nothing_left" in getattr(item, "fixturenames", ())]


def _place(unit: str) -> int:
    return next((at for at, beginning in enumerate(_LONG) if unit.startswith(beginning)), len(_LONG))


def _of_part(part: int, items: list[pytest.Item]) -> list[pytest.Item]:
    """Of the files that are long, and the documents among them, each fifth, but for their smoke tests."""

    def piece(item: pytest.Item) -> str:
        unit = unit_of(item.nodeid)
        return item.nodeid.partition("::")[0] if unit in _SESSIONS else unit

    left = [item for item in items if item.get_closest_marker("long") and not item.get_closest_marker("smoke")]
    pieces = sorted({piece(item): _place(unit_of(item.nodeid)) for item in left}.items(), key=lambda each: each[::-1])
    taken = {name for name, _ in pieces[part % _PARTS :: _PARTS]}
    return [item for item in left if piece(item) in taken]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class ByUnits(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByUnits(config, log)


def unit_of(test: str) -> str:
    """What one process runs in one go."""
    file, _, name = test.partition("::")
    stem = Path(file).stem.removeprefix("test_")
    for unit, stems in _SESSIONS.items():
        if stem in stems:
            return unit
    return name.partition("[")[2].rstrip("]") if stem == "docs" and ".md]" in name else file


@pytest.fixture(scope="module", params=["kernel", "twins"])
def with_the_kernel_and_without(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of a file run twice: as they are, and with plain code in place of each call of the kernel."""
    compiled = drift_kernel.kernel
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "twins" and compiled is not None:
            patch.setenv("DRIFT_KERNEL", "without")  # for processes that tests start
            for module in [each for name, each in sys.modules.items() if name.startswith("drift")]:
                if vars(module).get("kernel") is compiled:
                    patch.setattr(module, "kernel", None)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session on two cores for all tests of a process; where Spark cannot start, they fail."""
    from drift.spark.sessions import session

    with session("local[2]") as started:
        yield started


@pytest.fixture(autouse=True)
def modules_stay_with_their_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test imports from its temporary folder, under a name that another test may use, is gone after it."""
    known, path, folder = set(sys.modules), list(sys.path), str(tmp_path_factory.getbasetemp())
    yield
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """A test leaves no thread of drift's and no descriptor behind; what there was before may go.

    Seen only in a process of its own, which test_nothing_left.py starts: here others open and close what they like.
    """
    if "DRIFT_ALONE" not in os.environ:
        yield
        return
    threads, before = _threads(), _descriptors()
    yield
    if not _descriptors() <= before:
        gc.collect()
    assert _threads() <= threads
    assert _descriptors() <= before


def _threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("drift")}


def _descriptors() -> set[tuple[str, str]]:
    """Numbers, and what they are open for."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            found.add((path.name, os.readlink(path)))  # noqa: PTH115
    return found


# Real servers for the tests of connectors, one of each for all tests.


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    from servers import redis_server

    with redis_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    from servers import postgres_server

    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def kafka() -> Iterator[Any]:
    from servers import Kafka

    broker = Kafka()
    yield broker
    broker.close()
