"""How numbers are written in the tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def table(title: str, columns: Sequence[str], caption: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(title=title, caption=caption, title_justify="left", caption_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made


def integer(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def decimals(value: float | None, places: int = 2) -> str:
    return "-" if value is None else f"{value:,.{places}f}"


def megabytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 2**20:,.0f}"


def medians(rounds: int) -> str:
    """What a number is."""
    return f"Medians of {rounds} rounds" if rounds > 1 else "One round"
