"""An engine of one's own: registered in this file, and known wherever the others are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import drift
from drift.all_engines import engine_names
from drift.cli import drift as command
from drift.engines.base import Progress
from drift.engines.feed import Feed
from drift.engines.kinds import EngineKind, register
from drift.engines.observed import Observed, own_state
from drift.engines.settings import Settings, setting
from drift_barrier.barrier import Released
from drift_barrier.digest import Digest
from drift_graph.graph import Dataflow
from drift_graph.meta import END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.numbers import why_no_int
from drift_graph.reference import Reference


@dataclass(frozen=True)
class AtEndSettings(Settings):
    """Its output comes in batches of so many items."""

    output_items: int = setting(10, why_no_int, "Items of a released batch (at-end).", kind=int)


class AtEndEngine:
    """Reads all there is, and then computes it."""

    needs_items = True
    sizes: list[int]

    def __init__(self, dataflow: Dataflow, feed: Feed, settings: AtEndSettings) -> None:
        self.progress = Progress()
        self._feed, self._output_items = feed, settings.output_items
        self._reference = Reference(dataflow)
        self._digest = Digest(settings.digest)
        AtEndEngine.sizes = []

    def released(self) -> Iterator[Released]:
        progress, minimal = self.progress, b""
        while minimal != END_OF_TIME:
            for name, _, arrived in self._feed.poll(minimal):
                minimal = arrived.heartbeat
                for meta, payload in zip(arrived.metas, arrived.payloads):
                    self._reference.push(name, meta, payload)
        progress.items_in = self._feed.items_in
        done = list(self._reference.pop(END_OF_TIME))
        for start in range(0, len(done), self._output_items):
            sinks, each, payloads = map(list, zip(*done[start : start + self._output_items]))
            metas = Metas(each)
            self._digest.add(metas, payloads)
            progress.items_out += len(metas)
            AtEndEngine.sizes.append(len(metas))
            yield Released(start, metas, payloads, sinks)  # type: ignore[arg-type]
        progress.minimal_bytes = END_OF_TIME

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def blocks(self) -> list[bytes]:
        return self._digest.blocks

    def observed(self) -> Observed:
        return Observed(processes=[own_state("run")])

    def close(self) -> None:
        self._feed.close()


AT_END = EngineKind("at-end", AtEndEngine, AtEndSettings)
register(AT_END)

GRAPH = """
import drift

graph = drift.Graph("running")
graph.source("n").scan(key=lambda n: n % 3, initial=0, step=lambda sum, n: (sum + n, (n, sum + n))).sink("sums")
"""


def graph_of(folder: Path) -> Any:
    (folder / "running.py").write_text(GRAPH)
    from drift.load import load_dataflow

    return load_dataflow(f"{folder / 'running.py'}:graph")


def test_it_runs_with_settings_of_its_own_and_gives_what_the_others_give(tmp_path: Path) -> None:
    graph = graph_of(tmp_path)
    report = drift.run(graph, {"n": range(50)}, engine=AT_END, output_items=20).finish()
    assert AtEndEngine.sizes == [20, 20, 10]
    assert report.digest == drift.run(graph, {"n": range(50)}).finish().digest
    assert (report.engine, report.workers, report.items_in, report.items_out) == ("at-end", 1, 50, 50)


def test_its_settings_are_checked_and_are_of_it_alone(tmp_path: Path) -> None:
    graph = graph_of(tmp_path)
    with pytest.raises(drift.SettingsError, match="output_items=0 is not an int of 1 or more"):
        drift.run(graph, {"n": []}, engine="at-end", output_items=0)
    with pytest.raises(drift.SettingsError, match="output_items=5 is a setting of engine='at-end', and this run"):
        drift.run(graph, {"n": []}, output_items=5)
    with pytest.raises(drift.SettingsError, match="takes no checkpoints; leave out state=, or use 'local'"):
        drift.run(graph, {"n": []}, engine="at-end", state=tmp_path / "state")
    with pytest.raises(drift.SettingsError, match="an engine 'local' already"):
        register(EngineKind("local", AtEndEngine))


def test_records_name_it_and_are_replayed_and_audited_by_it(tmp_path: Path) -> None:
    graph = graph_of(tmp_path)
    digest = drift.run(graph, {"n": range(50)}, engine="at-end", record=tmp_path / "record").finish().digest
    record = drift.Record(tmp_path / "record")
    assert (record.manifest.engine, record.manifest.settings["output_items"]) == ("at-end", 10)
    assert drift.replay(tmp_path / "record", graph, engine="at-end", output_items=7).finish().digest == digest
    found = drift.audit(tmp_path / "record", graph, engines=["at-end", "local"])
    assert found.ok
    assert [check.what for check in found.checks if check.what.startswith("engine")] == [
        "engine at-end",
        "engine local",
    ]


def test_the_command_line_knows_it(tmp_path: Path) -> None:
    graph_of(tmp_path)
    (tmp_path / "n.jsonl").write_text("".join(f"{n}\n" for n in range(50)))
    call = ["run", f"{tmp_path / 'running.py'}:graph", "--source", str(tmp_path / "n.jsonl"), "--json"]
    mine = json.loads(CliRunner().invoke(command, [*call, "--engine", "at-end"]).stdout)
    assert AtEndEngine.sizes == [10] * 5
    local = json.loads(CliRunner().invoke(command, call).stdout)
    assert (mine["engine"], mine["digest"]) == ("at-end", local["digest"])
    assert engine_names()[-1] == "at-end"
    refused = CliRunner().invoke(command, [*call, "--engine", "none"])
    assert "engine='none'; there are local, reference, zeromq, spark, at-end" in refused.output + str(refused.exception)
