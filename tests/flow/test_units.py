"""A run warns where windows are "10s" long, which is milliseconds, and times look like seconds since 1970."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

import pytest

import drift

SECONDS = [1_700_000_000 + each for each in range(30)]
MILLISECONDS = [1000 * each for each in SECONDS]


def run(windows: Any, times: list[int]) -> list[int]:
    graph = drift.Graph("units")
    source = graph.source("times", time=drift.EventTime(time=int))
    source.window(windows).count().map(lambda window: window.value).sink("out")
    return [item.payload for item in drift.run(graph, {"times": times})]


@pytest.mark.parametrize(
    "windows",
    [drift.windows.tumbling("10s"), drift.windows.sliding(10_000, timedelta(seconds=10)), drift.windows.session("1m")],
    ids=["tumbling", "sliding", "session"],
)
def test_times_in_seconds_do_not_go_with_lengths_in_words(windows: Any) -> None:
    with pytest.warns(
        UserWarning, match=r"time 17\d+: that is 1970-01-20 in milliseconds, and 2023-11-1[45] in seconds"
    ):
        run(windows, SECONDS)


@pytest.mark.parametrize(
    ("windows", "times", "counts"),
    [
        (drift.windows.tumbling(10), SECONDS, [10, 10, 10]),
        (drift.windows.tumbling("10 seconds"), MILLISECONDS, [10, 10, 10]),
        (drift.windows.tumbling("10s"), [each % 1000 for each in SECONDS], [30]),
    ],
    ids=["seconds by number", "milliseconds", "other numbers"],
)
def test_nothing_else_is_warned_of(windows: Any, times: list[int], counts: list[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(windows, times) == counts
