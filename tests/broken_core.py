"""Breakages of the core, the machines and what feeds them."""

from __future__ import annotations

from broken import LAWS, SAME_CODE, Breakage, Edit, one

CHECKPOINTS, NO_CHECKPOINTS = ("tests/state/test_checkpoints.py",), "it goes back to no checkpoint"
CANONICAL, BARRIER = ("tests/core/test_canonical.py",), ("tests/core/test_barrier.py",)
NEVER_COMPLETE = "simulated nodes never know that all has come below an item; `local` does"
STAGES = ("tests/machines/test_stages.py",)
GOLDEN = ("tests/core/test_golden.py",)
IDLE = ("tests/engines/test_feed.py", "-k", "idle")
ONLY_SPEED = "it changes how much is on its way, and nothing that comes out"

_ACKER, _LEDGER = "acker/drift_acker/table.py", "acker/drift_acker/ledger.py"
_BARRIER, _DIGEST = "barrier/drift_barrier/barrier.py", "barrier/drift_barrier/digest.py"
_CANONICAL, _META = "graph/drift_graph/canonical.py", "graph/drift_graph/meta.py"
_RANKS, _TIMES, _LATENESS = (f"graph/drift_graph/{name}.py" for name in ("ranks", "times", "lateness"))
_REFERENCE = "graph/drift_graph/reference.py"
_LOG, _WINDOWS = "drift/machines/log.py", "drift/machines/windowing.py"
_NETWORK, _NODE = "drift/engines/simulated/network.py", "drift/machines/nodes/node.py"
_FEED_NODE, _WORKER_NODE = "drift/machines/nodes/feeding.py", "drift/machines/nodes/worker.py"
_ACKER_NODE, _BARRIER_NODE = "drift/machines/nodes/acker.py", "drift/machines/nodes/barrier.py"
_CHANGES, _KEYED = "drift/machines/changes.py", "drift/machines/keyed.py"
_KEYS, _MAPS = "drift/machines/keys.py", "drift/machines/maps.py"
_PLAN, _LOGICS, _WORKER = "drift/machines/plan.py", "drift/machines/logics.py", "drift/machines/worker.py"

_LOGIC, OWN = "drift/flow/logic.py", ("tests/flow/test_own_operator.py",)
NO_OWN = "its graphs have no logics of users"

HELD = "tests/machines/test_in_order.py", "-k", "are_held"
TIMED, NO_TIMERS = ("tests/machines/test_timed_stages.py",), "few of its graphs have timers that items overtake"

CHECKED = ("tests/core/test_graph_checks.py", "-k", "loop or name_of_a_sink")
FIELDS, UNITS = ("tests/rows/test_running.py", "-k", "cannot_be"), ("tests/flow/test_units.py",)
FEW_ARGUMENTS = ("tests/flow/test_flow_windows.py", "-k", "name_of_a_field or several_predicates")
UNUSED = ("tests/engines/test_callers.py", "-k", "dropped_unused")

RECORDED, WRITTEN = ("tests/calls/test_recorded_places.py",), "its graphs are written, not refused"

TOGETHER = ("tests/core/test_made.py", "-k", "together or change_no_output or nothing_of_it")
LATE_BELOW = ("tests/core/test_input_errors.py", "-k", "fails_for or one_state and local")

REFILLED = ("tests/core/test_unchanged.py", "-k", "from_some_item or one-map or one-call")

BREAKAGES = [
    *(
        one(name, file, old, new, REFILLED, "its functions are pure")
        for name, file, old, new in [
            (
                "a scan's outputs that may change are noted from the next batch on",
                "drift/machines/logics.py",
                "if self.noting.is_on_from(made):",
                "if self.noting.is_on_from(made[0]):",
            ),
            (
                "what reduce was handed counts as what its function returns",
                "drift/machines/logics.py",
                'if gives_users(step) and field_of(step, "noted") is None:',
                "if gives_users(step):",
            ),
            (
                "the reference releases what a function has changed since",
                "drift/engines/reference.py",
                "            output, error = [], raised",
                "            error = raised",
            ),
            (
                "an answer that its function may change is released as it is then",
                "drift/calling/asker.py",
                "each.answer = own(each.answer)",
                "pass",
            ),
        ]
    ),
    one(
        "an item without a tie ends the run where such are diverted",
        "graph/drift_graph/stamps.py",
        "if time is not None and policy.tie is not None:",
        "if False:",
        ("tests/core/test_diverted.py", "-k", "tie"),
        "its ties do not raise",
    ),
    one(
        "late items in a sink of their own do not count for their source",
        "drift/engines/feed.py",
        "machine.late_items + machine.late_apart",
        "machine.late_items",
        ("tests/command/test_web.py", "-k", "sink_of_their_own"),
        "it looks at no page",
    ),
    *(
        one(name, file, old, new, TOGETHER, "its batches are small, and what they make")
        for name, file, old, new in [
            (
                "a stage does not wait for the timers in front of it that fire in the next turn",
                "drift/machines/worker.py",
                "                self._hold_back(component, fired_below)",
                "                pass",
            ),
            (
                "timers fire in one turn whatever they make",
                "drift/machines/worker.py",
                "stage.is_due and in_all < BATCH_BYTES",
                "stage.is_due",
            ),
            (
                "outputs go through their maps in one turn whatever these make",
                "drift/machines/unmapped.py",
                "(takes_all or made_in_all < _MADE_MAX)",
                "True",
            ),
            (
                "outputs that wait for their maps do not hold minimal time",
                "drift/machines/worker.py",
                "[each.least for each in self._before_their_time]",
                "[each.least for each in self._pending.values()]",
            ),
            (
                "a stage does not wait for outputs in front of it that wait for their maps",
                "drift/machines/worker.py",
                "min(fired_below, self._unmapped[name].least or fired_below)",
                "fired_below",
            ),
            (
                "what was made of timers is forgotten with a notice that does not know it",
                "drift/machines/nodes/worker.py",
                "heappush(self._made if batches else self._fired, (least, made))",
                "heappush(self._made, (least, made))",
            ),
            (
                "a worker with much in flight fires more timers",
                "drift/machines/nodes/worker.py",
                "(self._has_room or least <= self._minimal_time)",
                "True",
            ),
            (
                "windows of one end are made at once whatever they are",
                "drift/machines/windowing.py",
                "if first < stop and size_of(outputs[-1]) * (stop - start) > ROOM_BYTES:",
                "if False:",
            ),
        ]
    ),
    *(
        one(name, "drift/running/observers.py", old, new, LATE_BELOW, "it compares what simulated runs report")
        for name, old, new in [
            (
                "what failed is acknowledged, and late items behind it are reported",
                "released_below if batch.error is None else self._failed_at(batch.error)",
                "released_below",
            ),
            (
                "late items are reported before the state that is behind them is stored",
                "        if not self._feed.has_positions:\n            self._feed",
                "        if True:\n            self._feed",
            ),
            (
                "late items behind an error of a function are reported",
                "END_OF_TIME if error is self._feed.error else getattr",
                "END_OF_TIME if error else getattr",
            ),
        ]
    ),
    *(
        one(name, file, old, new, tests, WRITTEN)
        for name, file, old, new, tests in [
            (
                "a variable that is set outside of loops is that of a loop",
                "graph/drift_graph/functions.py",
                "any(start <= each.offset <= end for start, end in around)",
                "True",
                CHECKED,
            ),
            (
                "variables of loops around comprehensions and modules only are compared",
                "graph/drift_graph/functions.py",
                "(is_module or name in function.__code__.co_freevars)",
                "is_module",
                CHECKED,
            ),
            (
                "a step with the name of a sink keeps it",
                "graph/drift_graph/graph.py",
                '        if _sink(step) in self._operators and (name == step or name.startswith(f"{step}.")):\n',
                "        if False:\n",
                CHECKED,
            ),
            (
                "a field that the rows do not have is found in the run only",
                "drift/flow/fields.py",
                '        if name not in known and name.split(".")[0] not in known:\n',
                "        if False:\n",
                FIELDS,
            ),
            (
                "a value that is 0 is none to count",
                "drift/flow/fields.py",
                "return self.of(payload) is not None",
                "return bool(self.of(payload))",
                FEW_ARGUMENTS,
            ),
            (
                "the last of several predicates decides",
                "drift/streams/stream.py",
                "            for other in others:\n                stream = stream.filter(",
                "            for other in others:\n                stream.filter(",
                FEW_ARGUMENTS,
            ),
            (
                "seconds with a fraction are cut off where binary is a little less",
                "graph/drift_graph/moments.py",
                "value = round(micros) // 1000",
                "value = int(micros) // 1000",
                UNITS,
            ),
            (
                "columns of numbers are milliseconds whatever their unit",
                "drift/columns/times.py",
                "    if kind in _INTEGERS and policy.unit is None:\n",
                "    if kind in _INTEGERS:\n",
                UNITS,
            ),
            (
                "a run that is closed unused warns as one that is dropped",
                "drift/running/runs.py",
                "            self._unused.detach()\n",
                "            pass\n",
                UNUSED,
            ),
        ]
    ),
    one(
        "a coroutine that blocks its loop past its time has answered",
        "drift/calling/asker.py",
        "if self._is_coroutine and late_s > 0:",
        "if False:",
        ("tests/calls/test_calls_clock.py", "-k", "blocks"),
        "it changes an error, and nothing that comes out",
    ),
    one(
        "what is recorded in maps only is taken inside of an aggregate",
        "graph/drift_graph/functions.py",
        "    return any(field_of(part, name, False) for part in parts_of(given))\n",
        "    return bool(field_of(given, name, False))\n",
        RECORDED,
        WRITTEN,
    ),
    one(
        "what is recorded in maps only is taken as the time of a source",
        "graph/drift_graph/policies.py",
        'elif has_inside(function, "only_in_maps"):',
        "elif False:",
        RECORDED,
        WRITTEN,
    ),
    one(
        "a recorded function that another one calls gives a result",
        "drift/calling/asks.py",
        '        raise GraphError(\n            f"drift.recorded({name_of',
        '        return self.function(*arguments)\n        raise GraphError(\n            f"drift.recorded({name_of',
        RECORDED,
        WRITTEN,
    ),
    one(
        "what a worker has made itself waits though nothing older is in flight",
        "drift/machines/nodes/worker.py",
        "or self._may_map or is_oldest",
        "or self._may_map",
        ("tests/machines/test_pacing.py", "-k", "made_itself"),
        ONLY_SPEED,
    ),
    *(
        one(name, "drift/machines/nodes/worker.py", old, new, ("tests/core/test_made.py", "-k", "grouping_whose"), seen)
        for name, old, new, seen in (
            (
                "a worker takes batches for groupings however much that it made is in flight",
                "        if self._has_room:\n            return batches, []\n",
                "        if True:\n            return batches, []\n",
                ONLY_SPEED,
            ),
            (
                "a worker asks for turns while it waits for room",
                "has_more = self._parted(self._at_once)[0] or",
                "has_more = self._at_once or",
                ONLY_SPEED,
            ),
            (
                "batches that wait for room are lost where another one is cut",
                "self._at_once = left + self._at_once",
                "self._at_once = left",
                "no run of the harness makes so much",
            ),
        )
    ),
    one(
        "what is left of a message is as old as the oldest of it",
        "drift/machines/nodes/worker.py",
        "return [Batch(granule_of([part]), self._ledger.checksum(), [part]) for part in parts]",
        "return [Batch(granule_of(parts), self._ledger.checksum(), parts)] if parts else []",
        ("tests/core/test_made.py", "-k", "something_old"),
        ONLY_SPEED,
    ),
    Breakage(
        "a worker whose patience is over makes more however much that it made is in flight",
        [
            Edit(
                "drift/machines/nodes/worker.py",
                "elif self._waiting and self._has_room and now_s",
                "elif self._waiting and now_s",
            ),
            Edit(
                "drift/machines/nodes/worker.py",
                "is_patient = self._waiting and self._has_room",
                "is_patient = self._waiting",
            ),
        ],
        ("tests/core/test_made.py", "-k", "grouping_whose"),
        ONLY_SPEED,
    ),
    # The protocol, which the nodes keep.
    one(
        "windows in order stay open where another end begins",
        _WINDOWS,
        "if len(self._table) and self._until != untils[0] and not self._end(sent):",
        "if False:",
        TIMED,
        NO_TIMERS,
    ),
    one(
        "a window that an item corrects is still in order",
        "drift/machines/keyed.py",
        "            self._in_order.hand_back(keys)\n",
        "            pass\n",
        TIMED,
        NO_TIMERS,
    ),
    one(
        "windows in order begin anew beside those of the machine",
        _WINDOWS,
        "        if not self._take_over(keys):\n",
        "        if False:\n",
        TIMED,
        NO_TIMERS,
    ),
    one(
        "items of windows are not held",
        "drift/machines/worker.py",
        "if waits and columns.metas and",
        "if False and",
        HELD,
        NO_TIMERS,
    ),
    one(
        "items of windows that are held do not hold minimal time",
        "drift/machines/worker.py",
        "[each.least for each in self._before_their_time]",
        "[each.least for each in self._unmapped.values()]",
        ("tests/flow/test_flow_windows.py",),
        NO_TIMERS,
    ),
    one(
        "a checkpoint has no windows in order",
        "drift/machines/keyed.py",
        "        if in_order:  # nothing",
        "        if False:  # nothing",
        ("tests/rows/test_running.py", "-k", "resumes"),
        NO_TIMERS,
    ),
    one(
        "a session's timer that was moved is taken for an item",
        "drift/machines/keyed.py",
        "items = [row for row in old.rows if not isinstance(row.subject, Due)]",
        "items = [row for row in old.rows if type(row.subject) is not Due]",
        TIMED,
        NO_TIMERS,
    ),
    one(
        "an ack split in two",
        _WORKER_NODE,
        "        return [*sends, self._ack(ack_of(map(tracked, batches), [*sent, *map(tracked, left)], (), waiting))]",
        "        consumed = self._ack(ack_of(map(tracked, batches), ()))\n"
        "        return [*sends, consumed, self._ack(ack_of((), [*sent, *map(tracked, left)], (), waiting))]",
    ),
    one(
        "a heartbeat before the ack",
        _FEED_NODE,
        "        ack = ack_of((), map(tracked, batches), [(rank, arrived.heartbeat)])\n",
        "        ack = ack_of((), map(tracked, batches))\n"
        "        sends.append(Send(ACKER, ack_message(ack_of((), (), [(rank, arrived.heartbeat)]))))\n",
    ),
    Breakage(
        "a source's acks overtake each other",
        [
            Edit(_NETWORK, "        if len(waiting) == 1:\n", "        if True:\n"),
            Edit(_NETWORK, "            self.in_flight += list(waiting)[:1]\n", ""),
        ],
    ),
    one(
        "a message tracked at its greatest time",
        _NODE,
        "return global_time_of(min(columns.metas.least() for _, columns in parts))",
        "return global_time_of(max(max(columns.metas) for _, columns in parts))",
    ),
    one(
        "a duplicate message",
        _WORKER_NODE,
        "                sends.append(Send(receiver, batch, logged))\n",
        "                sends += [Send(receiver, batch, logged), Send(receiver, batch, logged)]\n",
    ),
    one(
        "a message lost",
        _WORKER_NODE,
        "                sends.append(Send(receiver, batch, logged))\n",
        "                pass\n",
    ),
    one(
        "a tombstone lost on its way",
        _BARRIER_NODE,
        "                    self.machine.add(name, columns)\n",
        "                    diffs = columns.diffs or [1] * len(columns.metas)\n"
        "                    gone = diffs.index(-1) if -1 in diffs else len(diffs)\n"
        "                    kept = [index for index in range(len(diffs)) if index != gone]\n"
        "                    each = [list(column)[index] if column else 1 for column in columns for index in kept]\n"
        "                    n = len(kept)\n"
        "                    self.machine.add(name, type(columns)(each[:n], each[n : 2 * n], each[2 * n :]))\n",
    ),
    one(
        "an acker that does not wish to be woken for what it has not told yet",
        _ACKER_NODE,
        "self.wake_s = min(self.wake_s, due_s)",
        "pass",
    ),
    one(
        "an acker that keeps to itself which batches it has heard of",
        _ACKER_NODE,
        "            self._batches,\n            news[2],\n",
        "            0,\n            news[2],\n",
        ("tests/machines/test_nodes.py", *LAWS),
    ),
    one(
        "a worker whose patience has no end",
        _WORKER_NODE,
        "        elif self._waiting and self._has_room and now_s >= self._patient_until_s():\n",
        "        elif False:\n",
        ("tests/machines/test_pacing.py",),
        ONLY_SPEED,
    ),
    one(
        "a worker that goes by another's clock",
        _WORKER_NODE,
        "            self._waiting_since_s = now_s\n        self._arrivals += 1\n",
        "            self._waiting_since_s = math.inf\n        self._arrivals += 1\n",
        ("tests/machines/test_pacing.py",),
        ONLY_SPEED,
    ),
    one(
        "what waits is given as it came",
        "drift/machines/nodes/ordering.py",
        "run = sorted_by_meta(Columns(arrived.metas, arrived.payloads, None))",
        "run = Columns(arrived.metas, arrived.payloads, None)",
        ("tests/machines/test_in_order.py",),
        NEVER_COMPLETE,
    ),
    one(
        "items that were not taken are counted as come",
        "drift/machines/worker.py",
        "heartbeat = min([heartbeat, *(columns.metas[0] for _, columns in rest or ())])",
        "heartbeat = min([heartbeat])",
        ("tests/core/test_made.py", "-k", "cut_by_what_they_make"),
        NEVER_COMPLETE,
    ),
    one(
        "attributes of a user's functions are read",
        "graph/drift_graph/functions.py",
        "return getattr(function, name, otherwise) if isinstance(function, LibraryFunction) else otherwise",
        "return getattr(function, name, otherwise)",
        ("tests/flow/test_attributes.py",),
        "its graphs have no functions with attributes",
    ),
    one(
        "an item that may be corrected is taken for one that is whole",
        _KEYED,
        "is_complete = diffs is None and metas[-1] < self.complete_below and self._log.is_above(metas[0])",
        "is_complete = diffs is None and bool(self.complete_below) and self._log.is_above(metas[0])",
        ("tests/machines/test_in_order.py",),
        NEVER_COMPLETE,
    ),
    one(
        "what a round sends to a later time is taken for what later rounds cannot precede",
        _WORKER,
        "return min(self._heartbeat, reached(self._minimal_time))",
        "return self._heartbeat",
        ("tests/flow/test_flow_rounds.py",),
        NEVER_COMPLETE,
    ),
    one(
        "what may be put into later rounds by hand is taken for what is not",
        "graph/drift_graph/operators.py",
        "return moves.rounds_from if moves is not None else BEGINNING",
        "return moves.rounds_from if moves is not None else END_OF_TIME",
        ("tests/flow/test_flow_rounds.py",),
        NEVER_COMPLETE,
    ),
    one(
        "keys of other types in the loop that finds keys and steps",
        _LOGICS,
        "            if type(key) is not kind:\n                break\n",
        "",
        ("tests/machines/test_in_order.py",),
        NEVER_COMPLETE,
    ),
    one(
        "keys of other types in the loop that finds keys and windows",
        "drift/machines/sliding.py",
        "        if type(key) is not kind:\n            break\n",
        "",
        ("tests/machines/test_in_order.py",),
        NEVER_COMPLETE,
    ),
    one(
        "a run that breaks off before all below the error is through",
        _FEED_NODE,
        "settled = not self._gathering and self.minimal_time == min(self._heartbeats, default=END_OF_TIME)",
        "settled = not self._gathering",
        ("tests/core/test_input_errors.py", "tests/machines/test_nodes.py"),
    ),
    one(
        "a barrier that breaks off with what it has released so far",
        _BARRIER_NODE,
        "self.minimal_time, breaks_off = max(self.minimal_time, message.time), True",
        "breaks_off = True",
        ("tests/machines/test_nodes.py",),
        "its runs do not end at a checkpoint",
    ),
    one(
        "a batch that cannot be carried is not taken back",
        _NODE,
        "ack = ack_of([tracked(batch)], map(tracked, batches))",
        "ack = ack_of([], map(tracked, batches))",
    ),
    one(
        "half of a batch that cannot be carried is lost",
        _NODE,
        "    return [[(name, columns.slice(0, count // 2))], [(name, columns.slice(count // 2, count))]]",
        "    return [[(name, columns.slice(0, count // 2))]]",
    ),
    one(
        "gathered batches that lose the first of them",
        "drift/machines/nodes/gathering.py",
        "for fed in several if fed.arrived.metas]",
        "for fed in several[1:] if fed.arrived.metas]",
    ),
    one(
        "a cycle whose pace is judged before what was fed is through",
        "drift/machines/nodes/pacing.py",
        "if in_flight <= self._judged_at or not self._items:",
        "if not self._items:",
        ("tests/machines/test_pacing.py",),
        "it changes how much is fed at once, and nothing that comes out",
    ),
    one(
        "batches that are on their way are counted as done",
        _FEED_NODE,
        "for number, granule in self._sent if number > processed or granule >= in_flight]",
        "for number, granule in self._sent if granule >= in_flight]",
        ("tests/machines/test_nodes.py",),
        ONLY_SPEED,
    ),
    one(
        "live sources are read as soon as they may be",
        "drift/machines/nodes/batching.py",
        "            self.next_s += min(_BETWEEN * lateness_s, _BETWEEN_S_MAX)\n",
        "            pass\n",
        ("tests/machines/test_nodes.py",),
        ONLY_SPEED,
    ),
    one(
        "checkpoints have one price, whoever waits for the output",
        _FEED_NODE,
        "price = PRICE_WITH_TIME if policy.keeps_up else PRICE_LIVE if policy.is_live else PRICE\n",
        "price = PRICE\n",
        ("tests/machines/test_nodes.py",),
        ONLY_SPEED,
    ),
    one(
        "a live source that gives little decides for one that is behind",
        "drift/machines/nodes/batching.py",
        "self.keeps_up = self.is_live and not self._behind\n",
        "self.keeps_up = self.is_live and items < self.items\n",
        ("tests/machines/test_nodes.py",),
        ONLY_SPEED,
    ),
    one(
        "who feeds does not mind what has not left yet",
        _FEED_NODE,
        "return not stuck and ahead <",
        "return ahead <",
        ("tests/machines/test_nodes.py",),
        ONLY_SPEED,
    ),
    # Minimal time.
    one(
        "minimal time without what is in flight",
        _ACKER,
        "            minimal = min(minimal, cells.peekitem(0)[0])\n",
        "            pass\n",
    ),
    one(
        "minimal time by the greatest cell",
        _ACKER,
        "minimal = min(minimal, cells.peekitem(0)[0])",
        "minimal = min(minimal, cells.peekitem(-1)[0])",
    ),
    one(
        "minimal time without the slowest source",
        _ACKER,
        "min(self._heartbeats.values()",
        "max(self._heartbeats.values()",
    ),
    one(
        "a cell that is set, not folded",
        _ACKER,
        "remaining = cells.get(granule, 0) ^ checksum",
        "remaining = checksum",
        (*LAWS, "-k", "simulated"),
    ),
    one("two messages with one checksum", _LEDGER, "        self._sent += 1\n", ""),
    # The output barrier.
    one(
        "<= for < at release",
        _BARRIER,
        "        taken = self._take_below(minimal_time)\n",
        '        taken = self._take_below(minimal_time + b"\\xff")\n',
    ),
    one(
        "items counted by meta alone",
        _BARRIER,
        "    forms = dict(zip(every, forms_of(in_order(payloads, every))))\n",
        '    forms = dict.fromkeys(every, b"")\n',
    ),
    one(
        "failures released early",
        _BARRIER,
        "        self._failures = self._failures or sink == FAILURES\n",
        "        self._failures = self._failures or sink == FAILURES\n"
        "        if sink == FAILURES and columns.diffs is None:\n"
        "            raise step_error(columns.payloads[0], columns.metas[0])\n",
    ),
    one(
        "a failure in the words of one that was taken back",
        _BARRIER,
        "        if may_fail and any(type(payloads[index]) is Failure for index in indices):\n",
        "        if False:\n",
        BARRIER,
    ),
    one(
        "items before a failure not released",
        _BARRIER,
        "                metas, payloads = metas[:first], payloads[:first]\n        try:",
        "                metas, payloads = metas[:0], payloads[:0]\n        try:",
    ),
    one("blocks of another size", _DIGEST, "BLOCK_ITEMS = 4096", "BLOCK_ITEMS = 4095", GOLDEN, SAME_CODE),
    # Metas and ranks.
    Breakage(
        "rank left out of the meta",
        [
            Edit(_META, "    head = varint(rank)\n", '    head = b""\n'),
            Edit(_MAPS, "self.only_child = self._rank + varint(0)", "self.only_child = varint(0)"),
            Edit(
                _REFERENCE,
                "placed_all(incoming, varint(rank), family, below == END_OF_TIME)",
                'placed_all(incoming, b"", family, below == END_OF_TIME)',
            ),
        ],
    ),
    one(
        "ranks from the top down",
        _RANKS,
        "    ranked.sort(key=lambda name: heights[name])",
        "    ranked.sort(key=lambda name: -heights[name])",
    ),
    one(
        "a scan's state of a rank that is not the lowest",
        _RANKS,
        "    ranked.sort(key=lambda name: heights[name])",
        '    ranked.sort(key=lambda name: heights[name] + 100 * name.endswith(".state"))',
    ),
    one(
        "what leads round to a scan may come before its state",
        _RANKS,
        "        if step not in reached([grouping], feeds.__getitem__):\n",
        "        if False:\n",
    ),
    # The keyed stage.
    one(
        "settled rows dropped that a state is kept below",
        _LOG,
        "        at = bisect_right(self.kept_at, settled) - 1\n        if at > 0:",
        "        at = bisect_right(self.kept_at, settled)\n        if 0 < at < len(self.kept_at):",
        STAGES,
        "its least case has five items",
    ),
    one(
        "states kept above rows that a tombstone took",
        _KEYED,
        "        history.drop_places()\n",
        "",
        STAGES,
        "its least case has seven changes, and a log that forgets one between them",
    ),
    one(
        "what a user's logic stored counts, although the call raised",
        _LOGIC,
        "        call(own, each, self._into(made))\n",
        "        try:\n            call(own, each, self._into(made))\n"
        "        finally:\n            states.update(own)\n",
        OWN,
        NO_OWN,
    ),
    one(
        "a row for which a user's logic gives nothing is not noticed",
        _LOGIC,
        "        if len(made) != rows:\n",
        "        if len(made) > rows:\n",
        OWN,
        NO_OWN,
    ),
    one(
        "a user's logic with timers forgets its states",
        _LOGIC,
        "                states[key] = own[key]\n",
        "                pass\n",
        OWN,
        NO_OWN,
    ),
    one(
        "the reference gives a logic no key of a timer",
        _LOGIC,
        "return identity(payload.key), payload.note",
        "return None, payload.note",
        OWN,
        NO_OWN,
    ),
    one(
        "the reference gives a logic the key of a row as it is, and stages its identity",
        _LOGIC,
        "return identity(self.logic.key(payload)), payload",
        "return str(self.logic.key(payload)), payload",
        OWN,
        NO_OWN,
    ),
    one(
        "the harness calls logics with one row alone",
        "drift/testing/logics.py",
        "            for size in (len(batch), 2) if batch else ():\n",
        "            for size in (1,):\n",
        OWN,
        "the harness is a row of its own",
    ),
    one(
        "a window begins with the state of the batch's first key",
        _LOGICS,
        "window = find(key, ())[tail_start:] + (payload,)",
        "window = states.get(rows.keys[0], ())[tail_start:] + (payload,)",
        ("tests/machines/test_logics.py",),
    ),
    one(
        "a window that is one payload too short",
        _LOGICS,
        "self._tail_start = 1 - window or 1",
        "self._tail_start = 2 - window or 1",
    ),
    one(
        "items in between taken for in order",
        _LOG,
        "        if not at:\n            return Keyed(Metas(), [], []), batch\n",
        "        if True:\n            return Keyed(Metas(), [], []), batch\n",
    ),
    one(
        "the state after a correction that ran to the end is the old one",
        _KEYED,
        "        if stopped_at is None:\n            if self.is_timed:",
        "        if stopped_at is None:\n            self._put_state(key, old.state)\n            if self.is_timed:",
    ),
    one(
        "a key goes back to a place above the change",
        _LOG,
        "return max(bisect_right(self.kept_at, meta) - 1, 0)",
        "return min(bisect_right(self.kept_at, meta), len(self.kept_at) - 1)",
    ),
    one(
        "the state before a batch is that after it",
        _KEYED,
        "                befores.update(zip(distinct, map(self._states.get, distinct, repeat(self._initial))))\n"
        "            self._logic.on_batch(self._states, KeyedItems(keys, payloads, metas), made.append)\n",
        "            self._logic.on_batch(self._states, KeyedItems(keys, payloads, metas), made.append)\n"
        "            if befores is not None:\n"
        "                befores.update(zip(distinct, map(self._states.get, distinct, repeat(self._initial))))\n",
    ),
    one(
        "what is sent of a correction begins behind the change",
        _KEYED,
        "        alike = bisect_left(old.rows, first, key=_meta_of)",
        "        alike = bisect_left(old.rows, first + b'\\0', key=_meta_of)",
    ),
    one(
        "a timer that has fired below a change fires no more",
        _KEYED,
        "                    self._fire_below(key, old.rows[below - 1].meta, fired, including=True)\n",
        "                    pass\n",
        TIMED,
        NO_TIMERS,
    ),
    one(
        "a timer that fires within a batch is not logged",
        _KEYED,
        "                every = _merged(batch, made, fired)\n",
        "                every = list(metas), keys, payloads, made\n",
        TIMED,
        NO_TIMERS,
    ),
    one(
        "timers of a key fire before its items that came with a correction",
        _KEYED,
        "whole_keys=self.is_timed)",
        "whole_keys=False)",
        TIMED,
        NO_TIMERS,
    ),
    one(
        "old and new compared by ==",
        _CHANGES,
        "(old is not NOTHING and new is not NOTHING and same(old, new))",
        "(old is not NOTHING and new is not NOTHING and old == new)",
    ),
    one(
        "a tombstone that is not sent",
        _CHANGES,
        "        if old is not NOTHING:\n",
        "        if old is not NOTHING and new is not NOTHING:\n",
    ),
    one(
        "a tombstone that takes back another payload",
        _KEYED,
        "        while at < len(items) and items[at].meta == meta and not same(items[at].subject, payload):\n"
        "            at += 1\n",
        "",
    ),
    one(
        "early stop by == instead of canonical sameness",
        _KEYED,
        "(current is not BLOCKED and same(current, state))",
        "current == state",
        STAGES,
        "states are kept between eight rows of a key, not in cases as small as its own",
    ),
    one(
        "early stop at a place at a change",
        _KEYED,
        "for at, state in zip(old.kept_at, old.kept) if at > last}",
        "for at, state in zip(old.kept_at, old.kept) if at >= first}",
        unseen="states are kept between eight rows of a key, not in cases as small as its own",
    ),
    one(
        "what was logged dropped at its first item",
        _LOG,
        "        self._segments[number] = _Segment(number, metas, keys, payloads, made, befores)\n"
        "        insort(self._lasts, (metas[-1], number)",
        "        self._segments[number] = _Segment(number, metas, keys, payloads, made, befores)\n"
        "        insort(self._lasts, (metas[0], number)",
    ),
    one(
        "what was drawn from the log drawn again",
        _LOG,
        "else self._by_key()).pop(key, None)",
        "else self._by_key()).get(key, None)",
        STAGES,
    ),
    one(
        "items below others of their key taken for in order, the first of them",
        _LOG,
        "            keys.update(segment.keys[at:])",
        "            keys.update(segment.keys[at + 1 :])",
    ),
    one(
        "a segment is cut and its states stay those before what went",
        _LOG,
        "                self.befores[key] = replay(key, self.befores[key], self._rows(each[:at]))",
        "                pass",
        STAGES,
    ),
    *(
        one(name, f"drift/state/{file}", old, new, ("tests/state/test_state_laws.py", "-k", "whatever"), NO_CHECKPOINTS)
        for name, file, old, new in (
            (
                "a checkpoint is written into older data",
                "store.py",
                "            all_expected = [*([self._last] if self._last is not None else []), *expected]\n",
                "            all_expected = list(expected)\n",
            ),
            (
                "a checkpoint is written above merged states that are older",
                "store.py",
                "*([as_merged(merged)] if merged else [])",
                "",
            ),
            (
                "no look at whether there are checkpoints after one was written",
                "store.py",
                "        if numbers[-1:] != [number_of(self._last.key)]:\n",
                "        if False:\n",
            ),
        )
    ),
    one(
        "what is told of a run is written beside a checkpoint",
        "drift/state/store.py",
        "        self.wait()\n        self._end_writer()\n",
        "        self.wait()\n        self._has_failed = False\n",
        ("tests/state/test_state_storage.py", "-k", "ctrl_c"),
        NO_CHECKPOINTS,
    ),
    one(
        "a run is told of behind a checkpoint that could not be written",
        "drift/state/store.py",
        "began_s, self._has_failed = time.monotonic(), True",
        "began_s, self._has_failed = time.monotonic(), False",
        ("tests/state/test_state_storage.py", "tests/state/test_state_laws.py"),
        NO_CHECKPOINTS,
    ),
    one(
        "Ctrl-C leaves a run waiting for a store that is away",
        "drift/running/runs.py",
        "if any(each is not None and not isinstance(each, Exception) for each in (error, self._outcome[1])):",
        "if False:",
        ("tests/state/test_state_storage.py", "-k", "ctrl_c"),
        NO_CHECKPOINTS,
    ),
    one(
        "Ctrl-C leaves a run that has read all waiting for a store that is away",
        "drift/running/runs.py",
        "            closing.push(self._settle)  # before that too: Ctrl-C may have come since the first time\n",
        "",
        ("tests/state/test_state_storage.py", "-k", "ctrl_c"),
        NO_CHECKPOINTS,
    ),
    one(
        "Ctrl-C leaves the segments of a run waiting for a store that is away",
        "drift/segments/chain.py",
        "            each.give_up()\n",
        "            pass\n",
        ("tests/state/test_state_storage.py", "-k", "ctrl_c"),
        NO_CHECKPOINTS,
    ),
    one(
        "sources are closed before the last checkpoint is written",
        "drift/running/runs.py",
        "            closing.push(self._settle)\n        closing.callback(self._watching.close)\n",
        "            pass\n        closing.callback(self._watching.close)\n",
        ("tests/state/test_state_closing.py",),
        NO_CHECKPOINTS,
    ),
    one(
        "the seconds of a run count from where it was made",
        "drift/web/life.py",
        "self.began_s: float | None = None",
        "self.began_s: float | None = time.monotonic()",
        ("tests/command/test_web.py", "-k", "goes_on_where"),
        "it has no page",
    ),
    one(
        "timers in a checkpoint that nobody reads at once",
        "drift/state/run_checkpoints.py",
        "Forms(dataflow, timed_steps(plan), checkpoints.classes)",
        "Forms(dataflow, (), checkpoints.classes)",
        ("tests/state/test_state.py", "-k", "window_open"),
        NO_CHECKPOINTS,
    ),
    one(
        "a stage that takes every batch for the last",
        _LOG,
        " <= self._last else 0\n        self._last = max(self._last, metas[-1])",
        " <= self._last else 0\n        self._last = metas[-1]",
    ),
    one("debts not kept", _KEYED, "            self._debts.owe(meta, payload)", "            pass"),
    one(
        "a state after a failed step",
        _KEYED,
        "        self._states[key] = BLOCKED\n        self._blocked[key] = None\n",
        "",
    ),
    one(
        "a failed step at the meta of its output",
        _KEYED,
        "self._failure_suffix = ranks[0] + ranks[1]",
        "self._failure_suffix = ranks[0] + ranks[-1]",
    ),
    # Maps, workers, keys.
    one(
        "a filter that forgets which items are tombstones",
        _MAPS,
        "payloads, None if diffs is None else list(compress(diffs, selected)))",
        "payloads, None)",
    ),
    one(
        "diamonds merged in the wrong order",
        _WORKER,
        "    return [sorted_by_meta(joined(batches))]\n",
        "    return [joined(batches[::-1])]\n",
        unseen="it takes three deviations for two ways to meet in another order",
    ),
    one("stages run in the wrong order", _PLAN, "    return found[::-1]\n", "    return found\n"),
    one(
        "tombstones that become items on their way to another worker",
        "graph/drift_graph/item.py",
        "        diffs = None if self.diffs is None else list(compress(self.diffs, wanted))",
        "        diffs = None",
    ),
    Breakage(
        "key identity by ==",
        [
            Edit(_CANONICAL, "= frozenset({str, int, type(None)})", "= frozenset({str, int, type(None), bool, float})"),
            Edit("kernel/drift_kernel/keys.pyx", "int or value", "int or kind == <PyObject *>float or value"),
        ],
    ),
    Breakage(
        "partition by hash()",
        [
            Edit(_KEYS, "return hash64(key) % self.workers", "return hash(key) % self.workers"),
            Edit(
                _KEYS,
                "xxhash.xxh64_intdigest(form_of_identity(identity)) % self._workers",
                "hash(form_of_identity(identity)) % self._workers",
            ),
        ],
        GOLDEN,
        "in one process a key has one hash, whichever way its owner is found",
    ),
    # Sources.
    one(
        "ties by arrival",
        _TIMES,
        "        times = times[: len(ties)]\n",
        "        times, ties = times[: len(ties)], array('Q', range(self.items_in, self.items_in + len(ties)))\n",
    ),
    one(
        "lateness judged by batch",
        _LATENESS,
        "behind, greatest = late_of(known, self._above(known[0]), self.least, policy.lateness)",
        "behind, greatest = late_of(known[:1], self._above(known[0]), self.least, policy.lateness)",
        ("tests/core/test_source_machines.py",),
        SAME_CODE,
    ),
    *(
        one(
            name,
            file,
            old,
            new,
            (
                "tests/core/test_moments.py",
                "tests/core/test_rereading.py",
                "-k",
                "future or wrong or gap or held or ahead or waits",
            ),
            SAME_CODE,
        )
        for name, file, old, new in (
            (
                "a held item is not set apart where items go on below it",
                _LATENESS,
                "if each.seen < seen and each.time > reach]",
                "if False]",
            ),
            (
                "what comes in front of an item speaks against it",
                _LATENESS,
                "if each.seen < seen and each.time > reach]",
                "if each.time > reach]",
            ),
            (
                "a held item that is alone below others is accepted",
                _LATENESS,
                "for each in below if len(each) > 1 for item in each",
                "for each in below for item in each",
            ),
            ("held items are lost at the end", _LATENESS, "while self.held and judged.error is None:", "while False:"),
            ("a held item waits for ever", _LATENESS, "self.seen - self.held[0].seen >= WAIT_ITEMS", "False"),
            (
                "items are counted by batches",
                _LATENESS,
                "            self.seen += 1\n",
                "            self.seen += not judged.times\n",
            ),
            ("a gap that was closed sets apart", _LATENESS, "if each.time <= limit), None)", "if False), None)"),
            (
                "rows of a batch are taken over a gap",
                _LATENESS,
                "return int(max(map(sub, times",
                "return True or int(max(map(sub, times",
            ),
            ("the first items are believed whatever they are", _LATENESS, "len(times) >= AGREEING and", "True or"),
            (
                "items that are held are not read again",
                "graph/drift_graph/rereading.py",
                "        if self._goes_on:\n",
                "        if False:\n",
            ),
            (
                "the position is behind items that are held",
                "graph/drift_graph/rereading.py",
                "while len(batches) > self._goes_on and",
                "while batches and",
            ),
        )
    ),
    one(
        "a heartbeat one too high",
        _LATENESS,
        "max(self.least, self.greatest - lateness, TIME_MIN)",
        "max(self.least, self.greatest - lateness + 1, TIME_MIN)",
    ),
    one(
        "an idle source that takes items older than its heartbeat",
        _TIMES,
        "            self._lateness.least = least\n",
        "",
        ("tests/testing/test_testing.py", "-k", "live_sources"),
        "few of its sources fall idle, and it takes many deviations",
    ),
    one(
        "an idle source whose heartbeat is that of the fastest of the others",
        "drift/machines/nodes/intake.py",
        "return min(others",
        "return max(others",
        IDLE,
        "few of its sources fall idle, and it takes many deviations",
    ),
    # Canonical bytes.
    Breakage(
        "NaN by its bits",
        [
            Edit(_CANONICAL, "return _encode(value) if value == value else _NAN", "return _encode(value)"),
            Edit(
                "kernel/drift_kernel/encode.pyx",
                "    if value == value:\n        memcpy",
                "    if True:\n        memcpy",
            ),
        ],
        GOLDEN,
        SAME_CODE,
    ),
    one(
        "dicts in the order of insertion",
        _CANONICAL,
        "    pairs = sorted((_canonical(key), _canonical(item)) for key, item in value.items())",
        "    pairs = [(_canonical(key), _canonical(item)) for key, item in value.items()]",
        CANONICAL,
        SAME_CODE,
    ),
    one("1 and True one value", _CANONICAL, "    if type(left) is not type(right):\n", "    if False:\n", CANONICAL),
    # Checkpoints.
    one(
        "an item at the checkpoint is taken for one below it",
        "drift/machines/log.py",
        "        return replay(key, self.kept[at], self.rows[start : bisect_left(self.metas, checkpoint)])\n",
        "        return replay(key, self.kept[at], self.rows[start : bisect_right(self.metas, checkpoint)])\n",
        CHECKPOINTS,
        NO_CHECKPOINTS,
    ),
    one(
        "the latest state in place of that as of the checkpoint",
        _KEYED,
        "        befores = {key: history.state_at(checkpoint, key, self._replayed) for key, history in wanted}\n",
        "        befores: dict[Any, Any] = {}\n",
        CHECKPOINTS,
        NO_CHECKPOINTS,
    ),
    one(
        "a window that has ended before its time takes items again",
        "drift/flow/early.py",
        "        if state is CLOSED and not self.item.opens_again:\n            return state, ()\n",
        "",
        ("tests/flow/test_flow_windows.py", "-k", "is_enough"),
        "its graphs have no windows that end so",
    ),
    one(
        "a plot does not see what the times were",
        "drift/engines/feed.py",
        "            self.firsts.setdefault(batch.name, batch.arrived.payloads[0])\n",
        "            pass\n",
        ("tests/command/test_web.py", "-k", "of_whatever_year"),
        "nothing is plotted in them",
    ),
    one(
        "a window that its end belongs to ends before it",
        "drift/flow/early.py",
        "    further: ClassVar = 1\n",
        "    further: ClassVar = 0\n",
        ("tests/flow/test_flow_windows.py", "-k", "tumbling_windows_have"),
        "its graphs have no windows closed at both ends",
    ),
    one(
        "a session that opens again sets a second timer",
        "drift/flow/early.py",
        "            outputs = ()  # the timer is there\n",
        "            pass\n",
        ("tests/flow/test_flow_windows.py", "-k", "is_enough"),
        "its graphs have no windows that end so",
    ),
    one(
        "a sliding window stands where an earlier one of its key began",
        "drift/flow/windows.py",
        "(due(first + self.size, part.key),) if first <= start else ()\n",
        "()\n",
        ("tests/flow/test_flow_windows.py", "-k", "sliding"),
        "its graphs have no sliding windows",
    ),
    one(
        "a timer that has come above the checkpoint is lost",
        _KEYED,
        "    found = [due for due in timers if due.set_at < place]\n    start",
        "    return [due for due in timers if due.set_at < place]\n    start",
        CHECKPOINTS,
        NO_CHECKPOINTS,
    ),
    one(
        "later items are not sent again",
        "drift/machines/sent.py",
        "        return self._sent\n",
        "        return []\n",
        CHECKPOINTS,
        NO_CHECKPOINTS,
    ),
    one(
        "later items are sent again whatever they were made of",
        "drift/machines/sent.py",
        "if each.origin < checkpoint <= each.meta]\n        return self._sent",
        "if checkpoint <= each.meta]\n        return self._sent",
        CHECKPOINTS,
        NO_CHECKPOINTS,
    ),
    one(
        "what waits for its time is not forgotten",
        _WORKER,
        "            waiting.clear()\n",
        "            pass\n",
        CHECKPOINTS,
        NO_CHECKPOINTS,
    ),
    one(
        "tombstones that wait above the checkpoint are not forgotten",
        _KEYED,
        "        self._debts.rewind(checkpoint)\n",
        "",
        CHECKPOINTS,
        NO_CHECKPOINTS,
    ),
]
