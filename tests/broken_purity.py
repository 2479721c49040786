"""Breakages of the purity check."""

from __future__ import annotations

from broken import one

PURITY = ("tests/testing/test_purity.py",)
NO_TWINS = "the harness compares outputs; this is another check"

_CHECK, _TRIALS = "drift/purity/check.py", "drift/purity/trials.py"
_TWIN, _WATCH = "drift/purity/replica.py", "drift/purity/watch.py"

_UNCHANGED = "graph/drift_graph/unchanged.py"

_RETURNED = ("tests/core/test_unchanged.py", "-k", "has_returned or behind_numbers or no_least")

BREAKAGES = [
    one(
        "functions are called again with the caller's locale",
        "drift/purity/replica.py",
        'if name != "LC_CTYPE":',
        "if False:",
        ("tests/testing/test_purity.py", "-k", "the_locale"),
        "its functions are pure",
    ),
    *(
        one(name, file, old, new, _RETURNED, "its functions are pure")
        for name, file, old, new in (
            (
                "one object that is refilled for each key is the last key",
                "drift/machines/keys.py",
                "if not sampler.kept and (isinstance(group.key, MapsEach) or are_unchangeable(keys)):",
                "if not sampler.kept:",
            ),
            (
                "keys of a batch are not compared when it ends",
                "drift/machines/keys.py",
                "        if identity(key) != then:\n",
                "        if False:\n",
            ),
            (
                "keys of the batch before are not compared",
                "drift/machines/keys.py",
                "sampler.kept = [*given.values()][-_RECENT:]",
                "sampler.kept = ()",
            ),
            (
                "what an aggregate keeps of its function is not noted",
                "drift/operators.py",
                'if field_of(given, "keeps_values", False) and _is_users',
                "if False and _is_users",
            ),
            (
                "what comes at a later time is not looked into for who else has it",
                _UNCHANGED,
                "inside.append((each.payload,))",
                "pass",
            ),
            (
                "what comes at a later time is printed as the name of its class",
                _UNCHANGED,
                "    if type(value) is Later:\n",
                "    if False:\n",
            ),
            (
                "keys of joins are not noted",
                "drift/flow/joins.py",
                "gives_users: ClassVar = True",
                "gives_users: ClassVar = False",
            ),
            (
                "what sorts payloads is not noted",
                "drift/operators.py",
                '_MAKERS = frozenset({"user_function", "step", "merged", "by"})',
                '_MAKERS = frozenset({"user_function", "step", "merged"})',
            ),
            (
                "maps of scans as cycles do not note what is kept",
                "drift/machines/maps.py",
                "self._check(self._noting.check(()))",
                "pass",
            ),
            (
                "outputs of own operators are not noted",
                "drift/flow/logic.py",
                "return made.append if noting is None else noting.noting(made.append)",
                "return made.append",
            ),
            (
                "a result that may change is not noted behind those that cannot",
                "graph/drift_graph/unchanged.py",
                "self.is_on = type(result) not in _UNCHANGEABLE and not are_unchangeable([result])",
                "self.is_on = False",
            ),
            (
                "a state that may change is not noted behind those that cannot",
                "drift/machines/logics.py",
                "else (self._step, True)",
                "else (self._step, False)",
            ),
            (
                "the reference does not note what aggregates keep",
                "graph/drift_graph/reference.py",
                "if noting is not None and (changed := noting.check([])):",
                "if False:",
            ),
        )
    ),
    *(
        one(name, file, f"{old}\n", f"{new}\n", ("tests/core/test_unchanged.py", "-k", tests), NO_TWINS)
        for name, file, old, new, tests in (
            (
                "payloads that a key function changed are not looked at",
                "drift/machines/keys.py",
                "        check_unchanged(group, samples)",
                "        pass",
                "key_function",
            ),
            (
                "what a key function changed is put down to the step",
                "drift/machines/keyed.py",
                "                check_unchanged(self._keys, given)",
                "                pass",
                "key_function",
            ),
            (
                "payloads that a time function changed are not looked at",
                "graph/drift_graph/times.py",
                '            check_payloads(samples, self.policy, "time", self.name)',
                "            pass",
                "tie_function",
            ),
            (
                "payloads that a tie function changed are not looked at",
                "graph/drift_graph/times.py",
                '            check_payloads(samples, policy, "tie", self.name)',
                "            pass",
                "tie_function",
            ),
        )
    ),
    *(
        one(name, file, old, new, ("tests/core/test_unchanged.py", "-k", tests), NO_TWINS)
        for name, file, old, new, tests in (
            (
                "values are compared now and then",
                _UNCHANGED,
                "        samples.append(sample)\n        return",
                "        return",
                "thousands",
            ),
            (
                "only the value itself is what somebody else has",
                _UNCHANGED,
                "level, references = _members(level)",
                "level, references = []",
                "returned",
            ),
            (
                "results are noted when the batch ends",
                "drift/machines/maps.py",
                "not are_fresh(results, payloads)",
                "False",
                "returned",
            ),
            (
                "what a map returned is not compared when its batch ends",
                "drift/machines/maps.py",
                "if self._returned.is_watched and (changed := self._returned.sweep()):",
                "if changed := '':",
                "long_ago",
            ),
            (
                "a lazy family is noted when it is whole",
                "drift/machines/maps.py",
                "noted = result = as_noted(result, lambda child: self._check(note((child,), arguments)))",
                "noted = result = as_sequence(result)",
                "yields",
            ),
            (
                "what a step of a state returned is not compared",
                "drift/machines/keyed.py",
                "if noting is not None and (changed := noting.check(sent.payloads)):",
                "if False:",
                "returned",
            ),
            (
                "the reference does not note what is returned",
                "graph/drift_graph/reference.py",
                "                    self._note(operator, family, handed)\n",
                "",
                "returned",
            ),
            (
                "payloads that a timer changed are not looked at",
                "drift/machines/windowing.py",
                "        self._shared.check(ended.samples)\n        self._shared.note_fired",
                "        self._shared.note_fired",
                "thousands",
            ),
            (
                "payloads that a call changed are not looked at",
                "drift/calling/asker.py",
                "                raise InPlace(changed_argument, each.difference)",
                "                pass",
                "thousands",
            ),
            (
                "answers that a call changed are not looked at",
                "drift/calling/asker.py",
                "                raise InPlace(changed_later, changed)\n\n",
                "                pass\n\n",
                "returned",
            ),
        )
    ),
    one(
        "dicts of rows that a function changed are not looked at",
        "drift/columns/rows.py",
        "        self._sampling = sample\n",
        "        return\n",
        ("tests/rows/test_rows_unchanged.py", "-k", "not zeromq"),
        NO_TWINS,
    ),
    one(
        "calls are not checked together before the first example",
        "drift/testing/law.py",
        "        if cases:\n",
        "        if not cases:\n",
        (*PURITY, "-k", "few_names"),
        NO_TWINS,
    ),
    one(
        "replicas with the hash seed of whoever starts them",
        _TWIN,
        '{"PYTHONHASHSEED": str(hash_seed)}',
        "{}",
        PURITY,
        NO_TWINS,
    ),
    one(
        "arguments that a call changed are not looked at",
        _CHECK,
        "        if _form(arguments) != before:\n",
        "        if False:\n",
        PURITY,
        NO_TWINS,
    ),
    one(
        "the second call of a replica is not looked at",
        _TRIALS,
        "        second = self._form(again)\n",
        "        self._form(again)\n        second = first\n",
        PURITY,
        NO_TWINS,
    ),
    one(
        "sets in a payload keep their order",
        _TRIALS,
        "        again = in_other_order(again, reversed_set) or again\n",
        "",
        PURITY,
        NO_TWINS,
    ),
    one(
        "a clock that is read does not matter",
        _TRIALS,
        "        return self._at(now, packed).form != self._at(now + _SHIFT_S, packed).form\n",
        "        return False\n",
        PURITY,
        NO_TWINS,
    ),
    one(
        "a setting that is read does not matter",
        _TRIALS,
        "if self._form(rebuilt(packed)) != first else",
        "if False else",
        PURITY,
        NO_TWINS,
    ),
    one(
        "two answers to one payload in one process are not compared",
        _CHECK,
        "            if self._forms[key] != call.form:\n",
        "            if False:\n",
        PURITY,
        NO_TWINS,
    ),
    one(
        "what was found of a payload is forgotten",
        _CHECK,
        "        self._found[watched.index, arguments] = error\n",
        "",
        PURITY,
        NO_TWINS,
    ),
    one(
        "after the first calls of a function none is checked",
        _WATCH,
        "if self.calls > self._first and self.calls % self._every and self.finding is None:",
        "if self.calls > self._first and self.finding is None:",
        PURITY,
        NO_TWINS,
    ),
    one(
        "a truth is compared by its value",
        _WATCH,
        '    return bool(result) if shape == "keep" else result\n',
        "    return result\n",
        PURITY,
        NO_TWINS,
    ),
    one(
        "the second replica makes the calls in the order of the first",
        _CHECK,
        "backward = [reverse or at == 1 for at in range(len(replicas))]",
        "backward = [False for _ in replicas]",
        PURITY,
        NO_TWINS,
    ),
    one(
        "replicas are in the folder and the time zone of the caller",
        _TWIN,
        "        go_elsewhere(around)\n",
        "",
        PURITY,
        NO_TWINS,
    ),
]
