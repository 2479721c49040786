"""A run: a graph, its inputs and an engine, and the output as an iterator.

Invariant: items come out in the order of their positions, each sink has been given an item before the caller is, and
when the iteration ends, for whatever reason, everything the run had started or opened is gone.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

from drift.all_engines import EngineKind, EngineName, engine_kind, engine_kinds
from drift.engines.base import Engine, Progress, peak_memory_bytes
from drift.engines.feed import Feed, taker_of_late
from drift.engines.observed import Observed, SourceState
from drift.engines.recorded import RecordedFeed, RecordEnds
from drift.engines.settings import Settings
from drift.extras import need
from drift.guarantees import Guarantee, guarantee
from drift.logged import RunLog
from drift.pieces import Pieces, called_on, taken_in_a_thread
from drift.segments.chain import Chain, Keepers
from drift.sinks.base import Sink, as_sink
from drift.sources.base import Source, as_source
from drift.sources.frames import FrameSource
from drift.state.cut import Cut
from drift.state.keeping import Cuts, Keeper, Keeps, log_folder_of
from drift.streams import ERRORS, Graph
from drift.undisturbed import undisturbed
from drift_barrier.barrier import Released
from drift_barrier.digest import Digest
from drift_graph.errors import SettingsError, SinkError
from drift_graph.graph import Dataflow
from drift_graph.item import Item, items
from drift_graph.lateness import Late
from drift_graph.meta import END_OF_TIME
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy
from drift_graph.unchanged import Sample, Sampler

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

    from drift.purity import PurityCheck
    from drift.records.recorder import Recorder, Recording
    from drift.web.server import LivePage
    from drift.web.telemetry import Telemetry

#: Makes what an engine reads, given who takes late items and how many items it reads at once.
MakeFeed = Callable[[Callable[[Late], None], int], Feed]

#: A source that holds the output back is told of when it has given nothing for so long.
SILENT_S = 10.0


@dataclass(frozen=True)
class Report:
    """What a run did.

    Attributes:
        digest: of the output released; equal for equal output. "" where none can be told: nothing ran, or over zeromq
            the run goes on, was left before its end, or lost a process.
        items_in, items_out: read from all sources, released to all sinks.
        tombstones: taken back by groupings before release.
        late_items: diverted.
        seconds: wall clock, start to end.
        peak_memory_bytes: resident, all processes of the run added.
        refused_frames: malformed or foreign messages that came and were not taken (zeromq).
        guarantee: how often each item of the output is in the sinks, whatever dies, and because of whom; "" of replays.
        died: processes of the run that died and were replaced, in order (zeromq, with recover).
        recoveries, fed_again, recovering_s: how often the run went back and was where it had been again, how many items
            of the input were given to the workers again for it, and how many seconds it took in all.
    """

    graph: str
    engine: str
    workers: int
    digest: str
    items_in: int
    items_out: int
    tombstones: int
    late_items: int
    seconds: float
    peak_memory_bytes: int
    refused_frames: int
    guarantee: str = ""
    died: tuple[str, ...] = ()
    recoveries: int = 0
    fed_again: int = 0
    recovering_s: float = 0.0

    @property
    def items_per_second(self) -> float:
        """Items in, by wall clock."""
        return self.items_in / self.seconds if self.seconds else 0.0


class Run:
    """Iterates over the released items; `finish` runs to the end without making them.

    Attributes:
        late: items that a time policy diverted, where no `on_late` was given.
        guarantee: how often each item of the output is in the sinks, and because of whom; None for a replay.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        sources: Mapping[str, Any],
        *,
        engine: EngineKind,
        settings: Settings,
        times: Mapping[str, TimePolicy],
        sinks: Mapping[str, Any],
        on_late: Callable[[Late], None] | None,
        record: Any = None,
        place: str = "",
        make_feed: MakeFeed | None = None,
        until: int | None = None,
        web: int | str | None = None,
        state: Any = None,
        otel: bool = False,
    ) -> None:
        self.dataflow = dataflow
        self.engine = engine.name
        self.settings = settings
        self.late: list[Late] = []
        if make_feed is None:
            _check_names("source", {source.name for source in dataflow.sources}, sources, dataflow, complete=True)
        _check_names("source", {source.name for source in dataflow.sources}, times, dataflow)
        _check_names("sink", {sink.name for sink in dataflow.sinks}, sinks, dataflow)
        for name, policy in times.items():
            if not isinstance(policy, (ArrivalTime, EventTime)):
                raise SettingsError(f"times[{name!r}] is {policy!r:.80}, neither ArrivalTime() nor EventTime(...)")
        take_late = taker_of_late(on_late, self.late.append)
        if state is not None:
            _check_state(record, until)
        self._started = time.perf_counter()
        self._seconds: float | None = None
        self._sinks: dict[str, Sink] = {name: as_sink(name, given) for name, given in sinks.items()}
        opened = {name: as_source(name, given) for name, given in sources.items()}
        self._purity: PurityCheck | None = None
        watched, watched_times = dataflow, times
        if settings.check_purity:
            self._purity = _purity_check(dataflow, times, settings)
            watched, watched_times = self._purity.dataflow, self._purity.times
        self._recorder: Recorder | None = None
        if record is not None:
            self._recorder = self._make_recorder(record, place, times, opened)
        self._until = until
        self.guarantee: Guarantee | None = None
        if make_feed is None:
            policies = {source.name: times.get(source.name, source.time) for source in dataflow.sources}
            of_sources = {name: (source, policies[name]) for name, source in opened.items()}
            self.guarantee = guarantee(of_sources, self._sinks, with_state=state is not None)
        if make_feed is not None:
            self._feed = make_feed(take_late, settings.batch_items)
        else:
            self._feed = Feed(
                watched,
                opened,
                watched_times,
                batch_items=settings.batch_items,
                in_flight_max=settings.in_flight_max,
                on_late=take_late,
                on_read=self._recorder.read if self._recorder is not None else None,
                on_fed=self._recorder.arrived if self._recorder is not None else None,
                on_stored=self._recorder.arrived_stored if self._recorder is not None else None,
                keeps_positions=state is not None,
                log_folder=log_folder_of(state) if state is not None else None,
                logs_on_disk=isinstance(state, Cuts) and state.logs_on_disk,
            )
        try:
            self._engine = self._make_engine(engine, watched, state)
        except BaseException:
            self._feed.close()
            raise
        self._keeper: Keeper | Keepers | None = None
        self._is_to_pause = False
        self._page: LivePage | None = None
        try:
            if state is not None:
                self._keeper = self._going_on(state, times)
            if web is not None:
                self._page = _live_page(web, self)
            self._telemetry = _telemetry(self) if otel else None
        except BaseException:
            if self._keeper is not None:
                self._keeper.close()
            if self._page is not None:
                self._page.close()
            self._engine.close()
            raise
        self._log = RunLog(dataflow.name, engine.name, settings.workers_in_all)
        self._sets_apart = any(sink.name == ERRORS for sink in dataflow.sinks)
        self._apart = 0  # items set apart
        self._own_digest: Digest | None = None  # of what was handed out, where the engine may have released more
        if until is not None or (isinstance(self._feed, RecordedFeed) and not self._feed.ends):
            self._own_digest = Digest(settings.digest)
        self._handed_out = 0
        self._written, self._looped_over = Sampler(), Sampler()
        self._seen: list[Sample] = []  # of the items that the caller has
        self._outcome: tuple[str, BaseException | None] = ("stopped", None)
        self._pieces = Pieces(self._run(), self._end)
        self._digest = ""
        self._begun = False
        self._handed: Iterator[Item[Any]] = iter(())  # the items of the last piece
        self._items = chain.from_iterable(self._iterate())

    def __iter__(self) -> Iterator[Item[Any]]:
        return self._items

    def __next__(self) -> Item[Any]:
        return next(self._items)

    def __aiter__(self) -> AsyncIterator[Item[Any]]:
        """The items, for a coroutine; functions, sources and sinks run in a thread of the run's own meanwhile."""
        return taken_in_a_thread(self._pieces, self._items_of)

    def pieces(self) -> Iterator[Released]:
        """The output in pieces of consecutive items, as columns; empty ones where nothing is new for a while."""
        return self._pieces

    def finish(self) -> Report:
        """Run to the end; the sinks take the output."""
        needless = not self._sinks and self._recorder is None and self._own_digest is None and self._page is None
        if not self._begun and needless:
            self._engine.needs_items = False
        for _ in self._pieces:
            pass
        return self.report

    def to_arrow(
        self, *, of: str | None = None, columns: Sequence[str] | Mapping[str, Any] | None = None
    ) -> pyarrow.Table:
        """Run to the end, and give what comes as a pyarrow.Table, with a typed column for each field of the payloads.

        Fields are those of dicts, dataclasses, msgspec Structs and named tuples; those of a tuple are called "0", "1"
        ..., and a payload that has none is in `value`. Before them are `position`, `sink` and `time` (of the source, as
        a number); a field of such a name is `payload.NAME`. Items that were taken from the run before are not in it.

        Args:
            of: the sink whose items are wanted; those of all sinks if None.
            columns: what the fields are called, of tuples in their order; or their Arrow types by name.

        Raises:
            PayloadError: payloads have not these fields, or no one type holds the values of a field.
        """
        need("tables", "to_arrow")
        from drift.tables import table_of

        if of is not None:
            _check_names("sink", {sink.name for sink in self.dataflow.sinks}, {of: None}, self.dataflow)
        return table_of(self._pieces, of, columns)

    def to_pandas(
        self, *, of: str | None = None, columns: Sequence[str] | Mapping[str, Any] | None = None
    ) -> pandas.DataFrame:
        """As `to_arrow`, as a DataFrame of pandas."""
        need("pandas", "to_pandas")
        return self.to_arrow(of=of, columns=columns).to_pandas()

    def to_polars(
        self, *, of: str | None = None, columns: Sequence[str] | Mapping[str, Any] | None = None
    ) -> polars.DataFrame:
        """As `to_arrow`, as a DataFrame of Polars."""
        need("polars", "to_polars")
        import polars

        frame = polars.from_arrow(self.to_arrow(of=of, columns=columns))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        *,
        of: str | None = None,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """As `to_arrow`, as a relation of DuckDB, to be asked: `run.to_duckdb().filter("n > 3")`.

        Args:
            connection: where the relation is to be; DuckDB's default connection if None.
        """
        need("duckdb", "to_duckdb")
        import duckdb

        return (connection or duckdb.default_connection()).from_arrow(self.to_arrow(of=of, columns=columns))

    @property
    def progress(self) -> Progress:
        """Where the run stands now."""
        return self._engine.progress

    def observed(self) -> Observed:
        """What left each operator, and what each process of the run does; where the run is `counted` or has a page."""
        return self._engine.observed()

    def source_states(self) -> list[SourceState]:
        """Where each source stands."""
        return self._feed.states()

    @property
    def web(self) -> str:
        """Where the run is seen while it runs, with the token that it asks for; "" where it has no page."""
        return self._page.url if self._page is not None else ""

    @property
    def digest(self) -> str:
        """Digest of what was released so far; over zeromq, of a run that has ended.

        Raises:
            SettingsError: nothing has run yet, and the digest of nothing would equal that of any other such run.
        """
        if not self._begun:
            raise SettingsError("the run has not begun, so there is no digest: iterate over it, or call finish()")
        if self._own_digest is not None:
            return self._own_digest.hexdigest()
        return self._digest or self._engine.hexdigest()

    @property
    def report(self) -> Report:
        """What the run has done so far."""
        progress = self._engine.progress
        return Report(
            graph=self.dataflow.name,
            engine=self.engine,
            workers=self.settings.workers_in_all,
            digest=self.digest if self._begun else "",
            items_in=progress.items_in,
            items_out=progress.items_out if self._own_digest is None else self._handed_out,
            tombstones=progress.tombstones,
            late_items=progress.late_items,
            seconds=self._seconds if self._seconds is not None else time.perf_counter() - self._started,
            peak_memory_bytes=peak_memory_bytes() + sum(progress.peak_memory_bytes.values()),
            refused_frames=progress.refused_frames,
            guarantee="" if self.guarantee is None else str(self.guarantee),
            died=tuple(progress.died),
            recoveries=progress.recoveries,
            fed_again=progress.fed_again,
            recovering_s=progress.recovering_s,
        )

    def __repr__(self) -> str:
        state = "ended" if self._seconds is not None else "running" if self._begun else "not begun"
        return f"<drift.Run of {self.dataflow.name!r} on {self.engine}, {state}, {self.progress.items_out} items out>"

    def stop(self) -> None:
        """Have the run end well and soon, from any thread or handler of a signal: its sources end here.

        What was read is processed and released, the sinks are completed and closed, and the iteration ends by itself; a
        record holds what was read, and repeats it. It takes effect when the source that is being read gives something:
        live sources never hold it up. On Spark it ends what the driver reads of sources; a job that has begun goes on.

        A run that keeps its state stops at a cut in place of that: its input has not ended, and it goes on from there.
        """
        if self._keeper is not None:
            self._is_to_pause = True
        else:
            self._feed.stop()

    def stopping_on(self, *signals: int) -> AbstractContextManager[None]:
        """For a with statement in the main thread: the first of these signals stops the run, as `stop` does.

        The next one does what it did before. Without arguments it is SIGTERM.
        """
        return called_on(signals or (signal.SIGTERM,), self.stop)

    def close(self) -> None:
        """End the run where it is, from any thread; nothing it started is left. The iteration ends with a close, too.

        It waits for the piece that is being made: for the present batch, or until a source that is not live gives
        something.
        """
        self._pieces.close()
        deque(self._handed, maxlen=0)  # a loop over the run ends here, and not with the piece

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_recorder(
        self, record: Any, place: str, times: Mapping[str, TimePolicy], sources: Mapping[str, Source]
    ) -> Recorder:
        need("records", "a record")
        from drift.records.describe import describe
        from drift.records.recorder import Recorder, as_recording

        manifest = describe(
            self.dataflow,
            place=place,
            engine=self.engine,
            workers=self.settings.workers_in_all,
            settings=self.settings,
            algorithm=self.settings.digest,
            times=times,
            live={name: source.live for name, source in sources.items()},
            frames={name: source for name, source in sources.items() if isinstance(source, FrameSource)},
        )
        return Recorder(as_recording(record), manifest)

    def _make_engine(self, kind: EngineKind, dataflow: Dataflow, state: Any) -> Engine:
        """The engine; where a step is durable, and the run keeps its state, one for each segment."""
        if state is None or not kind.keeps_state or not any(each.durable for each in dataflow.operators):
            return kind.make(dataflow, self._feed, self.settings)
        return Chain(kind, dataflow, self._feed, self.settings, state if isinstance(state, Cuts) else Cuts(state))

    def _going_on(self, state: Any, times: Mapping[str, TimePolicy]) -> Keeper | Keepers:
        """Who takes the run's cuts; the engine, the sources and the sinks stand where the last one was."""
        if isinstance(self._engine, Chain):
            return self._engine.going_on(self.dataflow, times, self._sinks, self.settings)
        if not isinstance(self._engine, Keeps):
            those = " or ".join(repr(kind.name) for kind in engine_kinds() if kind.keeps_state)
            raise SettingsError(f"engine {self.engine!r} keeps no state; leave out state=, or use {those}")
        keeper = Keeper(
            state if isinstance(state, Cuts) else Cuts(state),
            self.dataflow,
            times,
            fused=self.settings.fused,
            algorithm=self.settings.digest,
        )
        try:
            keeper.begin(self._engine, self._feed, self._sinks)
        except BaseException:
            keeper.close()
            raise
        return keeper

    @property
    def keeps_state(self) -> bool:
        """Whether cuts are taken of it."""
        return self._keeper is not None

    @property
    def went_on_from(self) -> Cut | None:
        """The cut that the run goes on from, where it keeps its state and there was one."""
        return self._keeper.went_on_from if self._keeper is not None else None

    @undisturbed
    def _end(self) -> None:
        if self._seconds is None and not self._pieces.is_of_a_fork:
            self._digest = self._engine.hexdigest()
            with ExitStack() as closing:  # each is closed, also where closing another raises
                for sink in self._sinks.values():
                    closing.callback(sink.close)
                if self._purity is not None:
                    closing.callback(self._purity.close)
                if self._keeper is not None:
                    closing.callback(self._keeper.close)
                if self._recorder is not None:
                    closing.callback(self._recorder.close)
                closing.callback(self._engine.close)
                if self._page is not None:
                    closing.callback(self._page.close)
                    closing.callback(self._page.status.end, *self._outcome)
                if self._recorder is not None:  # the first to be told and the last to be waited for
                    state, error = self._outcome
                    by_input = error is not None and error is self._feed.error
                    digest = self._digest if state == "finished" else ""
                    closing.callback(self._recorder.end, state, error, by_input, digest)
            self._seconds = time.perf_counter() - self._started
            if self._begun:
                progress, (state, error) = self._engine.progress, self._outcome
                self._log.ended(state, progress.items_in, progress.items_out, self._seconds, error)
                if self._telemetry is not None:
                    self._telemetry.end(state, error, self._apart)

    def _run(self) -> Generator[Released, None, None]:
        self._begun = True
        try:
            for sink in self._sinks.values():
                sink.open()
            if self._recorder is not None:
                self._recorder.start()
            if self._page is not None:
                self._page.start()
            self._log.started()
            if self._telemetry is not None:
                self._telemetry.start()
            for piece in self._engine.released():
                if self._until is not None:
                    piece = piece.before(self._until)
                if self._own_digest is not None:
                    self._own_digest.add(piece.metas, piece.payloads)
                    self._handed_out += len(piece.metas)
                error: Exception | None = None
                if self._recorder is not None and piece.metas:
                    piece, error = self._to_record(piece, self._recorder)
                if self._sinks and piece.metas:
                    self._write(piece)
                if self._page is not None:
                    self._page.status.take(piece)
                self._tell(piece)
                self._feed.released(self._engine.progress.released_below)
                keeper = self._keeper if piece.error is None else None  # minimal time may be past what failed
                if keeper is not None and keeper.is_due(self._engine.progress.items_in):
                    keeper.take()
                yield piece
                seen, self._seen = self._seen, []
                _check_unchanged(seen, "the loop over the run")
                if self._is_to_pause and keeper is not None and keeper.pause():
                    return
                if error is not None:
                    raise error
                if self._until is not None and piece.position + len(piece.metas) >= self._until:
                    return
            if self._keeper is not None:
                self._keeper.take()
            self._feed.released(END_OF_TIME, last=True)
            for sink in self._sinks.values():
                if not (self._feed.stopped and getattr(sink, "goes_on", False)):  # an earlier run came further
                    sink.complete()
            self._outcome = "finished", None
        except GeneratorExit:
            raise
        except RecordEnds:
            return  # what was recorded has been done
        except BaseException as error:
            self._outcome = "failed" if isinstance(error, Exception) else "stopped", error
            raise
        finally:
            self._end()

    def _tell(self, piece: Released) -> None:
        """To the log, what is new of items that went another way, and of a source that all wait for."""
        progress = self._engine.progress
        if progress.late_items:
            self._log.late(progress.late_items)
        if self._sets_apart and piece.metas:
            sinks = piece.sinks
            self._apart += len(piece.metas) * (sinks == ERRORS) if isinstance(sinks, str) else sinks.count(ERRORS)
            self._log.diverted(self._apart)
        if self._telemetry is not None:
            self._telemetry.take(progress, self._apart)
        if not piece.metas:
            silent_s = progress.silent_s
            self._log.silent(progress.held_by if silent_s >= SILENT_S else "", silent_s, progress.unsettled)

    @undisturbed
    def _to_record(self, piece: Released, recorder: Recorder) -> tuple[Released, Exception | None]:
        """What of a piece the record can keep, and the error to end with after that."""
        of_engine = getattr(self._engine, "encoded", None)  # as bytes, where the digest was made in this process
        return recorder.released(piece, of_engine() if of_engine is not None else ())

    @undisturbed
    def _write(self, piece: Released) -> None:
        seen = self._written.sample(piece.payloads)
        for name, sink in self._sinks.items():
            self._write_to(name, sink, piece)
            _check_unchanged(seen, f"sink {name!r}")

    def _write_to(self, name: str, sink: Sink, piece: Released) -> None:
        if isinstance(piece.sinks, str):
            if piece.sinks == name:
                sink.write(range(piece.position, piece.position + len(piece.metas)), piece.metas, piece.payloads)
        else:
            at = [index for index, each in enumerate(piece.sinks) if each == name]
            if at:
                sink.write(
                    [piece.position + index for index in at],
                    [piece.metas[index] for index in at],
                    [piece.payloads[index] for index in at],
                )

    def _iterate(self) -> Iterator[Iterator[Item[Any]]]:
        for piece in self._pieces:
            yield self._items_of(piece)

    def _items_of(self, piece: Released) -> Iterator[Item[Any]]:
        position, metas, payloads, sinks, _ = piece
        self._seen = self._looped_over.sample(payloads)
        self._handed = items(payloads, range(position, position + len(payloads)), sinks, metas)
        return self._handed


def _check_unchanged(seen: Sequence[Sample], who: str) -> None:
    for each in seen:
        if each.is_changed:
            raise SinkError(
                f"{who} changed the payload of an item in place: {each.difference}; the run keeps it, and makes later "
                f"items of it: change a copy, copy.deepcopy(item.payload); what was released before stands"
            )


def run(
    graph: Graph | Dataflow,
    sources: Mapping[str, Any],
    *,
    engine: EngineName | EngineKind = "local",
    workers: int = 1,
    times: Mapping[str, TimePolicy] | None = None,
    sinks: Mapping[str, Any] | None = None,
    on_late: Callable[[Late], None] | None = None,
    digest: str = "xxh3_128",
    record: str | os.PathLike[str] | Recording | None = None,
    web: int | str | None = None,
    state: str | os.PathLike[str] | Cuts | None = None,
    otel: bool = False,
    **more: Any,
) -> Run:
    """Run a graph; iterate over the result for its items, or call `finish()`.

    Args:
        graph: what to compute.
        sources: for each source of the graph an iterable, or one of `drift.sources`.
        engine: "local", "reference", "zeromq", "spark", or an EngineKind of one's own; the output is the same.
        workers: processes that share the keys (zeromq).
        times: time policies by source, in place of those of the graph.
        sinks: for each sink that needs one a callable that takes items, a list, or one of `drift.sinks`.
        on_late: takes items that a time policy diverts; without it they gather in `Run.late`.
        digest: "xxh3_128", or "sha256" where somebody may have reason to forge an output.
        record: a folder, which is not there yet, for a record of the run; `drift.replay` and `drift.audit` take it.
        web: a port, 0 for any that is free, or "HOST:PORT": a page of the run while it runs, at `Run.web`. On a host
            that is not this machine's loopback it asks for a token, DRIFT_WEB_TOKEN or one that is made.
        state: a folder where the run keeps its state, or `drift.Cuts(...)`: the same call goes on from there after
            whatever ended the run (local, zeromq).
        otel: give OpenTelemetry a span of the run and its counters.
        more: other settings of the engine: `drift.Settings`, and those of its own.

    Raises:
        GraphError, SettingsError: at once, before any item flows.
    """
    if not isinstance(sources, Mapping):
        raise SettingsError(
            f"sources={sources!r:.80} is no dict; name the sources of the graph: drift.run(graph, {{'lines': ...}})"
        )
    dataflow = graph.build() if isinstance(graph, Graph) else graph
    if not isinstance(dataflow, Dataflow):
        raise SettingsError(f"run takes a drift.Graph, not {dataflow!r:.80}")
    return made_run(
        dataflow,
        sources,
        engine=engine,
        workers=workers,
        times=times,
        sinks=sinks,
        on_late=on_late,
        digest=digest,
        record=record,
        web=web,
        state=state,
        otel=otel,
        place=_place(graph, dataflow) if record is not None else "",
        **more,
    )


def made_run(
    dataflow: Dataflow,
    sources: Mapping[str, Any],
    *,
    engine: str | EngineKind = "local",
    times: Mapping[str, TimePolicy] | None = None,
    sinks: Mapping[str, Any] | None = None,
    on_late: Callable[[Late], None] | None = None,
    record: Any = None,
    place: str = "",
    feed: MakeFeed | None = None,
    until: int | None = None,
    web: int | str | None = None,
    state: Any = None,
    otel: bool = False,
    **settings: Any,
) -> Run:
    """`run` of a graph that is a value, where its place is known, or its input does not come from sources.

    Args:
        place: "file.py:name" of the graph, for the record.
        feed: what the engine reads, in place of `sources`; it is told who takes late items, and batch_items.
        until: end before this position.
        web: where a page is to be.
        state: where the run keeps its state; see `run`.
        web, otel: as of `run`.
        settings: of the engine.
    """
    kind = engine if isinstance(engine, EngineKind) else engine_kind(engine)
    is_watched = web is not None or otel
    return Run(
        dataflow,
        sources,
        engine=kind,
        settings=kind.settings_of({**settings, "counted": True} if is_watched else settings),
        times=times or {},
        sinks=sinks or {},
        on_late=on_late,
        record=record,
        place=place,
        make_feed=feed,
        until=until,
        web=web,
        state=state,
        otel=otel,
    )


def _place(graph: Graph | Dataflow, dataflow: Dataflow) -> str:
    from drift.records.describe import place_of_graph

    return place_of_graph(graph, dataflow)


def _live_page(web: int | str, run: Run) -> LivePage:
    need("web", "web=")
    from drift.web.address import as_address
    from drift.web.server import LivePage

    return LivePage(as_address(web), run)


def _telemetry(run: Run) -> Telemetry:
    need("otel", "otel=True")
    from drift.web.telemetry import Telemetry

    return Telemetry(run)


def _purity_check(dataflow: Dataflow, times: Mapping[str, TimePolicy], settings: Settings) -> PurityCheck:
    from drift.purity import PurityCheck

    return PurityCheck(dataflow, times, first=settings.purity_first, every=settings.purity_every, at_once=True)


def _check_state(record: Any, until: int | None) -> None:
    if until is not None:
        raise SettingsError("a run that repeats a record up to a position keeps no state: leave out state=")
    if record is not None:
        raise SettingsError(
            "a run keeps a record or its state, not both: a record begins where its run does, and a run that goes on "
            "begins in the middle. Leave out one of record= and state=; two runs, one with each, have one digest"
        )


def _check_names(
    kind: str, known: set[str], given: Mapping[str, Any], dataflow: Dataflow, *, complete: bool = False
) -> None:
    for name in given:
        if name not in known:
            raise SettingsError(
                f"graph {dataflow.name!r} has no {kind} {name!r}; it has {', '.join(map(repr, sorted(known)))}"
            )
    missing = sorted(known - set(given)) if complete else []
    if missing:
        raise SettingsError(f"nothing is given for {kind} {', '.join(map(repr, missing))} of graph {dataflow.name!r}")
