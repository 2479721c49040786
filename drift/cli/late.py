"""Where late items go: a file of JSON lines, or nowhere but into the count."""

from __future__ import annotations

from typing import IO

from drift.cli.errors import to_json
from drift.cli.specs import OnExisting
from drift_graph.errors import SinkError
from drift_graph.lateness import Late


class LateOutput:
    """Takes the items that a time policy diverts.

    Args:
        path: a line for each: {"source": .., "payload": .., "time": .., "heartbeat": .., "reason": ..}; None for none.
        on_existing: "error" refuses a file that is there. Otherwise it is written anew, also where the run's output is
            continued: a rerun diverts the same items again.
    """

    def __init__(self, path: str | None, on_existing: OnExisting) -> None:
        self._path = path
        self._file: IO[str] | None = None
        if path is not None:
            try:
                self._file = open(path, "x" if on_existing == "error" else "w", encoding="utf-8")  # noqa: SIM115, PTH123
            except OSError as error:
                raise SinkError(f"the late output {path} cannot be opened: {error.strerror}") from error

    def __call__(self, late: Late) -> None:
        if self._file is None:
            return
        try:
            self._file.write(to_json(late._asdict()) + "\n")
        except OSError as error:
            raise SinkError(f"the late output {self._path} cannot be written: {error.strerror}") from error

    def __enter__(self) -> LateOutput:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
