"""Turns the exceptions of failed Spark jobs into short errors.

Invariant: a DriftError that left a task arrives unchanged; any other exception becomes a ProcessError with the line
that matters, and Spark's exception as its cause.
"""

from __future__ import annotations

import re
import traceback

from drift_graph.errors import DriftBug, DriftError, ProcessError
from drift_graph.functions import safe_text

_PROXY = "py4j.protocol.Py4JJavaError: An error occurred while calling"
_ADVICE = (
    (r"No module named '(drift\w*)'", "the workers have no {0!r}: they run another Python than this, or drift is not "
     "installed there; set PYSPARK_PYTHON before the session starts, or install drift on every machine"),
    (r"No module named '([^']+)'", "a worker cannot import {0!r}: send it to the cluster with spark.addArtifacts"
     "('{0}.py', pyfile=True) or --py-files, or install it on every machine"),
    (r"Can't get attribute '([^']+)'", "a worker does not find {0!r}: put it into a module that is installed there"),
    (r"OutOfMemoryError", "the JVM has too little memory: raise spark.driver.memory (local), spark.executor.memory"),
    (r"MemoryError", "a Python worker has too little memory: raise spark.executor.pyspark.memory, or partitions"),
    (r"No space left on device", "there is no room for the shuffle: set spark.local.dir to a larger disk"),
    (r"(?:Python worker exited unexpectedly|Connection reset|EOFException)", "a Python worker died, perhaps killed for "
     "its memory: use more partitions, or give it more"),
    (r"(?:cancelled|interrupted|was shut down)", "the job was cancelled"),
)  # fmt: skip


def short_error(error: Exception) -> Exception:
    """The error that a micro-batch raises: the error itself, or a short text of it if it contains Spark's exception.

    To recognize a query that was stopped, Spark searches the text for an interruption, by a regular expression that
    needs stack for every character: the JVM's trace in the text would end the query's thread with a StackOverflowError.
    """
    text = "".join(traceback.format_exception(error))
    if _PROXY not in text:
        return error
    stopped = re.search(r"cancelled|interrupted|InterruptedException", text, re.IGNORECASE)
    line = "java.lang.InterruptedException" if stopped else _main_line(str(as_drift_error(error)))
    return RuntimeError(f"{_PROXY}: {line}")


def as_drift_error(error: BaseException) -> DriftError:
    """The DriftError that the run ends with."""
    if isinstance(error, DriftError):
        return error
    text = safe_text(str, error, 100_000)
    found = re.search(r"DriftBug: (.*)", text)
    if found:
        return DriftBug(found[1])
    for pattern, advice in _ADVICE:
        found = re.search(pattern, text)
        if found:
            return ProcessError(f"Spark gave up: {advice.format(*found.groups())}")
    return ProcessError(f"Spark gave up: {_main_line(text)}")


def _main_line(text: str) -> str:
    """The last line of a Python traceback in the text, or else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Bug)\b.*", line)]
    return (raised[-1] if raised else lines[0] if lines else type(text).__name__)[:500]
