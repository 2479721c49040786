"""Breakages of calls and durable steps: each breaks law 12, that an answer once logged is never asked for again, or the
order, or what passes from a segment to the next."""

from __future__ import annotations

from broken import Breakage, Edit

NO_CALLS = "the harness's graphs have no calls and no durable steps"
SIMULATED = ("tests/calls/test_calls_simulated.py",)
LOGGED = ("tests/calls/test_calls_logged.py",)
ASKED = ("tests/calls/test_calls.py",)
CLOCK = ("tests/calls/test_calls_clock.py",)
ATTEMPTS = ("tests/spark/test_spark_answer_log.py",)
SEGMENTS = ("tests/engines/test_segments.py", "-k", "simulated_releases")
_ASKER = "drift/calling/asker.py"
_ANSWERING = "drift/segments/answering.py"


def one(name: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Breakage:
    return Breakage(name, [Edit(file, old, new)], tests, NO_CALLS)


BREAKAGES = [
    one(
        "an answer is used before it is logged",
        _ANSWERING,
        "            log.answered(step, questions)\n",
        "",
        SIMULATED,
    ),
    one(
        "the log of answers is not found by a resume",
        "drift/segments/answers.py",
        "        if self._log is not None and self._log.find(question):\n            return True\n",
        "",
        LOGGED,
    ),
    one(
        "answers go on in the order of their arrival",
        _ANSWERING,
        "                if not head.has_ended:\n                    break\n",
        "                if not head.has_ended:\n                    queue.rotate(-1)\n                    break\n",
        SIMULATED,
    ),
    one(
        "a key depends on the attempt",
        _ASKER,
        "Call(key_together(keys), keys, attempt, deadline)",
        "Call(key_together(keys) + str(attempt), keys, attempt, deadline)",
        ASKED,
    ),
    one(
        "what is not settled is asked about",
        "drift/segments/feed.py",
        "            answering.put(arrived)\n",
        "            answering.put(arrived)\n            answering.put(arrived)\n",
        ASKED,
    ),
    one(
        "what was asked about together is forgotten by a death",
        "drift/segments/answers.py",
        "                self._groups.update(dict.fromkeys(group, group))\n",
        "                pass\n",
        LOGGED,
    ),
    one(
        "those asked about together wait for one that has its answer",
        "drift/segments/answers.py",
        "self._groups.pop(meta).remove(meta)",
        "self._groups.pop(meta)",
        LOGGED,
    ),
    one(
        "attempts of a task on Spark use answers of their own",
        "drift/spark/answer_log.py",
        "[each for each in questions if not self._log.find(each)]",
        "questions",
        ATTEMPTS,
    ),
    one(
        "further attempts do not count for the rate",
        _ASKER,
        "                    await asyncio.sleep(self._turn_s())\n",
        "                    pass\n",
        CLOCK,
    ),
    one(
        "a time is announced before the answers below it",
        _ANSWERING,
        "            below = global_time_of(self.head.meta)\n",
        '            below = global_time_of(self.head.meta) + b"\\xff"\n',
        SIMULATED,
    ),
    one(
        "all but the last piece of a release are taken for logged",
        "drift/segments/feed.py",
        "                self._pieces.append(new)\n",
        "                pass\n",
        SEGMENTS,
    ),
    one(
        "a piece of a release is logged before the rest of it",
        "drift/segments/feed.py",
        "        return Passed(list(metas), payloads, borders, below)\n",
        "        below = max(below, global_time_of(metas[-1])) if metas else below\n"
        "        return Passed(list(metas), payloads, borders, below)\n",
        SEGMENTS,
    ),
    one(
        "what comes again after a death is logged again",
        "drift/segments/feed.py",
        "        new = passed.from_on(self.log.end)\n",
        "        new = passed\n",
        SEGMENTS,
    ),
]
