"""The errors of this library, one class for each reaction of a caller.

GraphError: fix the graph. StepError: fix a function. InputError: fix the input or its time policy. SettingsError: fix
the call. SinkError: fix where the output goes. StorageError: fix where the state is stored. ProcessError: check the
machine, run again. DriftBug: an invariant of this library is broken; report it.
"""

from __future__ import annotations


class DriftError(Exception):
    """Base of every error that this library raises on purpose.

    Attributes:
        ends_the_run: whether it ends the run at once when a step raises it; other errors of a step travel as items do.
    """

    ends_the_run = False


class GraphError(DriftError):
    """The graph cannot run; the message names the step and the line that declared it."""


class SettingsError(DriftError):
    """A call got an argument that is not valid."""


class CallError(SettingsError, TypeError):
    """A call has arguments that the function does not take, or lacks one; to Python it is a TypeError too."""


class StepError(DriftError):
    """A user's function raised, or returned something that cannot be processed.

    Attributes:
        step: name of the step.
        where: "file:line" of the function, or of the step's declaration.
        meta: meta of the item that was being processed.
    """

    def __init__(self, message: str, *, step: str = "", where: str = "", meta: bytes = b"") -> None:
        super().__init__(message)
        self.step = step
        self.where = where
        self.meta = meta

    def __reduce__(self) -> tuple[object, ...]:
        notes = {"__notes__": self.__notes__} if hasattr(self, "__notes__") else None
        return _rebuild_step_error, (type(self), str(self), self.step, self.where, self.meta), notes


def _rebuild_step_error(kind: type[StepError], message: str, step: str, where: str, meta: bytes) -> StepError:
    return kind(message, step=step, where=where, meta=meta)


class ImpureStep(StepError):
    """A user's function gave two results for equal payloads, or changed a payload in place.

    It ends a run at once: earlier results of such a function cannot be taken back.
    """

    ends_the_run = True


class PayloadError(StepError):
    """A payload or key has no canonical form, so two runs could not be compared."""


class InputError(DriftError):
    """The input is not valid: a line that cannot be read, a time that is not one, a tie that is not unique."""


class AnswerMissing(InputError):
    """A run that may not ask, because it takes answers of calls from a record or a log, finds none for an item."""

    ends_the_run = True


class LateItem(InputError):
    """An item arrived below its source's heartbeat."""


class SinkError(DriftError):
    """The output could not be written; the message says what is safe and what is not."""


class SinkBehind(SinkError):
    """A sink has less than it had at the checkpoint that a run resumes from; it may fit an earlier one."""


class StorageError(DriftError):
    """The state of a run could not be stored, or not be read again; the message says where, and what is safe."""


class ProcessError(DriftError):
    """A process of the run died, hung or lost a message; the message names it."""


class DriftBug(DriftError):
    """An invariant of the library does not hold. The output so far is right; please report it."""
