"""The registry of engines: each declares its name, its settings and its abilities; other code is independent of names.

Invariant: however a run is started, its engine is registered and its settings belong to that engine.

Why: runs, replays, audits and the command line get engines only from `engine_kind`, and settings only from its
`settings_of`. A setting of another engine is refused, unless its value is what this engine does anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any

from drift.engines.base import Engine
from drift.engines.settings import Settings, default_of
from drift_graph.called import called_here
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

if TYPE_CHECKING:
    from drift.engines.feed import Feed


#: What a run takes beside the settings of its engine.
OF_EACH_RUN = ("sources", "sinks", "engine", "workers", "times", "on_late", "state", "record")


@dataclass(frozen=True)
class EngineKind:
    """An engine as the rest of the library knows it.

    Attributes:
        name: the value of `drift.run(engine=...)`.
        make: constructs the engine of a run from settings of its class; imports the engine's modules when called.
        settings: `Settings`, or a subclass with the settings of this engine.
        stores_state: whether it can resume from a checkpoint; then it is a
            `drift.state.run_checkpoints.TakesCheckpoints`.
        pauses: whether it has checkpoints before the end of its input, so that a run may pause where that is now.
        reads_frames: whether it reads Parquet files as DataFrames, where it runs.
        asks_itself: whether it asks about the items at calls, in a run without state and recorded answers; then it is
            an `Asks`. Otherwise runs cut the graph behind calls.
        output_is_elsewhere: fetching the items costs more than the run, so comparisons fetch the digest first.
    """

    name: str
    make: Callable[[Dataflow, Feed, Any], Engine]
    settings: type[Settings] = Settings
    stores_state: bool = False
    pauses: bool = False
    reads_frames: bool = False
    asks_itself: bool = False
    output_is_elsewhere: bool = False

    def has(self, setting: str) -> bool:
        return default_of(self.settings, setting) is not MISSING

    def own_settings(self) -> list[Field[Any]]:
        """The settings that only this engine has, not those of all engines."""
        return [each for each in fields(self.settings) if default_of(Settings, each.name) is MISSING]

    def settings_of(self, options: Mapping[str, Any]) -> Any:
        """Settings of its class, from keyword arguments of the caller.

        Raises:
            SettingsError: a setting belongs to no engine or to another one, or its value is invalid.
        """
        own: dict[str, Any] = {}
        for name, value in options.items():
            if self.has(name):
                own[name] = value
                continue
            others = [other for other in _kinds.values() if other.has(name)]
            if not others:
                known = ", ".join(each.name for each in fields(self.settings))
                here = called_here("run", name, [*OF_EACH_RUN, *(each.name for each in fields(self.settings))])
                raise SettingsError(f"engine {self.name!r} has no setting {name!r}{here}; it has {known}")
            if not any(_is(value, default_of(other.settings, name)) for other in others):
                engines = " or ".join(f"engine={other.name!r}" for other in others)
                raise SettingsError(
                    f"{name}={value!r:.80} is a setting of {engines}, and this run is on {self.name!r}: leave it out, "
                    f"or run it there"
                )
        return self.settings(**own)


_kinds: dict[str, EngineKind] = {}


def _is(value: Any, default: Any) -> bool:
    return isinstance(value, bool) == isinstance(default, bool) and bool(value == default)  # True is no 1


def register(kind: EngineKind) -> None:
    """Register an engine.

    Raises:
        SettingsError: another engine has the name.
    """
    if _kinds.setdefault(kind.name, kind) != kind:
        raise SettingsError(f"there is an engine {kind.name!r} already, another one; give this one another name")


def engine_names() -> tuple[str, ...]:
    """As they were registered."""
    return tuple(_kinds)


def engine_kinds() -> Iterator[EngineKind]:
    """As they were registered."""
    return iter(tuple(_kinds.values()))


def engine_kind(name: str) -> EngineKind:
    """The engine with a name.

    Raises:
        SettingsError: no engine has it.
    """
    if not isinstance(name, str) or name not in _kinds:
        raise SettingsError(f"engine={name!r}; there are {', '.join(_kinds)}")
    return _kinds[name]
