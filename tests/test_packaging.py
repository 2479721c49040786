"""What is installed: six packages with types, none of them called `graph`, and an import that is light."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from waiting import HANG_S

import drift

ROOT = Path(__file__).parents[1]
PACKAGES = {"drift", "drift_graph", "drift_acker", "drift_barrier", "drift_command", "drift_pytest"}


def python(code: str, folder: Path, *more: str) -> str:
    command = [sys.executable, *more, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    if find_spec("hatchling"):
        command.append("--no-build-isolation")  # then no network is needed
    subprocess.run(command, check=True, timeout=HANG_S)
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_holds_the_six_packages_with_their_types_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert {f"{package}/__init__.py" for package in PACKAGES} <= set(names)


def test_a_wheel_holds_every_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in sorted(PACKAGES):
        (folder,) = [found for found in (ROOT / package, *ROOT.glob(f"*/{package}")) if found.is_dir()]
        modules = {f"{package}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*.py")}
        assert modules <= names


def test_a_wheel_runs_a_graph_next_to_a_users_own_graph_module(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text("import drift\ngraph = drift.Graph('mine')\ngraph.source('n').sink('out')\n")
    (tmp_path / "acker.py").write_text("raise ImportError('drift took my acker for its own')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import drift, drift_graph, graph\n"
        f"assert drift.__file__.startswith({str(wheel)!r}), drift.__file__\n"
        f"assert drift_graph.__file__.startswith({str(wheel)!r}), drift_graph.__file__\n"
        "print([item.payload for item in drift.run(graph.graph, {'n': [1, 2]})])"
    )
    assert python(code, tmp_path) == "[1, 2]"


@pytest.mark.parametrize("heavy", ["zmq", "pyspark", "pandas", "click", "rich", "cloudpickle", "multiprocessing"])
def test_importing_drift_does_not_import(heavy: str, tmp_path: Path) -> None:
    assert python(f"import sys, drift; print({heavy!r} in sys.modules)", tmp_path) == "False"


def test_a_run_on_the_local_engine_imports_neither_zeromq_nor_spark(tmp_path: Path) -> None:
    code = (
        "import sys, drift; graph = drift.Graph('g'); graph.source('n').sink('out');"
        "drift.run(graph, {'n': [1]}).finish(); print(sorted({'zmq', 'pyspark'} & set(sys.modules)))"
    )
    assert python(code, tmp_path) == "[]"


def test_the_version_is_that_of_the_package(wheel: Path) -> None:
    assert drift.__version__ == metadata.version("drifting-state") == wheel.name.split("-")[1]


def test_everything_in_all_is_there_and_sorted() -> None:
    assert [name for name in drift.__all__ if not hasattr(drift, name)] == []
    assert drift.__all__ == sorted(drift.__all__)
