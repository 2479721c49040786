"""What a run is made of: its plan, which is values, and what is open of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from drift.all_engines import EngineKind
from drift.calling.asks import Calls
from drift.engines.base import Engine
from drift.engines.feed import Feed
from drift.engines.settings import Settings
from drift.guarantees import Guarantee
from drift.running.sinks import Sinks
from drift.segments.answers import AnswersOfRun
from drift.state.run_checkpoints import RunCheckpoints
from drift.state.settings import Checkpoints
from drift.urls import secrets_of
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.policies import TimePolicy

if TYPE_CHECKING:
    from drift.purity import PurityCheck
    from drift.records.recorder import Recorder

#: Makes the input of an engine from the handler of late items and the number of items read at once.
MakeFeed = Callable[[Callable[[Late], None], int], Feed]


@dataclass(frozen=True)
class RunPlan:
    """What a run is made of.

    Attributes:
        target: "file.py:name" of the graph, for the record.
        feed: makes the input of the engine, in place of `sources`.
        until: the run ends before this position.
        answered: answers of calls in an earlier run, which are not asked for.
        sources, times, sinks, on_late, record, web, state, otel, calls, complete: see `drift.run`.
    """

    dataflow: Dataflow
    sources: Mapping[str, Any]
    engine: EngineKind
    settings: Settings
    times: Mapping[str, TimePolicy] = field(default_factory=dict)
    sinks: Mapping[str, Any] = field(default_factory=dict)
    on_late: Callable[[Late], None] | None = None
    record: Any = None
    target: str = ""
    feed: MakeFeed | None = None
    until: int | None = None
    web: int | str | None = None
    state: Checkpoints | None = None
    otel: bool = False
    calls: Calls = "ask"
    complete: bool = True
    answered: AnswersOfRun | None = None

    @cached_property
    def secrets(self) -> set[str]:
        """What no error may show."""
        return secrets_of(*self.sources.values(), *self.sinks.values(), self.state)

    @property
    def policies(self) -> dict[str, TimePolicy]:
        """The time policy of each source."""
        return {source.name: self.times.get(source.name, source.time) for source in self.dataflow.sources}


@dataclass
class Opened:
    """What is open of a run.

    Attributes:
        late: gets late items, if there is no `on_late`.
        engine: closes its feed.
        guarantee: None if the input does not come from sources.
        began_s: when the first of all this was opened.
    """

    sinks: Sinks
    feed: Feed
    engine: Engine
    late: list[Late]
    guarantee: Guarantee | None
    purity: PurityCheck | None
    recorder: Recorder | None
    run_checkpoints: RunCheckpoints | None
    began_s: float
