"""Imports Hypothesis, or raises an error that says how to install it; and wraps its private attributes.

Invariant: no other file names a private attribute of Hypothesis.
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
    """The settings of a test from `@settings`, or else the profile's."""
    found: settings = getattr(test, _SETTINGS, None) or settings()
    return found


def use_settings(test: Callable[..., Any], chosen: settings) -> None:
    """Make a test run with these settings, whatever `@settings` says."""
    setattr(test, _SETTINGS, chosen)


def hand_on(outer: Callable[..., Any], test: Callable[..., Any]) -> None:
    """Copy the settings, seed and explicit examples of decorators around `outer` to the test."""
    for name, value in vars(outer).items():
        if name.startswith(("_hypothesis", _EXAMPLES)):
            setattr(test, name, value)


def know_by(function: Callable[..., Any], name: str) -> None:
    """Store failures under this name; by default it is the source of the function, which many tests may share."""
    setattr(function, _DIGEST, name.encode())


def complete_examples(test: Callable[..., Any], missing: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Give explicit examples the arguments that they lack.

    Args:
        missing: the arguments to add, from those that an example has.
    """
    examples = getattr(test, _EXAMPLES, ())
    if examples:
        completed = [replace(each, kwargs={**each.kwargs, **missing(each.kwargs)}) for each in examples]
        setattr(test, _EXAMPLES, completed)


__all__ = [
    "HealthCheck", "Phase", "complete_examples", "example", "given", "hand_on", "know_by", "seed", "settings",
    "settings_of", "st", "use_settings",
]  # fmt: skip
