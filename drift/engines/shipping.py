"""A dataflow on its way to another process, with the classes of the running script that its payloads may be of.

Invariant: in the process that unpacked a dataflow, what was pickled under a name of the running script is found.

Why: a class of the script is pickled by name, as `__main__.Reading`; so the classes travel by value, and are put
into the other process's `__main__` before anything is unpickled there.
"""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle

from drift_graph.errors import GraphError
from drift_graph.graph import Dataflow
from drift_graph.operators import place_of


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


def packed(dataflow: Dataflow) -> bytes:
    """The dataflow for other processes, and the classes of the running script.

    Raises:
        GraphError: a function holds on to something that cannot be sent; the message names its step.
    """
    try:
        work: bytes = cloudpickle.dumps((dataflow, _main_classes()))
        return work
    except Exception as error:
        for operator in dataflow.operators:
            try:
                cloudpickle.dumps(operator)
            except Exception as reason:
                raise GraphError(
                    f"step {operator.step!r} (at {place_of(operator)}) cannot be sent to other processes ({reason}); "
                    f"its function holds on to something like a lock, a connection or a logger: make that inside the "
                    f"function, or use engine='local'"
                ) from reason
        raise GraphError(f"the graph cannot be sent to other processes: {error}") from error


def unpacked(work: bytes) -> Dataflow:
    """The dataflow that `packed` made bytes of; it imports the modules that its functions are from."""
    dataflow: Dataflow
    dataflow, classes = cloudpickle.loads(work)
    for name, value in classes.items():
        setattr(sys.modules["__main__"], name, value)
    return dataflow
