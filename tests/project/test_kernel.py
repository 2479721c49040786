"""The kernel's build: where there is no compiler everything works, and a module of other sources is not used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from waiting import HANG_S

from drift_kernel import STATUS, kernel

ROOT = Path(__file__).parents[2]
_PACKAGE = Path("kernel", "drift_kernel")
_SHOWN = "import drift_kernel; print(drift_kernel.STATUS)"
built = pytest.mark.skipif(kernel is None, reason="the kernel is not built here")
builds = pytest.mark.skipif(find_spec("hatchling") is None, reason="it is built with hatchling")


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in a copy of the package."""
    variables = {name: value for name, value in os.environ.items() if name not in ("DRIFT_KERNEL", "CC")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**variables, "PYTHONPATH": str(folder / "kernel"), **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package with its module and what builds it."""
    shutil.copytree(ROOT / _PACKAGE, tmp_path / _PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    return tmp_path


@built
def test_a_module_of_the_sources_beside_it_is_used_and_may_be_left_out(copy: Path) -> None:
    assert run(copy, "-c", _SHOWN, DRIFT_KERNEL="require").stdout == "with the kernel\n" == f"{STATUS}\n"
    left_out = "without the kernel (DRIFT_KERNEL=without)\n"
    assert run(copy, "-c", _SHOWN, DRIFT_KERNEL="without").stdout == left_out


@built
@pytest.mark.parametrize("name", ["_kernel.pyx", "new.h"])
def test_a_module_of_other_sources_is_not_used(copy: Path, name: str) -> None:
    with (copy / _PACKAGE / name).open("a") as file:
        file.write("# more\n")
    done = run(copy, "-W", "ignore", "-c", _SHOWN)
    assert done.stdout == "without the kernel, which was built from other sources than those beside it\n"
    assert "is not used, so drift is slower; build it: make .venv/kernel" in run(copy, "-c", _SHOWN).stderr
    done = run(copy, "-c", _SHOWN, DRIFT_KERNEL="require")
    assert "the kernel was built from other sources than those beside it, and DRIFT_KERNEL=require" in done.stderr


@built
def test_a_module_without_sources_is_that_of_a_wheel(copy: Path) -> None:
    for path in (each for each in (copy / _PACKAGE).iterdir() if each.suffix in (".pyx", ".h")):
        path.unlink()
    assert run(copy, "-c", _SHOWN).stdout == "with the kernel\n"


def test_a_choice_about_the_kernel_that_there_is_not_is_refused(copy: Path) -> None:
    done = run(copy, "-c", _SHOWN, DRIFT_KERNEL="yes")
    assert "DRIFT_KERNEL is 'yes', and it may be 'require' or 'without'" in done.stderr


@builds
def test_without_a_compiler_a_line_says_so_and_drift_does_without_the_kernel(copy: Path) -> None:
    for path in (copy / _PACKAGE).glob("*.so"):
        path.unlink()
    done = run(copy, "hatch_build.py", PATH="")
    assert done.returncode == 0 and done.stdout.startswith("the kernel is left out, drift will be slower: "), done
    assert len(done.stdout.splitlines()) == 1
    assert run(copy, "-c", _SHOWN).stdout == "without the kernel, which was not built\n"
    assert run(copy, "hatch_build.py", PATH="", DRIFT_KERNEL="require").returncode == 1
    required = run(copy, "-c", _SHOWN, DRIFT_KERNEL="require")
    assert "the kernel was not built, and DRIFT_KERNEL=require" in required.stderr
