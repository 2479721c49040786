"""Hypothesis, or an error that says how to get it; and what is used of it that it does not make public.

Invariant: no other file names an attribute that Hypothesis keeps for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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

_SETTINGS, _DIGEST = "_hypothesis_internal_use_settings", "_hypothesis_internal_add_digest"
_EXAMPLES = "hypothesis_explicit_examples"


def settings_of(test: Callable[..., Any]) -> settings:
    """Those that `@settings` has put on a test, or the profile's."""
    found: settings = getattr(test, _SETTINGS, None) or settings()
    return found


def use_settings(test: Callable[..., Any], chosen: settings) -> None:
    """Have a test run with these, whatever was put on it."""
    setattr(test, _SETTINGS, chosen)


def hand_on(outer: Callable[..., Any], test: Callable[..., Any]) -> None:
    """Settings, seed and explicit examples that decorators have put around a test are the test's."""
    for name, value in vars(outer).items():
        if name.startswith(("_hypothesis", _EXAMPLES)):
            setattr(test, name, value)


def know_by(function: Callable[..., Any], name: str) -> None:
    """Failures are kept by this name; otherwise by the source of the function, which many tests may have in common."""
    setattr(function, _DIGEST, name.encode())


def complete_examples(test: Callable[..., Any], missing: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Give explicit examples the arguments that they lack.

    Args:
        missing: of the arguments that an example has, those to add.
    """
    examples = getattr(test, _EXAMPLES, ())
    if examples:
        completed = [replace(each, kwargs={**each.kwargs, **missing(each.kwargs)}) for each in examples]
        setattr(test, _EXAMPLES, completed)


__all__ = [
    "HealthCheck", "Phase", "complete_examples", "example", "given", "hand_on", "know_by", "seed", "settings",
    "settings_of", "st", "use_settings",
]  # fmt: skip
