"""The result of an audit: a list of checks, each with what was compared with what, and the outcome."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["intact", "signed", "reproduced"]
#: "noted": no error by itself, but readers of the audit should know it.
Result = Literal["ok", "trouble", "noted", "not checked"]

#: The subject of the check of the graph's fingerprint.
THE_GRAPH = "the graph"


@dataclass(frozen=True)
class Trouble:
    """One deviation from the record.

    Attributes:
        kind: a fixed phrase: see `KINDS`.
        text: a sentence, with values.
        file: in the record, if known.
        block: number of the block of 4096 items.
        position: of the item: in the output, or the row of the input.
    """

    kind: str
    text: str
    file: str = ""
    block: int | None = None
    position: int | None = None


#: Kinds of trouble.
KINDS = (
    "manifest edited",
    "manifest unreadable",
    "file lost",
    "file truncated",
    "file changed",
    "file unreadable",
    "meta changed",
    "payload changed",
    "block changed",
    "digest differs",
    "not of a run",
    "not the expected record",
    "not signed",
    "signature wrong",
    "output differs",
    "outcome differs",
)


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        level: that it belongs to.
        against: what it was compared with.
        found: in words.
        detail: more about it, for reports; plain data.
        finding: where a run diverges from the record and why, a `drift.auditing.verdict.Finding`; not in `as_dict`.
    """

    level: Level
    what: str
    against: str
    result: Result
    found: str
    troubles: tuple[Trouble, ...] = ()
    seconds: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)
    finding: Any = None

    def as_dict(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "finding"}
        return {**plain, "troubles": [asdict(trouble) for trouble in self.troubles]}


@dataclass(frozen=True)
class Audit:
    """All checks of a record.

    Attributes:
        path: of the record.
        record: a summary of its manifest.
        started: in UTC.
        proves, proves_not: in sentences, for the report.
    """

    path: str
    record: dict[str, Any]
    started: str
    seconds: float
    checks: tuple[Check, ...]
    proves: tuple[str, ...] = ()
    proves_not: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no check found trouble, and everything requested could be checked."""
        return all(check.result in ("ok", "noted") for check in self.checks)

    def __str__(self) -> str:
        """What `drift audit` prints."""
        from drift.auditing.text import audit_text

        return audit_text(self)

    @property
    def troubles(self) -> list[Trouble]:
        return [trouble for check in self.checks for trouble in check.troubles]

    def level_result(self, level: Level) -> Result:
        """The result of a level."""
        results = [check.result for check in self.checks if check.level == level]
        if "trouble" in results:
            return "trouble"
        return "ok" if "ok" in results and "not checked" not in results else "not checked"

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write the audit as one HTML file.

        Raises:
            SinkError: it cannot be written.
        """
        from drift.auditing.page import write_audit

        write_audit(path, self)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {"ok": self.ok, **vars(self), "checks": [check.as_dict() for check in self.checks]}


def judged(
    level: Level, what: str, against: str, troubles: Sequence[Trouble], otherwise: str, seconds: float = 0.0
) -> Check:
    """A check by its troubles: it says the first, and how many more there are; `otherwise` if there is none."""
    if not troubles:
        return Check(level, what, against, "ok", otherwise, seconds=seconds)
    more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
    return Check(level, what, against, "trouble", troubles[0].text + more, tuple(troubles), seconds)
