"""The functions in the graphs of the oracle: pure, and at the top level, so that processes of a run find them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal

import drift

Row = dict[str, Any]


def weight(value: Any) -> int:
    """A number that depends on all of a value, and on its types."""
    return zlib.crc32(repr(value).encode("utf-8", "surrogatepass"))


# Rows: see `inputs.py` for their fields.


def cents(row: Row) -> int:
    return row["n"] * 100 + 5


def key_of(row: Row) -> Any:
    return row["key"]


def mixed_key(row: Row) -> Any:
    """Keys of several types, some of them equal by `==`."""
    return (row["key"], row["n"] % 3, (1, True, 1.0)[row["n"] % 3], None, (row["key"], row["n"] % 2))[row["id"] % 5]


def is_odd(row: Row) -> int:
    return row["n"] % 2


def is_large(row: Row) -> bool:
    return row["n"] > 5


def total_of(row: Row) -> Any:
    return {"of": row["key"], "sum": row["n"] * 3 - 1}


def sized(row: Row) -> list[Row]:
    return [{**row, "part": at} for at in range(row["n"] % 3)]


def numbers_of(row: Row) -> list[int]:
    return list(range(row["n"] % 4))


def tuple_of(row: Row) -> tuple[Any, ...]:
    return row["key"], row["n"], row["fare"]


def with_time(row: Row, time: int) -> tuple[int, Any]:
    return time, row["id"]


def bill(total: int, row: Row) -> tuple[int, Any]:
    total = (total * 3 + row["n"]) % 1009
    return total, (row["key"], total)


def merging(state: int, row: Row) -> tuple[int, Any]:
    """States of different pasts are often the same, so that corrections stop early."""
    state = max(state, row["n"]) if row["id"] % 4 else 0
    return state, (state, row["id"])


def silent(state: int, row: Row) -> tuple[int, Any]:
    """Few different outputs: most corrections change nothing."""
    return state + 1, state > 3


def larger(left: Row, right: Row) -> Row:
    return left if (left["n"], left["id"]) >= (right["n"], right["id"]) else right


def median(values: tuple[int, ...]) -> float:
    ordered, middle = sorted(values), (len(values) - 1) / 2
    below = ordered[int(middle)]
    return below if middle == int(middle) else below + (ordered[int(middle) + 1] - below) * 0.5


def ordered(total: int, row: Row) -> int:
    """A number that depends on the order of rows."""
    return (total * 31 + row["n"] + 1) % 65_521


def plus(left: int, right: int) -> int:
    return left + right


def counted(total: int, row: Row) -> int:
    return total + row["n"]


def rule(row: Row) -> Literal["open", "go on", "close", "skip"]:
    words: tuple[Literal["open", "go on", "close", "skip"], ...] = ("open", "go on", "close", "skip", "go on")
    return words[row["n"] % 5]


def window_as_row(window: drift.Window[Any, Any]) -> tuple[Any, ...]:
    return window.key, window.start, window.end, window.value, window.early


def value_of_pair(pair: tuple[Any, Any]) -> Any:
    left, right = pair
    return (left and left["id"], right and right["id"])


def left_of(pair: tuple[Any, Any]) -> Any:
    return pair[0]


# Later items and timers.


def reminded(row: Row, time: int) -> list[Any]:
    """The row's number, one later, one at the end."""
    weighed = weight(row["id"])
    family: list[Any] = [
        row["id"],
        drift.at(time + weighed % 9, ("later", row["id"])),
        drift.at(drift.END, ("end", row["n"])),
    ]
    return family[: 1 + weighed % 3]


def seen(state: tuple[int, ...], row: Row, time: int) -> tuple[tuple[int, ...], list[Any]]:
    """A timer some time after the first row of a key, and one at the end for some."""
    outputs: list[Any] = [(row["key"], len(state))] if row["n"] % 2 else []
    if not state:
        outputs.append(drift.at(time + 5 + row["n"], row["key"]))
    if row["n"] == 7:
        outputs.append(drift.at(drift.END, "end"))
    return (*state, row["id"])[-4:], outputs


def gone(state: tuple[int, ...], note: Any, time: int) -> tuple[tuple[int, ...], list[Any]]:
    return (), [(note, state, -1 if time == drift.END else time)]


def counting_down(state: int, row: Row, time: int) -> tuple[int, list[Any]]:
    return state + 1, [drift.at(time + row["n"] % 4, row["n"] % 4)]


def again_and_again(state: int, note: int, time: int) -> tuple[int, list[Any]]:
    """Timers that set timers."""
    following = [drift.at(time + 1 + state % 3, note - 1)] if note > 0 else []
    return (state * 3 + note) % 7, [("note", note, state), *following]


# A user's operators.


@dataclass(frozen=True)
class EveryNth(drift.Logic[Row, int, Any]):
    """Every n-th row of a key."""

    n: int
    initial = 0

    def key(self, payload: Row) -> Any:
        return payload["key"]

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[Row], out: drift.Out[Any]) -> None:
        for key, row, _ in rows:
            states[key] = (states[key] + 1) % self.n
            out([] if states[key] else [row])


@dataclass(frozen=True)
class Peaks(drift.Logic[Row, float, Any]):
    """Each row that is dearer than all before it; the state of a key goes where a row is free."""

    initial = -1.0

    def key(self, payload: Row) -> Any:
        return payload["key"]

    def on_batch(self, states: dict[Any, float], rows: drift.Rows[Row], out: drift.Out[Any]) -> None:
        for key, row, _ in rows:
            if row["n"] == 0:
                del states[key]
                out([])
            elif row["fare"] > states[key]:
                states[key] = row["fare"]
                out([(row["id"], row["fare"])])
            else:
                out([])


@dataclass(frozen=True)
class Visits(drift.Logic[Row, int, Any]):
    """How many rows a key had until none came for some time."""

    gap: int
    initial = 0

    def key(self, payload: Row) -> Any:
        return payload["key"]

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[Row], out: drift.Out[Any]) -> None:
        for key, row, time in rows:
            states[key] += 1
            out([drift.at(time + self.gap, (row["key"], states[key]))])

    def on_timers(self, states: dict[Any, int], due: drift.Rows[Any], out: drift.Out[Any]) -> None:
        for key, (name, count), time in due:
            if states[key] == count:
                del states[key]
                out([(name, count, time)])
            else:
                out([])


# Loops and rounds.


def into_loop(row: Row) -> tuple[int, int]:
    return row["n"] % 3, row["id"] % 11


def loop_key(item: tuple[int, int]) -> int:
    return item[1] % 4


def loop_key_of_window(window: tuple[tuple[int, int], ...]) -> int:
    return window[-1][1] % 3


def turned(window: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    rounds, value = window[-1]
    return [] if rounds <= 0 else [(rounds - 1, (value + len(window) + weight(window) % 5) % 11)]


def turned_by(state: int, window: tuple[tuple[int, int], ...]) -> tuple[int, tuple[int, int]]:
    rounds, value = window[-1]
    state = (state + value + 1) % 5
    return state, (rounds, (value + state) % 11)


def once_more(item: tuple[int, int]) -> list[tuple[int, int]]:
    return [(item[0] - 1, item[1])] if item[0] > 0 else []


def number_of(row: Row) -> int:
    return row["n"] + row["id"] % 7


def halved(pair: tuple[int, int]) -> list[int]:
    state, number = pair
    return [number // 2] * (1 + (state + number) % 2) if number > 1 else []


def pulled(pair: tuple[int, int]) -> int:
    state, number = pair
    return (state + number * 3) % 101


def folded(state: int, number: int) -> int:
    return (state * 7 + number) % 1009


def is_settled(state: int) -> bool:
    return state % 5 == 0


# Calls.


def asked(row: Row) -> Any:
    return {"of": row["id"], "answer": row["n"] * row["n"]}


def asked_together(rows: list[Row]) -> list[Any]:
    return [(row["id"], row["n"] + 1) for row in rows]


def asked_in_vain(row: Row) -> Any:
    if row["n"] % 4 == 3:
        raise ValueError(f"no answer about {row['n']}")
    return row["id"]


# Functions that fail.


def failing(row: Row) -> Any:
    if row["n"] == 9:
        raise ValueError(f"no {row['n']} please")
    return row["id"], row["n"]


def failing_iterator(row: Row) -> Any:
    yield row["id"]
    yield failing(row)


def failing_key(row: Row) -> Any:
    if row["n"] == 9:
        raise KeyError("nine")
    return row["key"]


def failing_step(state: int, row: Row) -> tuple[int, Any]:
    return state + 1, 10 // (row["n"] - 9) + state


def failing_later(row: Row) -> Any:
    if row["id"] == 60:
        raise ValueError("sixty")
    return row


# Whole tables.


def doubled(table: Any) -> Any:
    return table.with_columns(twice=table["n"] * 2, halved=table["fare"] / 2)
