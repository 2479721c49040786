"""What a caller gives beside the graph and its input: accepted only where it means something."""

from __future__ import annotations

import math
from typing import Any

import pytest

import drift
from drift.all_engines import engine_kind

# what runs are made of within, and no caller gives
OF_PLANS = ("dataflow", "settings", "feed", "until", "answered", "target")


def numbers() -> drift.Graph:
    graph = drift.Graph("numbers")
    graph.source("numbers").sink("out")
    return graph


@pytest.mark.parametrize(
    ("engine", "setting", "says"),
    [
        ("zeromq", {"silence_max_s": math.nan}, "number of seconds above 0"),
        ("zeromq", {"silence_max_s": None}, "number of seconds above 0"),
        ("zeromq", {"call_max_s": math.nan}, "number of seconds above 0"),
        ("zeromq", {"call_max_s": True}, "number of seconds above 0"),
        ("local", {"fused": 3}, "neither True nor False"),
        ("reference", {"check_purity": 1}, "neither True nor False"),
        ("local", {"batch_items": 0}, "not an int of 1 or more"),
        ("spark", {"partitions": 0}, "not an int of 1 or more"),
        ("zeromq", {"transport": "udp"}, "neither 'ipc' nor 'tcp'"),
        ("local", {"digest": "md5"}, "neither 'xxh3_128' nor 'sha256'"),
        ("local", {"partitions": 2}, "partitions=2 is a setting of engine='spark', and this run is on 'local'"),
        ("local", {"workers": True}, "workers=True is a setting of engine='zeromq', and this run is on 'local'"),
        ("reference", {"workers": 2}, "workers=2 is a setting of engine='zeromq', and this run is on 'reference'"),
        ("spark", {"recover": False}, "recover=False is a setting of engine='zeromq'"),
        ("local", {"worker": 2}, "engine 'local' has no setting 'worker'; it has digest, fused, batch_items"),
        *((engine, {name: None}, f"has no setting '{name}'") for engine in ("local", "spark") for name in OF_PLANS),
        ("sparc", {}, "engine='sparc'; there are local, reference, zeromq, spark"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_whoever_makes_the_settings(
    engine: str, setting: dict[str, Any], says: str
) -> None:
    with pytest.raises(drift.SettingsError, match=says):
        engine_kind(engine).settings_of(setting)
    with pytest.raises(drift.SettingsError, match=says):
        drift.run(numbers(), {"numbers": [1]}, engine=engine, **setting)


def test_what_holds_on_every_engine_may_be_said_to_every_engine() -> None:
    run = drift.run(numbers(), {"numbers": [1]}, engine="reference", workers=1, partitions=None, transport="ipc")
    assert [item.payload for item in run] == [1]


@pytest.mark.parametrize(("setting", "says"), [({"workers": 0}, "workers=0 is not an int"), ({"fused": 2}, "fused=2")])
def test_schedules_and_simulations_refuse_what_runs_refuse(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(drift.SettingsError, match=says):
        drift.testing.Schedule(**{"workers": 1, **setting})
    with pytest.raises(drift.SettingsError, match=says):
        drift.testing.Driver(numbers(), **setting)


@pytest.mark.parametrize("on_late", [3, 0, [], "print"])
def test_what_takes_late_items_can_be_called(on_late: Any) -> None:
    with pytest.raises(drift.SettingsError, match="is not a function that takes a drift"):
        drift.run(numbers(), {"numbers": [1]}, on_late=on_late)


def test_each_worker_has_its_share_of_the_memory() -> None:
    for engine, workers, share in (("zeromq", 4, 2_000_000), ("local", 1, 8_000_000)):
        settings = engine_kind(engine).settings_of({"memory_max": "8 MB", "workers": workers})
        assert settings.memory_of_worker == share
