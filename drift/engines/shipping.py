"""Functions on their way to other processes: a graph's, and classes of the running script that payloads belong to.

Invariant: what `packed` gives, `unpacked` rebuilds in a fresh process that was given `path()`; a class of the running
script has the same name there, so that payloads of it can be pickled by name.

Why: cloudpickle sends functions of modules by name and those of the running script by value. A module that no finder
finds by its name, as a test runner may have loaded it, is sent by value as well.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from drift_graph.errors import GraphError
from drift_graph.functions import own_folders, user_function
from drift_graph.graph import Dataflow
from drift_graph.operators import function_of, place_of

#: Whether this process is importing the user's modules to get at the work it was sent.
importing = False


def packed(dataflow: Dataflow, work: Any = None) -> bytes:
    """A dataflow, or what else holds functions of it, for another process.

    Raises:
        GraphError: a function holds on to something that cannot be sent; the message names its step.
    """
    try:
        with ExitStack() as stack:
            for module in _unfindable(filter(None, map(function_of, dataflow.operators))):
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
            data: bytes = cloudpickle.dumps((work if work is not None else dataflow, _main_classes()))
            return data
    except Exception as error:
        for operator in dataflow.operators:
            try:
                cloudpickle.dumps(operator)
            except Exception as reason:
                raise GraphError(
                    f"step {operator.step!r} (at {place_of(operator)}) cannot be sent to other processes ({reason}); "
                    f"its function holds on to something like a lock, a connection or a logger: make that inside the "
                    f"function, or use engine='local' without check_purity"
                ) from reason
        raise GraphError(f"the graph cannot be sent to other processes: {error}") from error


def unpacked(data: bytes) -> Any:
    """What `packed` was given, in the other process; it imports the modules that the functions are from."""
    global importing
    importing = True
    work, main_classes = cloudpickle.loads(data)
    importing = False
    for name, value in main_classes.items():
        setattr(sys.modules["__main__"], name, value)
    return work


#: -P keeps the current folder off the path until ours is imported: a user's types.py there is not Python's.
_PROGRAM = "import sys; sys.path += sys.argv[2:]; from {} import main; main()"


def command(module: str, argument: str) -> list[str]:
    """The command of a process that runs `main` of a module of ours; `argument` is `sys.argv[1]` there."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    folders = dict.fromkeys(str(Path(folder).parent) for folder in own_folders)
    return [sys.executable, *flags, "-P", "-c", _PROGRAM.format(module), argument, *folders]


def path() -> list[str]:
    """`sys.path` for a process that starts elsewhere."""
    return [entry or str(Path.cwd()) for entry in sys.path]


def _main_classes() -> dict[str, Any]:
    """Classes that the running script defines: other processes know them under the same name."""
    main = sys.modules["__main__"]
    classes = {name: each for name, each in vars(main).items() if isinstance(each, type)}
    return {name: each for name, each in classes.items() if each.__module__ == "__main__" and _can_be_pickled(each)}


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # whatever it says: a payload of this class will say it again
        return False
    return True


def _unfindable(functions: Iterable[Callable[..., Any]]) -> list[ModuleType]:
    """The loaded modules of functions that another process could not import by their names."""
    names = {getattr(user_function(function), "__module__", None) for function in functions}
    modules = [sys.modules[name] for name in sorted(filter(None, names)) if name in sys.modules]
    return [module for module in modules if module.__name__ != "__main__" and not _can_be_found(module)]


def _can_be_found(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    top, _, below = module.__name__.partition(".")
    for finder in sys.meta_path:
        spec = finder.find_spec(top, None)
        if spec is not None:
            return bool(below) or spec.origin is None or Path(spec.origin).resolve() == Path(file).resolve()
    return False
