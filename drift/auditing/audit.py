"""An audit: is the record intact, is it unchanged, and does its run give the same output again?

Invariant: a check that was requested and could not be made is a row that says so; no level passes by omission.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from drift.all_engines import engine_kind
from drift.auditing.checks import Audit, Check, Trouble, judged
from drift.auditing.intact import intact_checks, unreadable
from drift.auditing.replay import changes_since, dataflow_of
from drift.records.format import MANIFEST, Manifest, RecordEdited, RecordError, Snapshot, read_snapshot
from drift.records.reader import Record
from drift.records.watch import Watch
from drift.records.writing import current_manifest
from drift.streams import Graph
from drift_graph.called import called
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.restore import CannotRestore

#: Tables without which a run cannot be reproduced.
_NEEDED = ("arrivals", "input", "late", "answers")


class Again(NamedTuple):
    """How a record's input is computed again, as `audit` is asked to.

    Attributes:
        ways: engines, each with a number of workers.
    """

    graph: Graph | Dataflow | str | None
    ways: Sequence[tuple[str, int]]
    seeds: Sequence[int]
    cases: str | os.PathLike[str] | None
    was: Graph | Dataflow | str | None


@called
def audit(
    path: Any,
    graph: Graph | Dataflow | str | None = None,
    *,
    reproduce: bool = True,
    engines: Sequence[str] = ("local",),
    workers: Sequence[int] = (2,),
    seeds: Sequence[int] = (),
    expect: str = "",
    key: Any = None,
    cases: str | os.PathLike[str] | None = None,
    was: Graph | Dataflow | str | None = None,
    ask_again: bool = False,
    watch: Watch | None = None,
) -> Audit:
    """Check a record; the result has one row for each check, and `ok`.

    >>> import drift
    >>> graph = drift.Graph("zones")
    >>> graph.source("zones").count(key=str).sink("out")
    >>> report = drift.run(graph, {"zones": ["JFK", "LGA", "JFK"]}, record="monday").finish()
    >>> drift.audit("monday", graph, engines=["reference"]).ok
    True

    Args:
        path: the record; `drift.Record(path, classes=...)` if the graph's modules lack classes of payloads.
        graph: the graph to run; by default that at the target that the record names.
        reproduce: False checks the files only, and runs nothing.
        engines: that run it again.
        workers: numbers of workers for engines that have several, each in turn.
        seeds: of schedules for the simulated engine, for records of up to 200,000 items.
        expect: the record's hash, as noted when it was made: `Record.hash`.
        key: a public key, or its file: the record must be signed with its private key.
        cases: a folder: a divergence is written there as a small case file, for `drift simulate --case`.
        was: the graph that the record was made with, if `graph` is another one: then the report shows the lineages of
            the recorded and the computed item side by side, with every payload between.
        ask_again: whether what calls were asked in the recorded run is asked again: the report shows which answers are
            others now. All else takes the recorded answers, and asks nothing.
        watch: follows the progress.

    Raises:
        SettingsError, GraphError: an argument is wrong, or the graph cannot be loaded.
        RecordError: there is no record.
    """
    again = Again(
        graph,
        [(engine, count) for engine in engines for count in (workers if engine_kind(engine).has("workers") else (1,))],
        seeds,
        cases,
        was,
    )
    folder = Path(path.path if isinstance(path, Record) else path)
    snapshot = _snapshot(folder)  # one for all checks: a record may grow meanwhile
    started, began = datetime.now(UTC).isoformat(), time.perf_counter()
    checks: list[Check] = []
    watch = watch or Watch()

    record = None
    if isinstance(snapshot, RecordError):
        checks.append(unreadable(snapshot))
    else:
        classes = path.classes if isinstance(path, Record) else ()
        record = Record.at(folder, current_manifest(folder, snapshot.manifest), classes)
        record.watch = watch
        checks += intact_checks(folder, snapshot, watch)
    checks += _authentic(folder, record, expect, key)
    if reproduce:
        checks += _reproduced(record, again, [trouble for check in checks for trouble in check.troubles])
    if ask_again and record is not None and reproduce:
        from drift.auditing.asked_again import check_asked_again

        watch.begin("asking again", record.counts)
        checks += check_asked_again(record, dataflow_of(record, graph))
    summary = summary_of(record.manifest) if record is not None else {}
    signed = key is not None and all(check.result == "ok" for check in checks if check.level == "signed")
    proves, proves_not = _meaning(signed or bool(expect), checks, reproduce)
    took_s = time.perf_counter() - began
    return Audit(str(folder), summary, started, took_s, tuple(checks), tuple(proves), tuple(proves_not))


def _snapshot(folder: Path) -> Snapshot | RecordError:
    """The record as it is now, or why it cannot be read. Raises RecordError: there is no record."""
    try:
        return read_snapshot(folder)
    except RecordError as error:
        if isinstance(error.__cause__, OSError) or not (folder / MANIFEST).exists():
            raise
        return error


def _authentic(folder: Path, record: Record | None, expect: str, key: Any) -> Iterator[Check]:
    if expect:
        found = record.hash if record is not None else ""
        text = f"the record has hash {found}, and {expect} was expected: it is another record, or was changed"
        troubles = [Trouble("not the expected record", text, MANIFEST)] if found != expect else []
        yield judged("signed", "the record's hash", "the expected hash", troubles, "the same")
    if key is not None:
        from drift.auditing.signature import check_signature

        yield check_signature(folder, key)


def _reproduced(record: Record | None, again: Again, troubles: Sequence[Trouble]) -> Iterator[Check]:
    bad = [trouble for trouble in troubles if _is_needed(trouble)]
    if record is None or bad:
        found = f"not with this record, which is damaged: {bad[0].text}"
        yield Check("reproduced", "the run", "the recorded output", "not checked", found)
        return
    from drift.auditing.reproduced import Inquiry, check_graph, check_run, check_simulated, check_versions

    watch = record.watch
    watch.begin("comparing graphs", record.counts)
    dataflow = dataflow_of(record, again.graph)
    try:
        yield check_graph(record, dataflow)
    except RecordEdited as error:
        yield Check("reproduced", "the run", "the recorded output", "not checked", f"not with this record: {error}")
        return
    yield check_versions(record)
    target = again.graph if isinstance(again.graph, str) else ""
    inquiry = Inquiry(again.cases, target, _was(record, again.was))
    try:
        for engine, workers in again.ways:
            watch.begin(f"computing it again, by {engine}")
            yield check_run(record, dataflow, engine, workers, inquiry)
        for seed in again.seeds:
            watch.begin(f"computing it again, simulated by seed {seed}")
            yield check_simulated(record, dataflow, seed, inquiry)
    except RecordError as error:  # all its hashes agree, and still no run writes such a record
        yield judged("reproduced", "the run", "the recorded output", [Trouble("not of a run", str(error))], "")
    except CannotRestore as error:
        found = f"a recorded payload cannot be read: {error}"
        yield Check("reproduced", "the run", "the recorded output", "not checked", found)


def _was(record: Record, was: Graph | Dataflow | str | None) -> Dataflow | None:
    """The graph in `was`, if it is the recorded one."""
    if was is None:
        return None
    dataflow = dataflow_of(record, was)
    differ = [change.text for change in changes_since(record, dataflow) if change.matters]
    if differ:
        raise SettingsError(
            f"was={was if isinstance(was, str) else dataflow.name!r} is not the graph that {record.path} was made "
            f"with: {'; '.join(differ[:3])}; give the recorded version, or leave it out"
        )
    return dataflow


def _is_needed(trouble: Trouble) -> bool:
    return trouble.file.startswith(_NEEDED) or trouble.kind == "manifest unreadable"


def summary_of(manifest: Manifest) -> dict[str, Any]:
    """The head of a report on a record."""
    names = (
        "graph", "target", "engine", "workers", "drift", "python", "platform", "started", "ended", "items_in",
        "late_items", "items_out", "algorithm", "digest", "input_digest",
    )  # fmt: skip
    outcome = manifest.outcome
    return {
        **{name: getattr(manifest, name) for name in names},
        "hash": manifest.self_hash,
        "outcome": outcome.state,
        "error": outcome.error,
    }


def _meaning(authentic: bool, checks: list[Check], reproduce: bool) -> tuple[list[str], list[str]]:
    """What an audit without trouble proves, and what it does not."""
    if any(check.result == "trouble" for check in checks):
        return [], []
    proves = ["Nothing in the record has changed by accident since it was written."]
    proves_not: list[str] = []
    if authentic:
        proves.append("Nobody has changed it since it was signed, or its hash was noted.")
    else:
        proves_not.append(
            "That nobody changed it on purpose: whoever changes a record can recompute its hashes. Keep the record's "
            "hash elsewhere, or sign it."
        )
    done = [check for check in checks if check.level == "reproduced" and check.result == "ok"]
    if any(check.what.startswith(("engine", "simulated")) for check in done):
        proves.append("The graph gives the recorded output for the recorded input, in each of the ways listed.")
    elif reproduce:
        proves_not.append("That the output is what the graph gives for the input: it was not computed again.")
    else:
        proves_not.append("That the output is what the graph gives for the input: nothing was computed again.")
    proves_not.append("That the input was true: what the sources gave was recorded as it came.")
    return proves, proves_not
