"""The types of the compiled module; its functions are described where they are, in the .pyx files."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from typing_extensions import Buffer

_Twin = Callable[[Any], bytes]
_PlanOf = Callable[[type], tuple[int, bytes, tuple[str, ...], tuple[bytes, ...], frozenset[str] | None] | None]

class Column:
    def __init__(
        self,
        kind: str,
        width: int,
        start: int,
        count: int,
        valid: Buffer | None,
        data: Buffer,
        others: Iterable[Buffer] = (),
    ) -> None: ...

#: Constants, columns, and extensions: a code and pieces.
Piece: TypeAlias = bytes | Column | tuple[int, "Sequence[Piece]"]

class RowForms:
    def __init__(
        self, pieces: Sequence[Piece], count: int, twin: _Twin, whole: _Twin, plan_of: _PlanOf, in_order: bool
    ) -> None: ...
    def joined(self, start: int, end: int) -> bytes: ...
    def each(self, start: int, end: int) -> list[bytes]: ...
    def hashes(self, start: int, end: int) -> bytes: ...
    def remainders(self, start: int, end: int, count: int) -> bytes: ...

_Column: TypeAlias = Column
_RowForms: TypeAlias = RowForms

class Kernel(Protocol):
    """The module."""

    #: The checksum of the sources that it was built from.
    SOURCE: int

    # hash.pyx
    def xxh64(self, data: bytes) -> int: ...
    def xxh3_64(self, data: bytes) -> int: ...
    def xxh3_128(self, data: bytes) -> bytes: ...

    # encode.pyx
    def encode(
        self, values: Iterable[Any], twin: _Twin, whole: _Twin, plan_of: _PlanOf, in_order: bool
    ) -> tuple[bytes, bytes, int]: ...
    def encode_joined(
        self, values: Iterable[Any], twin: _Twin, whole: _Twin, plan_of: _PlanOf, in_order: bool
    ) -> tuple[bytes, int]: ...
    def encode_blocks(
        self, values: list[Any], first: int, size: int, twin: _Twin, whole: _Twin, plan_of: _PlanOf, in_order: bool
    ) -> list[tuple[bytes, int]]: ...
    def encode_one(self, value: Any, twin: _Twin, whole: _Twin, plan_of: _PlanOf, in_order: bool) -> bytes: ...
    def encode_each(
        self, values: Iterable[Any], twin: _Twin, whole: _Twin, plan_of: _PlanOf, in_order: bool
    ) -> list[bytes]: ...
    def hash_each(
        self, values: Iterable[Any], twin: _Twin, whole: _Twin, plan_of: _PlanOf, in_order: bool
    ) -> bytes: ...

    # keys.pyx
    def codes_of_views(self, views: Buffer, start: int, count: int) -> tuple[Buffer, Buffer] | None: ...
    def are_identities(self, keys: Iterable[Any]) -> bool: ...

    # walks.pyx
    def are_unchangeable(self, values: list[Any], kinds: frozenset[type]) -> bool | None: ...
    def called(
        self, function: Callable[[Any], Any], values: list[Any], unsigned: bool
    ) -> tuple[Any, BaseException | None]: ...
    def taken(self, values: list[Any], order: Any) -> list[Any]: ...
    def in_turn(self, parts: list[list[Any]], owners: bytes) -> list[Any]: ...
    def called_up_to(self, function: Callable[[Any], Any], values: list[Any], kinds: frozenset[type]) -> list[Any]: ...
    def kept(self, function: Callable[[Any], Any], values: list[Any]) -> bytes: ...
    def scan(
        self,
        step: Callable[[Any, Any], Any],
        pair_of: Callable[[Any], tuple[Any, Any]],
        states: dict[Any, Any],
        keys: list[Any],
        payloads: list[Any],
        initial: Any,
        give: Callable[[Any], None],
        kinds: frozenset[type],
        noted: Callable[[tuple[Any, Any]], tuple[Callable[..., Any], bool]] | None,
    ) -> None: ...
    def are_fresh(self, values: list[Any], kinds: frozenset[type]) -> bool: ...
    def dicts_of(self, names: list[str], columns: list[list[Any]], count: int) -> list[dict[str, Any]]: ...

    #: What is in values, and whether it still is; see there.
    Contents: Any
    #: The step of a scan, whose results are noted; see there.
    NotedCalls: Any

    # arrow.pyx
    Column: type[_Column]
    RowForms: type[_RowForms]
    def values_column(self, values: list[Any]) -> _Column: ...
    def coded_column(self, forms: list[bytes], codes: Buffer, count: int) -> _Column: ...
    def joined_in_turn(self, parts: list[list[bytes] | tuple[_RowForms, int]], owners: bytes) -> bytes: ...

    # metas.pyx
    #: Its methods are those of `drift_graph.metas.ListedMetas`.
    Metas: Any
    #: Its methods are those of `drift_graph.stamp_counts.ListedStamps`.
    Stamps: Any
    def late_of(
        self, times: Any, greatest: int, least: int, lateness: int
    ) -> tuple[list[tuple[int, int, int]], int]: ...

    # loops.pyx
    #: Of one aggregate, by cell; see there.
    Accumulators: Any
    #: The open sessions of keys; see there.
    Sessions: Any
    #: The open windows of keys, all of one end; see there.
    Windows: Any
    #: The windows by number of keys; see there.
    NumberedWindows: Any
    def codes_of(self, keys: Sequence[Any]) -> tuple[Buffer, list[Any]]: ...

    # running.pyx
    def rolled(self, values: Any, known: Any, firsts: Any, stops: Any, made: Any, counts: Any, kind: str) -> None: ...
