"""Where answers of calls come from and go to: the log in the state folder, and the run's record.

Invariant: an entry has the answers of what was asked about together; an answer is found again only for the same
question at the same meta.

Why: an entry is written before its answers are used. What was asked about together is written before it is asked, so
after a death the same items are asked about together, with the same key: those of them that have no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import xxhash

from drift.engines.entries import Entries
from drift_graph.canonical import canonical
from drift_graph.errors import AnswerMissing
from drift_graph.functions import brief
from drift_graph.item import Failure
from drift_graph.meta import BEGINNING

if TYPE_CHECKING:
    from drift.calling.asker import Question

#: The first field of an entry: answers; what is asked about together; failures, as tuples, in place of answers.
_ANSWERS, _TOGETHER, _FAILURES = 0, 1, 2


class AnswerLog:
    """The log of the answers at one border.

    Args:
        folder: of this log alone.
        what: the calls, for messages.
    """

    def __init__(self, folder: Path, what: str, *, on_disk: bool = False) -> None:
        self._entries = Entries(folder, f"the answers of {what}", on_disk=on_disk)
        self._found: dict[bytes, tuple[bytes, Any]] = {}  # (print of the question, answer) by meta
        self._groups: dict[bytes, list[bytes]] = {}  # what was asked about together, by each of the metas
        self._lasts: list[tuple[int, bytes]] = []  # numbers of entries, and their greatest metas

    def open_to_read(self, begin: bytes) -> None:
        """Read what is at or above a time; called before anything else.

        Raises:
            LogBroken: an entry is damaged: asking again could give other answers than those that were used.
        """
        for number, fields in self._entries.read(self._entries.first_number):
            self._lasts.append((number, max(fields[1])))
            self._take(fields, self._entries, begin)

    def begin_with(self, others: Sequence[AnswerLog]) -> None:
        """Have what other logs have, which were opened to read, and nothing else; these are closed."""
        self._entries.clear()
        for other in others:
            for group in {id(group): group for group in other._groups.values()}.values():
                self.together(group)
            for kind, is_failure in ((_ANSWERS, False), (_FAILURES, True)):
                rows = [
                    (meta, *found) for meta, found in other._found.items() if (type(found[1]) is Failure) == is_failure
                ]
                if rows:
                    metas, prints, answers = zip(*rows)
                    self._append(kind, metas, prints, [astuple(each) for each in answers] if is_failure else answers)
            self._groups.update(other._groups)
            self._found.update(other._found)
            other.close()

    def follow(self, other: Entries) -> None:
        """Read what another process has appended to its log since the last call."""
        for fields in other.appended():
            self._take(fields, other, BEGINNING)

    def _take(self, fields: Sequence[Any], entries: Entries, begin: bytes) -> None:
        kind, metas, prints, _, data = fields
        if kind == _TOGETHER:
            if not any(meta in self._groups for meta in metas):
                group = [meta for meta in metas if meta not in self._found]
                self._groups.update(dict.fromkeys(group, group))
            return
        for meta, question, stored in zip(metas, prints, entries.payloads(data)):
            if meta in self._groups:
                self._groups.pop(meta).remove(meta)  # the others are asked about without it, if one of them has failed
            if meta >= begin:
                self._found[meta] = question, Failure(*stored) if kind == _FAILURES else stored

    def answers(self) -> Iterator[tuple[bytes, Any]]:
        """Meta and answer of what was read."""
        return ((meta, answer) for meta, (_, answer) in self._found.items())

    def find(self, question: Question) -> bool:
        """Give a question its answer, if it is here."""
        found = self._found.pop(question.meta, None) if self._found else None
        if found is None or found[0] != _print(question.payload):
            return False
        question.answer = found[1]
        return True

    def asked_together(self, meta: bytes) -> Sequence[bytes]:
        """What was asked about with this item, and not answered."""
        return self._groups.get(meta, ())

    def together(self, metas: Sequence[bytes]) -> None:
        """Log that items are asked about together now."""
        if len(metas) > 1:
            self._append(_TOGETHER, metas, [], [])

    def answered(self, questions: Sequence[Question]) -> None:
        """Log answers, and failures that are given. Raises PayloadError: an answer could not be read back."""
        failed = [each for each in questions if type(each.answer) is Failure]
        if failed:
            questions = [each for each in questions if type(each.answer) is not Failure]
            self._append_answers(_FAILURES, failed, [astuple(each.answer) for each in failed])
        if questions:
            self._append_answers(_ANSWERS, questions, [each.answer for each in questions])

    def _append_answers(self, kind: int, questions: Sequence[Question], answers: Sequence[Any]) -> None:
        metas, prints = [each.meta for each in questions], [_print(each.payload) for each in questions]
        self._append(kind, metas, prints, answers)

    def _append(self, kind: int, metas: Sequence[bytes], prints: Sequence[bytes], answers: Sequence[Any]) -> None:
        data, bad = self._entries.stored(answers)
        if bad is not None:
            raise bad[1]
        self._lasts.append((self._entries.next_number, max(metas)))
        self._entries.append([kind, list(metas), list(prints)], data)

    def drop_below(self, time: bytes) -> None:
        """Entries whose metas are all below this time are not needed any more; called by another thread."""
        lasts = list(self._lasts)  # others may be appended meanwhile
        at = next((at for at, (_, last) in enumerate(lasts) if last >= time), None)
        if at:
            self._entries.drop_below(lasts[at][0])
            del self._lasts[:at]

    def close(self) -> None:
        self._entries.close()


class RecordedAnswers(Protocol):
    """The answers in a record."""

    def find(self, step: str, meta: bytes) -> tuple[Any] | None:
        """The answer about the item with a meta, which may be a `Failure`; None if there is none."""


@dataclass(frozen=True)
class AnswersOfRun:
    """What a run does about answers.

    Attributes:
        recorded: answers of an earlier run; None for none.
        missing: the error for a question without an answer; None to ask.
        on_passed: called with the operator of a call, and metas, payloads and answers of its items, in the order of the
            metas, before the answers are used.
    """

    recorded: RecordedAnswers | None = None
    missing: Callable[[str, Question], Exception] | None = None
    on_passed: Callable[[str, Sequence[bytes], Sequence[Any], Sequence[Any]], None] | None = None


class AnswersAtBorder:
    """All answers at one border: see `drift.segments.answering.Log`."""

    def __init__(self, of_run: AnswersOfRun, log: AnswerLog | None) -> None:
        self._of_run = of_run
        self._log = log

    def find(self, question: Question, step: str) -> bool | Exception:
        of_run = self._of_run
        if self._log is not None and self._log.find(question):
            return True
        if of_run.recorded is not None:
            found = of_run.recorded.find(step, question.meta)
            if found is not None:
                question.answer = found[0]
                return True
        if of_run.missing is not None:
            return of_run.missing(step, question)
        return False

    def together(self, step: str, metas: Sequence[bytes]) -> None:
        if self._log is not None:
            self._log.together(metas)

    def asked_together(self, meta: bytes) -> Sequence[bytes]:
        return self._log.asked_together(meta) if self._log is not None else ()

    def answered(self, step: str, questions: Sequence[Question]) -> None:
        if self._log is not None:  # a failure is no answer: who goes on asks again
            self._log.answered([each for each in questions if type(each.answer) is not Failure])

    def passed(self, step: str, questions: Sequence[Question]) -> None:
        if self._of_run.on_passed is not None:
            columns = zip(*[(each.meta, each.payload, each.answer) for each in questions])
            self._of_run.on_passed(step, *map(list, columns))


def missing_answer(step: str, question: Question) -> Exception:
    """The error for a question that has no answer, in a run that may not ask."""
    return AnswerMissing(
        f"call {step!r} has no recorded answer about {brief(question.payload, 100)}, and this run takes recorded "
        f"answers only; run with calls='ask' to ask, or calls={{{step!r}: function}} to ask something else"
    )


def _print(payload: Any) -> bytes:
    return xxhash.xxh3_64_digest(canonical(payload))
