"""FILE:NAME -> the graph of that name.

Invariant: a file's module is in `sys.modules` under its stem and its folder on `sys.path`, so that a worker process,
which is given the same path, imports the same module by the same name.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import signal
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


def load_dataflow(target: str) -> Dataflow:
    """The graph at "file.py:name" or "package.module:name"; the name may be left out where there is only one.

    Raises:
        SettingsError: there is no such file, module or name.
        GraphError: the graph is wrong, or the user's code raised.
    """
    module_name, name = _split(target)
    module = load_module(module_name)
    found = _named(module, name or _only_name(module, module_name), module_name)
    if callable(found) and not isinstance(found, Graph):
        found = _called(found, f"{module_name}:{name}")
    if isinstance(found, Graph):
        found = found.build()
    if not isinstance(found, Dataflow):
        raise SettingsError(f"{target} is {found!r:.80}, and no drift.Graph; {_candidates_text(module)}")
    return found


def load_object(target: str) -> Any:
    """What "file.py:name" or "package.module:name" names; None where the name is left out."""
    module_name, name = _split(target)
    module = load_module(module_name)
    return None if name is None else _named(module, name, module_name)


def absolute_target(target: str) -> str:
    """The FILE:NAME of a graph that holds in any folder: with an absolute path, and the name if it was left out."""
    module_name, name = _split(target)
    module = load_module(module_name)
    if name is None:
        name = _only_name(module, module_name)
    if Path(module_name).is_file():
        module_name = str(Path(module_name).resolve())
    return f"{module_name}:{name}"


def load_function(target: str) -> Callable[[Any], Any]:
    """The function at "file.py:name" or "package.module:name"."""
    module_name, name = _split(target)
    if name is None:
        raise SettingsError(f"{target!r} names no function; write it as FILE:FUNCTION")
    found = _named(load_module(module_name), name, module_name)
    if not callable(found):
        raise SettingsError(f"{target} is {found!r:.80}, and no function")
    function: Callable[[Any], Any] = found
    return function


def load_module(name: str) -> ModuleType:
    """The module of a file, or of a dotted name; loaded once."""
    if name.endswith(".py") or os.sep in name or Path(name).is_file():
        return _module_of_file(Path(name))
    _, colon, attribute = name.rpartition(":")
    if colon or not name:
        what = f"{attribute!r} is no name" if attribute else "no name comes after the colon" if colon else "it is empty"
        raise SettingsError(f"{name!r} names nothing: {what}; give a Python file or a module, as FILE:NAME")
    _put_on_path(Path.cwd())
    try:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
    except (ImportError, ValueError) as error:
        raise SettingsError(f"there is no file and no module {name!r} ({error})") from None
    module: ModuleType = _guarded(lambda: importlib.import_module(name), name)
    return module


def _split(target: str) -> tuple[str, str | None]:
    before, colon, name = target.rpartition(":")
    if not colon or not all(part.isidentifier() for part in name.split(".")):
        return target, None
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


def _called(function: Callable[..., Any], target: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise SettingsError(f"{target} takes arguments ({error}); a graph's function takes none") from None
    except ValueError:
        pass  # a function in C that has no signature
    return _guarded(function, target)


def _guarded(code: Callable[[], Any], target: str) -> Any:
    """Run the user's code; what it raises becomes a GraphError that shows the user's own frames."""
    try:
        return code()
    except DriftError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise  # Ctrl-C; a process that ignores it has this from the code itself
        failed = GraphError(f"{target} raised {type(error).__name__}: {error}")
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


def _named(module: ModuleType, name: str, module_name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise SettingsError(f"{module_name} has no {name!r}; {_candidates_text(module)}")
        found = getattr(found, part)
    return found


def _only_name(module: ModuleType, module_name: str) -> str:
    graphs = _graphs(module)
    if len(graphs) != 1:
        raise SettingsError(f"say which graph of {module_name}, as {module_name}:NAME; {_candidates_text(module)}")
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
