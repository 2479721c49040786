"""Values that `==`, `hash` or an encoding gets wrong, from which strategies draw.

Invariant: importing this module imports no Hypothesis, so processes that only have such values start fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntFlag
from typing import Any

NAN = float("nan")


@dataclass(frozen=True)
class Noted:
    """Two that differ only in their note are equal by `==`, but not to a function that reads the note."""

    value: int
    note: str = field(default="", compare=False)


class Flags(IntFlag):
    """An enum with members that equal plain numbers, and with unknown bits."""

    A = 1
    B = 2


#: Values that `==`, `hash` or an encoding gets wrong; our own tests draw keys and states from them, too.
AWKWARD: list[Any] = [
    1, True, 1.0, 0, False, 0.0, -0.0, NAN, "1", b"1", "", None, (), (1,), (True,), (1.0,), (NAN, -0.0),
    ((1, (2, None)), "x"), 2**64, 2**63 - 1, -(2**63), -(2**63) - 1, 2**200, "\ud800", ("\udfff", 2**70),
    "\u00e9\u4e2d", [1, [2]],
    {"b": 1, "a": NAN}, frozenset({1, 2}), Decimal("1.0"), Decimal("1"), 1e300, float("inf"),
    Noted(1, "a"), Noted(1, "b"), Flags(0), Flags(8), Flags.A | Flags.B,
]  # fmt: skip
