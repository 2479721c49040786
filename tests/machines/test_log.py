from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import pytest

from drift.machines.log import History, Log
from drift_graph.meta import pack_time


class Columnar(Sequence[int]):
    """Payloads that are made together; one by one each would cost as much as all."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...

    def __getitem__(self, at: int | slice) -> Any:
        assert isinstance(at, slice), "one payload is asked for"
        return Columnar(self._numbers[at])


@pytest.mark.parametrize("rewinds", [False, True])
def test_logged_rows_in_columns_are_made_together(rewinds: bool) -> None:
    log, rows = Log(lambda key, before, rows: before), 2000
    metas, keys = [pack_time(at) for at in range(rows)], [at % 10 for at in range(rows)]
    payloads: Any = Columnar(list(range(rows)))
    log.append(metas, keys, payloads, [None] * rows, dict.fromkeys(range(10), 0))
    if rewinds:
        rows = 1500
        log.rewind(pack_time(rows))
    history = History()
    log.draw(3, history)
    assert [row.subject for row in history.rows] == list(range(3, rows, 10))
