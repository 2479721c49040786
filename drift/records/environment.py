"""Where a run runs: versions of what it is made of."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any


def environment() -> dict[str, Any]:
    """Versions of drift, Python, the machine and the packages; takes a tenth of a second."""
    packages = {
        str(found.metadata["Name"]): found.version
        for found in importlib.metadata.distributions()
        if found.metadata["Name"]
    }
    return {
        "drift": packages.pop("drifting-state", ""),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items())),
    }
