"""FILE:NAME -> the graph of that name.

Invariant: a file's module is in `sys.modules` under its stem and its folder on `sys.path`, so that a worker process,
which is given the same path, imports the same module by the same name.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from drift.streams import Graph
from drift_graph.errors import DriftError, GraphError, SettingsError
from drift_graph.functions import is_ours
from drift_graph.graph import Dataflow


def load_dataflow(place: str) -> Dataflow:
    """The graph at "file.py:name" or "package.module:name"; the name may be left out where there is only one.

    Raises:
        SettingsError: there is no such file, module or name.
        GraphError: the graph is wrong, or the user's code raised.
    """
    module_place, name = _parted(place)
    module = load_module(module_place)
    found = _only_graph(module, module_place) if name is None else _named(module, name, module_place)
    if callable(found) and not isinstance(found, Graph):
        found = _called(found, f"{module_place}:{name}")
    if isinstance(found, Graph):
        found = found.build()
    if not isinstance(found, Dataflow):
        raise SettingsError(f"{place} is {found!r:.80}, and no drift.Graph; {_candidates_text(module)}")
    return found


def load_object(place: str) -> Any:
    """What "file.py:name" or "package.module:name" names; None where the name is left out."""
    module_place, name = _parted(place)
    module = load_module(module_place)
    return None if name is None else _named(module, name, module_place)


def full_place(place: str) -> str:
    """A graph's place that still holds in another folder: an absolute path, and the name where it was left out."""
    module_place, name = _parted(place)
    module = load_module(module_place)
    if name is None:
        name = _only_name(module, module_place)
    if Path(module_place).is_file():
        module_place = str(Path(module_place).resolve())
    return f"{module_place}:{name}"


def load_function(place: str) -> Callable[[Any], Any]:
    """The function at "file.py:name" or "package.module:name"."""
    module_place, name = _parted(place)
    if name is None:
        raise SettingsError(f"{place!r} names no function; write it as FILE:FUNCTION")
    found = _named(load_module(module_place), name, module_place)
    if not callable(found):
        raise SettingsError(f"{place} is {found!r:.80}, and no function")
    function: Callable[[Any], Any] = found
    return function


def load_module(place: str) -> ModuleType:
    """The module of a file, or of a dotted name; loaded once."""
    if place.endswith(".py") or os.sep in place or Path(place).is_file():
        return _module_of_file(Path(place))
    _put_on_path(Path.cwd())
    try:
        if importlib.util.find_spec(place) is None:
            raise ModuleNotFoundError(f"No module named {place!r}")
    except (ImportError, ValueError) as error:
        raise SettingsError(f"there is no file and no module {place!r} ({error})") from None
    module: ModuleType = _guarded(lambda: importlib.import_module(place), place)
    return module


def _parted(place: str) -> tuple[str, str | None]:
    before, colon, name = place.rpartition(":")
    if not colon or not all(part.isidentifier() for part in name.split(".")):
        return place, None
    return before, name


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise SettingsError(f"{path} {what}; give a Python file, as FILE:NAME")
    path = path.resolve()
    name = path.stem
    if "." in name:
        raise SettingsError(f"{path} cannot be imported: its name has a dot in it; rename it")
    known = sys.modules.get(name)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() == path:
            return known
        raise SettingsError(f"{path} has the name of a module that is loaded already, {known!r}; rename it")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{path} is not a Python file")
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)
    _put_on_path(path.parent)
    sys.modules[name] = module
    try:
        _guarded(lambda: loader.exec_module(module), str(path))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _called(function: Callable[..., Any], place: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise SettingsError(f"{place} takes arguments ({error}); a graph's function takes none") from None
    except ValueError:
        pass  # a function in C that has no signature
    return _guarded(function, place)


def _guarded(code: Callable[[], Any], place: str) -> Any:
    """Run the user's code; what it raises becomes a GraphError that shows the user's own frames."""
    try:
        return code()
    except DriftError:
        raise
    except (Exception, SystemExit) as error:
        failed = GraphError(f"{place} raised {type(error).__name__}: {error}")
        if trace := users_trace(error):
            failed.add_note(trace)
        raise failed from error


def users_trace(error: BaseException) -> str:
    """The frames of an exception that are in the user's files, and the line of a syntax error."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not is_ours(frame.filename) and "importlib" not in frame.filename
    ]
    lines = traceback.format_list(frames)
    if isinstance(error, SyntaxError):
        lines += traceback.format_exception_only(error)[:-1]
    return "".join(lines).rstrip()


def _named(module: ModuleType, name: str, place: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise SettingsError(f"{place} has no {name!r}; {_candidates_text(module)}")
        found = getattr(found, part)
    return found


def _only_graph(module: ModuleType, place: str) -> Any:
    return getattr(module, _only_name(module, place))


def _only_name(module: ModuleType, place: str) -> str:
    graphs = _graphs(module)
    if len(graphs) != 1:
        raise SettingsError(f"say which graph of {place}, as {place}:NAME; {_candidates_text(module)}")
    return graphs[0]


def _graphs(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, (Graph, Dataflow))]


def _candidates_text(module: ModuleType) -> str:
    functions = [
        f"{name}()"
        for name, value in vars(module).items()
        if inspect.isfunction(value) and _may_be_a_graph(value, module)
    ]
    found = [*_graphs(module), *functions]
    return f"it has {', '.join(found)}" if found else "it has no graph, and no function without arguments"


def _may_be_a_graph(function: Callable[..., Any], module: ModuleType) -> bool:
    signature = inspect.signature(function)
    try:
        signature.bind()
    except TypeError:
        return False
    returns = signature.return_annotation
    fits = returns is signature.empty or any(word in str(returns) for word in ("Graph", "Dataflow"))
    return function.__module__ == module.__name__ and fits
