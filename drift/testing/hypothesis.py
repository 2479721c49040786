"""Hypothesis, or an error that says how to get it."""

from __future__ import annotations

from drift_graph.errors import SettingsError

try:
    from hypothesis import HealthCheck, Phase, example, given, seed, settings
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise SettingsError(
        "drift.testing draws inputs and schedules with Hypothesis, which is not installed: "
        "pip install 'drifting-state[test]'"
    ) from None

__all__ = ["HealthCheck", "Phase", "example", "given", "seed", "settings", "st"]
