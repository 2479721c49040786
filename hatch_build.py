"""Compiles the kernel where there is a compiler; DRIFT_KERNEL=require makes failing an error, =without leaves it out.

`python hatch_build.py` builds it in place, where an editable installation finds it.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("kernel", "drift_kernel")


def translated(root: Path) -> Path:
    """The C of the kernel, made anew where Cython is there; its first line is the checksum of the sources."""
    folder, checksum = root / FOLDER, 0
    made, new = folder / "_kernel.c", folder / f"_kernel.{os.getpid()}.c"
    for path in sorted([*folder.glob("*.pyx"), *folder.glob("*.h")]):
        checksum = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), checksum))
    cython = [sys.executable, "-m", "cython", "-3", str(folder / "_kernel.pyx"), "-o", str(new)]
    done = subprocess.run(cython, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        new.write_text(f"#define DRIFT_KERNEL_SOURCE {checksum}u\n{new.read_text()}")
        new.replace(made)
    elif not made.exists() or "No module named cython" not in done.stderr:
        raise OSError(f"Cython: {done.stderr.strip()}")
    return made


def compiled(root: Path) -> Path:
    """The module, beside its sources."""
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    compiler = shlex.split(os.environ.get("CC", "")) or linker[:1]
    if shutil.which(compiler[0]) is None:
        raise OSError(f"there is no {compiler[0]}")
    source = translated(root)
    made = source.with_name("_kernel" + sysconfig.get_config_var("EXT_SUFFIX"))
    flags = shlex.split(f"{sysconfig.get_config_var('CFLAGS') or ''} -g0 -O3 -fPIC {os.environ.get('CFLAGS', '')}")
    new = made.with_name(f"{os.getpid()}.so")
    includes = [f"-I{sysconfig.get_path('include')}", f"-I{root / FOLDER}"]
    command = [*compiler, *linker[1:], *flags, *includes, str(source), "-o", str(new)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{compiler[0]}: {done.stderr.strip()}")
    return new.replace(made)


def built(root: Path, make: Callable[[Path], Path], warn: Callable[[str], object]) -> Path | None:
    """What `make` makes; None where that is not wanted, or not possible and not required.

    Raises:
        OSError: it cannot be made, and DRIFT_KERNEL=require.
    """
    wanted = os.environ.get("DRIFT_KERNEL", "")
    try:
        return None if wanted == "without" and make is compiled else make(root)
    except OSError as error:
        if wanted == "require":
            raise
        warn(f"the kernel is left out, drift will be slower: {error}")
        return None


class CustomBuildHook(BuildHookInterface[Any]):
    """A wheel, also an editable one, gets the module, and a source distribution its C."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        make = translated if self.target_name == "sdist" else compiled
        made = built(Path(self.root), make, self.app.display_warning)
        if made is not None:
            build_data["artifacts"].append(f"/{FOLDER.as_posix()}/{made.name}")
        if made is not None and self.target_name == "wheel":
            build_data["infer_tag"], build_data["pure_python"] = True, False


if __name__ == "__main__":
    built(Path(__file__).parent, compiled, print)
