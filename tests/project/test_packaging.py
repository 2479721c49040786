"""What is installed: seven packages with types, none of them called `graph`, and an import that is light."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from waiting import HANG_S

import drift
from drift_kernel import STATUS, kernel

ROOT = Path(__file__).parents[2]
PACKAGES = {"drift", "drift_graph", "drift_acker", "drift_barrier", "drift_kernel", "drift_command", "drift_pytest"}


def python(code: str, folder: Path, *more: str) -> str:
    command = [sys.executable, *more, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def built(folder: Path, **environment: str) -> Path:
    """A wheel of the project."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    if find_spec("hatchling") and find_spec("Cython"):
        command.append("--no-build-isolation")  # then no network is needed
    subprocess.run(command, check=True, timeout=HANG_S, env=os.environ | environment)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.mark.long
def test_without_a_compiler_the_wheel_is_pure_and_else_of_this_interpreter(wheel: Path, tmp_path: Path) -> None:
    assert (kernel is None) == wheel.name.endswith("-py3-none-any.whl")
    assert built(tmp_path, PATH="", DRIFT_KERNEL="").name.endswith("-py3-none-any.whl")


@pytest.mark.long
@pytest.mark.skipif(not find_spec("hatchling") or not find_spec("Cython"), reason="it is built with both")
def test_a_source_distribution_has_the_c_of_the_kernel_so_that_it_is_built_without_cython(tmp_path: Path) -> None:
    python(f"from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})", ROOT)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / packed.name.removesuffix(".tar.gz")
    names = {path.name for path in (folder / "kernel" / "drift_kernel").iterdir()}
    assert {"_kernel.pyx", "hash.h", "_kernel.c"} <= names and not any(name.endswith(".so") for name in names)
    (tmp_path / "sitecustomize.py").write_text(_HIDES)
    code = "import hatch_build; from pathlib import Path; print(hatch_build.compiled(Path()).name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "DRIFT_KERNEL": "require"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0 or "there is no" in done.stderr, done.stderr


def test_a_wheel_holds_the_seven_packages_with_their_types_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert {f"{package}/__init__.py" for package in PACKAGES} <= set(names)


def test_a_wheel_holds_every_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in sorted(PACKAGES):
        folder = next(found for found in (*ROOT.glob(f"*/{package}"), ROOT / package) if found.is_dir())
        modules = {f"{package}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*.py")}
        assert modules <= names


def test_a_wheel_runs_a_graph_next_to_a_users_own_graph_module(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text("import drift\ngraph = drift.Graph('mine')\ngraph.source('n').sink('out')\n")
    (tmp_path / "acker.py").write_text("raise ImportError('drift took my acker for its own')\n")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "import drift, drift_graph, drift_kernel, graph\n"
        f"assert drift.__file__.startswith({str(installed)!r}), drift.__file__\n"
        f"assert drift_graph.__file__.startswith({str(installed)!r}), drift_graph.__file__\n"
        f"assert drift_kernel.STATUS == {STATUS!r}, drift_kernel.STATUS\n"
        "print([item.payload for item in drift.run(graph.graph, {'n': [1, 2]})])"
    )
    assert python(code, tmp_path) == "[1, 2]"


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


_HIDES = """
import sys
from importlib.abc import MetaPathFinder
class Hides(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"pyspark", "pandas", "pyarrow", "numpy", "cython"}:
            raise ModuleNotFoundError(f"No module named {name}", name=name)
sys.meta_path.insert(0, Hides())
"""
_LIGHT = """
import sys, drift
graph = drift.Graph("light")
graph.source("lines").flat_map(str.split).count(key=str.lower).sink("counts")
lines = {"lines": ["to be or", "not to be"]}
print(*{drift.run(graph, lines, engine=engine).finish().digest for engine in ("local", "reference", "zeromq")})
for asked in (
    lambda: drift.run(graph, lines, engine="spark"),
    lambda: drift.spark.session(),
    lambda: drift.spark.dataframe(graph, lines),
    lambda: drift.spark.stream(graph, lines, checkpoint="nowhere"),
    lambda: drift.run(graph, lines, record="nowhere"),
    lambda: drift.audit("nowhere"),
):
    try:
        asked()
    except drift.SettingsError as error:
        print(str(error).partition(": ")[2])
"""


def light(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command, and the processes that it starts, without the libraries of the extras."""
    (tmp_path / "sitecustomize.py").write_text(_HIDES)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG_S
    )


def test_without_the_extras_three_engines_run_and_what_needs_more_says_what_to_install(tmp_path: Path) -> None:
    done = light(tmp_path, "-c", _LIGHT)
    assert done.returncode == 0, done.stderr
    digests, *printed = done.stdout.splitlines()
    assert len(digests.split()) == 1
    assert printed == ["pip install 'drifting-state[spark]'"] * 4 + ["pip install 'drifting-state[records]'"] * 2


def test_without_the_extras_the_command_runs_and_what_needs_more_says_what_to_install(tmp_path: Path) -> None:
    hamlet = ("examples/wordcount.py:graph", "--source", "examples/data/hamlet.txt.gz", "--quiet", "--digest")
    assert len(light(tmp_path, "-m", "drift", "run", *hamlet).stdout.strip()) == 32
    for extra, command in (
        ("spark", ("run", *hamlet, "--engine", "spark")),
        ("records", ("run", *hamlet, "--record", str(tmp_path / "record"))),
        ("records", ("replay", "examples")),
        ("records", ("audit", "examples")),
        ("records", ("explain", "examples", "--position", "0")),
        ("records", ("diff", "examples", "tests")),
    ):
        done = light(tmp_path, "-m", "drift", *command)
        assert done.returncode == 2 and f"pip install 'drifting-state[{extra}]'" in done.stderr, (command, done.stderr)


def test_what_is_installed_by_default_is_light(wheel: Path) -> None:
    (printed,) = metadata.distributions(name="drifting-state", path=[str(wheel)])
    always = [each for each in printed.requires or [] if "extra ==" not in each]
    names = {re.split(r"[^\w-]", each)[0] for each in always}
    assert names & {"pyspark", "pandas", "pyarrow", "numpy"} == set() and "msgspec" in names


def test_dir_shows_every_public_name() -> None:
    assert {name for name in dir(drift) if not name.startswith("_")} == {*drift.__all__, "testing"}
    assert all(hasattr(drift, name) for name in dir(drift))


@pytest.mark.parametrize("part", [drift.agg, drift.windows, drift.sinks, drift.sources])
def test_the_parts_of_drift_list_what_they_have_for_users(part: ModuleType) -> None:
    assert dir(part) == sorted(part.__all__)
    assert all(getattr(part, name).__doc__ for name in dir(part))


def test_a_module_of_drift_does_not_take_the_place_of_a_public_name(tmp_path: Path) -> None:
    code = (
        "import drift, pkgutil, importlib\n"
        "for module in pkgutil.iter_modules(drift.__path__):\n"
        "    if module.name != '__main__': importlib.import_module(f'drift.{module.name}')\n"
        "print(sorted(name for name in drift.__all__ if type(getattr(drift, name)).__name__ == 'module'))"
    )
    assert python(code, tmp_path) == "['agg', 'sinks', 'sources', 'spark', 'windows']"


def test_importing_drift_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import drift; print(*sorted(set(sys.modules) - before))"
    imported = set(python(code, tmp_path).split())
    assert {name for name in imported if name.startswith("drift.")} == set()
    heavy = {"zmq", "pyspark", "pandas", "click", "rich", "cloudpickle", "multiprocessing"}
    light = {"msgspec", "dataclasses", "inspect", "socket", "subprocess", "xxhash"}  # enough to be felt
    assert imported & (heavy | light) == set()


def test_a_process_of_a_run_loads_little_before_it_is_ready(tmp_path: Path) -> None:
    code = "import sys, drift.engines.zeromq.process; print(*sorted(sys.modules))"
    imported = set(python(code, tmp_path).split())
    assert imported & {"asyncio", "ssl", "subprocess", "hashlib", "pyspark", "pandas", "click", "rich"} == set()


def test_no_text_has_marks_of_an_unresolved_merge() -> None:
    marks = tuple(mark * 7 + " " for mark in "<>|")
    kinds = {".md", ".py", ".pyx", ".toml", ".yml", ".html", ".js", ".css"}
    tops = [path for path in ROOT.iterdir() if path.name[0] != "." and path.name != "site"]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    mine = [path for path in found if path.suffix in kinds]
    assert len(mine) > 400
    found = [path for path in mine if any(line.startswith(marks) for line in path.read_text().splitlines())]
    assert not found
