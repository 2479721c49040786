"""Sends functions of a graph to other processes, and classes of the running script that payloads belong to.

Invariant: `unpacked` rebuilds the output of `packed` in a fresh process with the same surroundings; a class of the
running script has the same name there, so that payloads of it can be pickled by name.

Why: cloudpickle sends functions of modules by name and those of the running script by value; `by_value` adds the
objects that it cannot send. A module that no finder finds by its name, as a test runner may have loaded it, is sent by
value, too. Classes of the script are sent one by one, so a class that cannot be rebuilt only harms its users.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle

from drift.engines.by_value import dumps
from drift.engines.surroundings import Surroundings
from drift_graph.errors import GraphError
from drift_graph.functions import user_function
from drift_graph.graph import Dataflow
from drift_graph.operators import function_of, location_of

#: Whether this process is importing the user's modules to rebuild the work it was sent.
importing = False

#: Names of the running script, also in a process that `multiprocessing` has started.
_MAINS = ("__main__", "__mp_main__")


class _Shipped(NamedTuple):
    """The contents of a shipment: the work, and each class of the running script as bytes, or why it cannot be sent."""

    work: bytes
    classes: dict[str, bytes | str]


def packed(dataflow: Dataflow, work: Any = None) -> bytes:
    """A dataflow, or other work that refers to its functions, as bytes for another process.

    Raises:
        GraphError: a function refers to something that cannot be sent; the message names its step.
    """
    try:
        with ExitStack() as stack:
            for module in _unfindable(filter(None, map(function_of, dataflow.operators))):
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
            return pickle.dumps(_Shipped(dumps(work if work is not None else dataflow), _main_classes()))
    except Exception as error:
        for operator in dataflow.operators:
            try:
                dumps(operator)
            except Exception as reason:
                raise GraphError(
                    f"step {operator.step!r} (at {location_of(operator)}) cannot be sent to other processes "
                    f"({reason}); its function holds on to something like a lock, a connection or a logger: make that "
                    f"inside the function, or use engine='local' without check_purity"
                ) from reason
        raise GraphError(f"the graph cannot be sent to other processes: {error}") from error


def unpacked(data: bytes) -> Any:
    """Rebuild the argument of `packed` in the other process; this imports the modules of the functions."""
    global importing
    shipped: _Shipped = pickle.loads(data)
    main = sys.modules["__main__"]
    sys.modules["__mp_main__"] = main
    importing = True
    try:
        work = pickle.loads(shipped.work)
        vars(main)["__getattr__"] = partial(
            _unknown, {name: _rebuilt(main, name, each) for name, each in shipped.classes.items()}
        )
        return work
    finally:
        importing = False


def rebuilt(data: bytes, surroundings: Surroundings, where: str, *, same_machine: bool = True) -> Any:
    """`unpacked` in the caller's surroundings, with an error that says where it failed.

    Imported modules may change the surroundings, as they did in the caller; so these are entered again afterwards.

    Raises:
        GraphError: an object cannot be rebuilt, or a module of the user cannot be imported.
    """
    surroundings.enter(same_machine=same_machine)
    try:
        work = unpacked(data)
    except (Exception, SystemExit) as error:
        failed = GraphError(
            f"{where} could not rebuild the functions of the graph: {type(error).__name__}: {error}; a module may "
            f"not be importable there, or a class of the running script cannot be rebuilt: define it in a module that "
            f"can be imported, or use engine='local'"
        )
        failed.add_note(traceback.format_exc().rstrip())
        raise failed from error
    surroundings.enter(same_machine=same_machine)
    return work


def _rebuilt(main: ModuleType, name: str, pickled: bytes | str) -> str:
    """Rebuild a class of the running script under its name; returns "", or why it cannot be rebuilt."""
    if isinstance(pickled, str):
        return pickled
    try:
        setattr(main, name, pickle.loads(pickled))
    except Exception as error:  # of the user's metaclass, say; raised where the class is used
        return f"{type(error).__name__}: {error}"
    return ""


def _unknown(reasons: Mapping[str, str], name: str) -> Any:
    """`__getattr__` of the module that stands in for the running script, for missing names."""
    if reason := reasons.get(name):
        raise GraphError(
            f"class {name!r} of the running script cannot be rebuilt in another process ({reason}); define it in a "
            f"module, which other processes import, or use engine='local'"
        )
    raise AttributeError(f"{name!r} of the running script is not known to its other processes, which get its classes")


def _main_classes() -> dict[str, bytes | str]:
    """Classes that the running script defines; other processes have them under the same names."""
    main = sys.modules["__main__"]
    classes = {name: each for name, each in list(vars(main).items()) if isinstance(each, type)}
    return {name: _class(each) for name, each in classes.items() if each.__module__ in _MAINS}


def _class(value: Any) -> bytes | str:
    try:
        return dumps(value)
    except Exception as error:  # a payload of this class will report it
        return f"{type(error).__name__}: {error}"


def _unfindable(functions: Iterable[Callable[..., Any]]) -> list[ModuleType]:
    """The loaded modules of functions that another process could not import by their names."""
    names = {getattr(user_function(function), "__module__", None) for function in functions}
    modules = [sys.modules[name] for name in sorted(filter(None, names)) if name in sys.modules]
    unfindable = [module for module in modules if module.__name__ not in _MAINS and not _can_be_found(module)]
    main = sys.modules["__main__"]
    return [*unfindable, main] if main.__name__ != "__main__" else unfindable  # as multiprocessing loads it


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
