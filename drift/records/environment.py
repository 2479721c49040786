"""The environment of a run: the versions of what it uses."""

from __future__ import annotations

import platform
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_INSTALLED = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)\.dist-info")


def environment() -> dict[str, Any]:
    """Versions of drift, Python, the machine and the packages."""
    system = platform.uname()  # `platform.platform()` starts a process, and reads the whole interpreter
    return {
        "drift": str(getattr(sys.modules["drift"], "__version__", "")),  # the package of this module
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{system.system}-{system.release}-{system.machine}",
        "packages": packages(),
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What differs between two environments: a name, and its version in the one and in the other, or "none"."""
    flat = [{**each, **each["packages"]} for each in (one, other)]
    names = ["drift", "python", "platform", *sorted({*one["packages"], *other["packages"]})]
    found = [(name, *(each.get(name) or "none" for each in flat)) for name in names]
    return [(name, before, after) for name, before, after in found if before != after]


def packages() -> dict[str, str]:
    """Versions of installed packages, from the names of their folders: reading each one's metadata takes 100 ms."""
    found: dict[str, str] = {}
    for entry in sys.path:
        with suppress(OSError):  # a folder without read permission is skipped
            for path in Path(entry).glob("*.dist-info"):
                match = _INSTALLED.fullmatch(path.name)
                if match is not None:
                    found.setdefault(match["name"].lower().replace("_", "-"), match["version"])
    found.pop("drifting-state", None)
    return dict(sorted(found.items()))
