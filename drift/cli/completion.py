"""Completions of FILE:GRAPH for a shell.

Invariant: completion runs no user code. Why: the names of graphs are read from the syntax of the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem


def complete_graph(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Python files and folders; after the colon the graphs of a file, and its functions that may return one."""
    file, colon, name = incomplete.rpartition(":")
    if colon:
        return [CompletionItem(f"{file}:{each}") for each in _graphs_in(Path(file)) if each.startswith(name)]
    before = Path(incomplete)
    folder = before if incomplete.endswith("/") or not incomplete else before.parent
    start = "" if folder == before else before.name
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    fitting = [path for path in found if path.name.startswith(start) and not path.name.startswith(".")]
    return [
        CompletionItem(f"{path}/" if path.is_dir() else f"{path}:")
        for path in fitting
        if path.is_dir() or path.suffix == ".py"
    ]


def _graphs_in(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "Graph" in ast.unparse(node.returns or ast.Constant("")):
            yield node.name
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func).split(".")[-1] in ("Graph", "build"):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
