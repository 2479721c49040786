"""A lineage for people: as a tree in a terminal, and as a Mermaid flowchart.

Invariant: a payload is never taken for markup, and every item is written out once; later occurrences show its number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from drift.auditing.lineage import Lineage, Made
from drift.flow.windows import Window
from drift.show.mermaid import escaped
from drift.show.steps import short_location
from drift_graph.functions import safe_text
from drift_graph.item import Failure
from drift_graph.meta import END, is_later

_PARENTS_SHOWN = 6
_STYLES = {"failure": "red", "state": "yellow", "input": "green", "output": "bold"}
_WIDTH = 1_000_000
CHARACTERS_MAX = 120  # of a payload


def as_tree(lineage: Lineage, *, parents_max: int = _PARENTS_SHOWN) -> Tree:
    """The output item, and below each item those it was made of, for a terminal.

    Args:
        parents_max: items of a window; for longer ones the last are shown, with the number of the others.
    """
    root = Tree("", guide_style="dim")
    shown: set[int] = set()
    todo = [(root, lineage.item)]
    while todo:
        above, made = todo.pop()
        line = Text(overflow="fold")
        line.append(shown_payload(made, CHARACTERS_MAX), _STYLES.get(made.kind, ""))
        again = made.number in shown and bool(made.made_of)
        line.append(f"  {words_of(lineage, made)}" + ("  as above" if again else ""), "dim")
        branch = above.add(line)
        if not again:
            shown.add(made.number)
            left_out = max(len(made.made_of) - parents_max, 0)
            if left_out:
                branch.add(Text(left_out_words(left_out), "dim"))
            todo += [(branch, parent) for parent in reversed(made.made_of[left_out:])]
    return root.children[0]


def as_text(lineage: Lineage) -> str:
    """The tree as plain text, an item a line."""
    return plain_text(lambda console: console.print(as_tree(lineage)))


def print_tree(lineage: Lineage) -> None:
    """To standard output; an item a line if that is not a terminal."""
    print(_text_of(lambda console: console.print(as_tree(lineage)), console_of_output()))


def console_of_output() -> Console:
    """Standard output; as wide as its lines if that is not a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def plain_text(printed: Callable[[Console], None]) -> str:
    """What is printed to a console, without colours, and without a width."""
    return _text_of(printed, Console(width=_WIDTH, no_color=True, highlight=False))


def _text_of(printed: Callable[[Console], None], console: Console) -> str:
    with console.capture() as capture:
        printed(console)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def left_out_words(count: int) -> str:
    """The text for items of a window that are not shown."""
    return f"{count:,} {'item' if count == 1 else 'items'} before these"


def shown_payload(made: Made, characters_max: int) -> str:
    """The payload on one line; for a state with its key."""
    shown = one_line(made.payload, characters_max)
    if made.kind == "timer":
        return f"timer at {made.time}, note {shown}, of key {one_line(made.key, 60)}"
    return f"state {shown} of key {one_line(made.key, 60)}" if made.kind == "state" else shown


def words_of(lineage: Lineage, made: Made) -> str:
    """The origin of an item, in words."""
    if made.kind == "input":
        return f"input {lineage.input_name(made.meta)}"
    if made.kind == "output":
        at = f", position {lineage.position:,}" if lineage.position is not None else ""
        return f"sink {made.step!r}{at}, time {made.time}"
    does = "" if made.does == made.step else f": {made.does}"
    words = f"step {made.step!r}{does} ({short_location(made.where, full=True)})"
    if made.child:
        words += f", its payload {made.child + 1}"
    if is_later(made.meta) and made.kind != "timer":
        words += _why_now(made)
    if made.starts:
        words += ", first of its key" + (" since that was forgotten" if made.anew else "")
    if made.cut:
        words += f"; {before_words(lineage, made)}, not shown"
    elif made.kind == "state":
        words += f"; {made.before:,} {'item' if made.before == 1 else 'items'} in"
    return words


def _why_now(made: Made) -> str:
    """Why a later item comes when it does."""
    window = made.payload
    if isinstance(window, Window) and not window.early and made.time == window.end - 1:
        return f", at time {made.time}, because the window [{window.start}, {window.end}) ended"
    if made.time == END:
        return ", at time END, because all input had ended"
    return f", at time {made.time}, which was set before"


def before_words(lineage: Lineage, made: Made) -> str:
    """The text for an item whose ancestors are cut."""
    first = f"the first of input {lineage.input_name(made.first)}"
    if made.kind == "state":
        return f"made of {made.before:,} {'item' if made.before == 1 else 'items'}, {first}"
    return f"made in {made.before:,} {'round' if made.before == 1 else 'rounds'} of the loop, {first}"


def one_line(payload: Any, characters_max: int) -> str:
    """A payload on one line, cut to a length."""
    if isinstance(payload, Failure):
        return f"raised {safe_text(_exception_text, payload, characters_max)}"
    text = safe_text(repr, payload, characters_max)
    return "".join(each if each.isprintable() else " " for each in text)


def _exception_text(failure: Failure) -> str:
    return failure.message.splitlines()[0].partition(" raised ")[2] or failure.kind


def as_mermaid(lineage: Lineage) -> str:
    """A flowchart from the input items down to the output item."""
    shapes = {"input": ("([", "])"), "output": ("[/", "/]"), "window": ("[[", "]]"), "state": ("{{", "}}")}
    lines = ["flowchart TD"]
    for made in lineage.items:
        before, after = shapes.get(made.kind, ("[", "]"))
        label = "<br>".join(map(escaped, (shown_payload(made, 80), words_of(lineage, made))))
        lines.append(f'    n{made.number}{before}"{label}"{after}')
    for made in lineage.items:
        lines += [f"    n{parent.number} --> n{made.number}" for parent in made.made_of]
    return "\n".join(lines) + "\n"
