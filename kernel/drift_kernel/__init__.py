"""The inner loops, compiled: canonical bytes, hashes, metas and key numbers of many values in one call.

Invariant: with the kernel and without it, every answer is the same. `kernel` is the compiled module, or None where it
was not built or is left out; what calls it has beside it the plain function, the twin, that says what the call means.

Why: the same tests run both ways (`DRIFT_KERNEL=without`, `DRIFT_KERNEL=require`). The module has the checksum of the
sources that it was built from, so one that was built from other sources than those beside it is not used.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drift_kernel._kernel import Kernel

_CHOICES = ("", "require", "without")


def _checksum() -> int | None:
    """The checksum of the sources beside this file, as `hatch_build.py` has it; None in a wheel, which has none."""
    import zlib

    folder, found = os.path.dirname(__file__), None  # noqa: PTH120  # pathlib takes longer to import than all of this
    for name in sorted(os.listdir(folder)):  # noqa: PTH208
        if name.endswith((".pyx", ".h")):
            with open(os.path.join(folder, name), "rb") as file:  # noqa: PTH118, PTH123
                found = zlib.crc32(file.read(), zlib.crc32(name.encode(), found or 0))
    return found


def _load() -> tuple[Any, str]:
    """The compiled module, if it may be used, and how `drift --version` says whether it is."""
    wanted = os.environ.get("DRIFT_KERNEL", "")
    if wanted not in _CHOICES:
        raise ImportError(
            f"DRIFT_KERNEL is {wanted!r}, and it may be 'require' or 'without'; unset it to use it where it was built"
        )
    if wanted == "without":
        return None, "without the kernel (DRIFT_KERNEL=without)"
    try:
        module: Any = import_module("drift_kernel._kernel")
    except ModuleNotFoundError as error:
        if error.name != "drift_kernel._kernel":
            raise
        why = "was not built"
    else:
        if _checksum() in (None, module.SOURCE):
            return module, "with the kernel"
        why = "was built from other sources than those beside it"
        if wanted != "require":
            warnings.warn(
                f"the kernel {why} and is not used, so drift is slower; build it: make .venv/kernel",
                RuntimeWarning,
                stacklevel=2,
            )
    if wanted == "require":
        raise ImportError(f"the kernel {why}, and DRIFT_KERNEL=require; build it: make .venv/kernel")
    return None, f"without the kernel, which {why}"


#: The compiled module, or None.
kernel: Kernel | None
kernel, STATUS = _load()
