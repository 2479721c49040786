"""The registry of engines: each declares its name, its settings and its abilities; no other code knows one by name.

Invariant: whichever way a run is asked for, its engine is registered and its settings are of that engine.

Why: runs, replays, audits and the command line have engines from `engine_kind`, and settings from its `settings_of`,
alone. A setting of another engine is refused, unless it says what holds anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any

from drift.engines.base import Engine
from drift.engines.settings import Settings, default_of
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

if TYPE_CHECKING:
    from drift.engines.feed import Feed


@dataclass(frozen=True)
class EngineKind:
    """An engine, as far as others know it.

    Attributes:
        name: as `drift.run(engine=...)` says it.
        make: the engine of a run, given settings of its class; imports what it needs when it is called.
        settings: `Settings`, or a subclass with those of this engine.
        keeps_state: it can go on from a cut; then it is a `drift.state.keeping.Keeps`.
        reads_frames: it reads Parquet files as DataFrames, where it runs.
        output_is_elsewhere: bringing the items here costs more than the run; who compares it asks for the digest first.
    """

    name: str
    make: Callable[[Dataflow, Feed, Any], Engine]
    settings: type[Settings] = Settings
    keeps_state: bool = False
    reads_frames: bool = False
    output_is_elsewhere: bool = False

    def has(self, setting: str) -> bool:
        """Whether it has this setting."""
        return default_of(self.settings, setting) is not MISSING

    def own_settings(self) -> list[Field[Any]]:
        """The settings that it has beside those of all."""
        return [each for each in fields(self.settings) if default_of(Settings, each.name) is MISSING]

    def settings_of(self, given: Mapping[str, Any]) -> Any:
        """Settings of its class, of what a caller said.

        Raises:
            SettingsError: a setting is of no engine, or of another one, or its value means nothing.
        """
        own: dict[str, Any] = {}
        for name, value in given.items():
            if self.has(name):
                own[name] = value
                continue
            others = [other for other in _kinds.values() if other.has(name)]
            if not others:
                known = ", ".join(each.name for each in fields(self.settings))
                raise SettingsError(f"engine {self.name!r} has no setting {name!r}; it has {known}")
            if all(value != default_of(other.settings, name) for other in others):
                those = " or ".join(f"engine={other.name!r}" for other in others)
                raise SettingsError(
                    f"{name}={value!r:.80} is a setting of {those}, and this run is on {self.name!r}: leave it out, or "
                    f"run it there"
                )
        return self.settings(**own)


_kinds: dict[str, EngineKind] = {}


def register(kind: EngineKind) -> None:
    """From now on there is this engine.

    Raises:
        SettingsError: another has the name.
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
    """The engine of a name.

    Raises:
        SettingsError: there is none.
    """
    if name not in _kinds:
        raise SettingsError(f"engine={name!r}; there are {', '.join(_kinds)}")
    return _kinds[name]
