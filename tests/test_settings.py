"""What a caller gives beside the graph and its input: accepted only where it means something."""

from __future__ import annotations

import math
from typing import Any

import pytest

import drift
from drift.engines.base import Settings


def numbers() -> drift.Graph:
    graph = drift.Graph("numbers")
    graph.source("numbers").sink("out")
    return graph


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"silence_max_s": math.nan}, "number of seconds above 0"),
        ({"silence_max_s": math.inf}, "number of seconds above 0"),
        ({"silence_max_s": None}, "number of seconds above 0"),
        ({"call_max_s": math.nan}, "number of seconds above 0"),
        ({"call_max_s": True}, "number of seconds above 0"),
        ({"fused": 3}, "neither True nor False"),
        ({"check_purity": 1}, "neither True nor False"),
        ({"gang": "yes"}, "neither True nor False"),
        ({"batch_items": 0}, "not an int of 1 or more"),
        ({"partitions": 0}, "not an int of 1 or more"),
        ({"transport": "udp"}, "neither 'ipc' nor 'tcp'"),
        ({"digest": "md5"}, "neither 'xxh3_128' nor 'sha256'"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_whoever_makes_the_settings(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(drift.SettingsError, match=says):
        Settings(**setting)
    with pytest.raises(drift.SettingsError, match=says):
        drift.run(numbers(), {"numbers": [1]}, **setting)


@pytest.mark.parametrize("on_late", [3, 0, [], "print"])
def test_what_takes_late_items_can_be_called(on_late: Any) -> None:
    with pytest.raises(drift.SettingsError, match="is not a function that takes a drift"):
        drift.run(numbers(), {"numbers": [1]}, on_late=on_late)
