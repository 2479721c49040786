"""Settings of a run, checked when the settings object is made.

Invariant: a settings object has valid values, whoever made it: the library, the command line, the test harness.

Why: each field names the check of its values, and the constructor calls all checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Protocol

from drift_barrier.digest import Algorithm
from drift_graph.errors import SettingsError
from drift_graph.functions import safe_text
from drift_graph.numbers import why_no_int
from drift_graph.sizes import bytes_in

_ITEMS_AT_ONCE = 4096
#: A batch costs some milliseconds, however few rows it has, and a row less than a tenth of an object.
_ROWS_FOR_ITEM = 32

#: The text of what a value is not; "" if it is valid.
Check = Callable[[Any], str]


def setting(default: Any, check: Check, option: str = "", *, kind: type = str) -> Any:
    """A field of settings.

    Args:
        check: of its values.
        option: help text of its command-line option; "" for no option.
        kind: type of the option's value; a bool is a flag.
    """
    return field(default=default, metadata={"check": check, "option": option, "kind": kind})


def flag(value: Any) -> str:
    return "" if type(value) is bool else "neither True nor False"


def either(first: str, second: str) -> Check:
    """One of two words."""
    return lambda value: "" if value in (first, second) else f"neither {first!r} nor {second!r}"


def optional(check: Check) -> Check:
    """None, or a value that the check accepts."""
    return lambda value: "" if value is None else check(value)


def size(value: Any) -> str:
    found = bytes_in(value)
    return "" if found is not None and found >= 1 else "not a number of bytes, or a text such as '2 GB'"


def anything(value: Any) -> str:
    """Any value; its user checks it."""
    return ""


class _Fields(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


def checked(settings: _Fields) -> None:
    """Call the check of each field that names one.

    Raises:
        SettingsError: a value fails its check; the message names the first such field.
    """
    for each in fields(settings):
        check = each.metadata.get("check")
        if check is not None and (fault := check(getattr(settings, each.name))):
            raise SettingsError(f"{each.name}={safe_text(repr, getattr(settings, each.name), 80)} is {fault}")


def default_of(settings: type[_Fields], name: str) -> Any:
    """The default of a setting; MISSING if there is no such setting."""
    return next((each.default for each in fields(settings) if each.name == name), MISSING)


@dataclass(frozen=True)
class Settings:
    """The settings of any engine; engines have further ones in classes of their own.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> len(drift.run(graph, {"fares": [30, 9]}, digest="sha256", batch_items=100).finish().digest)
    64

    Attributes:
        digest: the hash of the run's digest.
        fused: False runs scans as the cycles they are, item by item; for comparison.
        batch_items: most items read from a source at once; with larger batches a run is faster, and may have to correct
            more. Over zeromq, per worker if the workers share a batch by its keys. None: 4,096, and 131,072 from the
            first rows on that stay columns.
        in_flight_max: most unsettled items of a source.
        check_purity: call steps again in a process with another hash seed, and end with an ImpureStep where the results
            differ.
        purity_first, purity_every: number of first calls of each function that are checked, and after them every n-th.
        counted: count what leaves each operator, and note when each process works: `Run.observed`.

    Raises:
        SettingsError: a value is invalid.
    """

    digest: Algorithm = setting("xxh3_128", either("xxh3_128", "sha256"))
    fused: bool = setting(True, flag)
    batch_items: int | None = setting(None, optional(why_no_int))
    in_flight_max: int = setting(1_000_000, why_no_int)
    check_purity: bool = setting(False, flag)
    purity_first: int = setting(100, why_no_int)
    purity_every: int = setting(10_000, why_no_int)
    counted: bool = setting(False, flag)

    def __post_init__(self) -> None:
        checked(self)

    @property
    def items_at_once(self) -> int:
        """`batch_items`, of items that are no rows in columns."""
        return self.batch_items or _ITEMS_AT_ONCE

    @property
    def rows_for_item(self) -> int:
        """How many rows in columns count as one item of a batch."""
        return 1 if self.batch_items else _ROWS_FOR_ITEM

    @property
    def workers_in_all(self) -> int:
        """Processes that share the keys."""
        return 1

    @property
    def memory_in_all(self) -> int | None:
        """The bytes that what is kept for later may take; None: no limit."""
        return None


@dataclass(frozen=True)
class StatefulSettings(Settings):
    """Settings of engines whose states may be larger than memory ("local", "zeromq"), in addition to those of all.

    Attributes:
        memory_max: how much memory the states of keys may take in all workers, as an estimate: a number of bytes, or a
            text such as "2 GB". States of keys without items lately are then dropped to files in the folder for
            temporary files, and come back with an item of their key. So is the input of a source with lateness="all",
            while it is sorted. None for all in memory.
    """

    memory_max: int | str | None = setting(
        None, optional(size), "Memory for states of keys, such as '2 GB'; the rest is on disk (local, zeromq)."
    )

    @property
    def memory_in_all(self) -> int | None:
        return None if self.memory_max is None else bytes_in(self.memory_max)

    @property
    def memory_of_worker(self) -> int | None:
        """The bytes that the states in one worker may take."""
        in_all = self.memory_in_all
        return None if in_all is None else max(in_all // self.workers_in_all, 1)
