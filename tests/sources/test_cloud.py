"""Files in object stores and on web servers are read, listed, followed and known again as those of a folder are."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from outside_files import Bucket, Objects
from servers import ObjectStore, object_store
from sourced import all_of, drained, fault_of, in_thread
from test_sources_followed import opened, read_all, woken
from test_sources_positions import check

import drift
from drift import InputError, SettingsError, SinkError, places, sinks, sources
from drift.cli.specs import sink_of, source_of
from drift.places import Local, Opened, Remote, Stat
from drift.sinks.parquet import ParquetSink
from drift_graph.meta import global_time
from drift_graph.metas import Metas

pytest.importorskip("moto")
pytest.importorskip("s3fs")

numbers = count()
LINES = b"".join(b'{"n": %d}\n' % n for n in range(10))
VALUES = [{"n": n} for n in range(10)]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


@pytest.fixture
def bucket(store: ObjectStore) -> str:
    return store.bucket(f"bucket-{next(numbers)}")


def in_parquet(values: list[Any], **more: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(values), file, **more)
    return file.getvalue()


@pytest.mark.parametrize(
    "name, data, make",
    [
        ("a.jsonl", LINES, sources.jsonl),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0), sources.jsonl),
        ("a.txt", "eins\nzwö\r\ndrei".encode("utf-16"), partial(sources.text, encoding="utf-16")),
        ("a.csv", b'n,text\n1,"a\nb"\n2,c\n\n3,d\n', sources.csv),
        ("a.parquet", in_parquet(VALUES, row_group_size=4), sources.parquet),
    ],
    ids=["jsonl", "gzip", "utf-16", "csv", "parquet"],
)
def test_an_object_is_read_as_a_file_is_and_from_each_of_its_positions(
    store: ObjectStore, bucket: str, tmp_path: Path, name: str, data: bytes, make: Callable[..., Any]
) -> None:
    store.files.pipe_file(f"{bucket}/{name}", data)
    (tmp_path / name).write_bytes(data)
    assert all_of(make(f"{bucket}/{name}", storage_options=store.options)) == all_of(make(tmp_path / name))
    assert all_of(make(f"file://{tmp_path}/{name}")) == all_of(make(tmp_path / name))
    check(lambda: make(f"{bucket}/{name}", storage_options=store.options))


def test_objects_of_a_folder_and_of_a_pattern_are_read_in_the_order_of_their_names(
    store: ObjectStore, bucket: str
) -> None:
    for name in ("b.txt", "a.txt", "c.csv", "_hidden.txt", ".hidden.txt", "deep/d.txt"):
        store.files.pipe_file(f"{bucket}/logs/{name}", f"{name}\n".encode())
    text = partial(sources.text, storage_options=store.options)
    assert all_of(text(f"{bucket}/logs")) == all_of(text(f"{bucket}/logs/")) == ["a.txt", "b.txt", "c.csv"]
    assert all_of(text(f"{bucket}/logs/[ab].txt")) == ["a.txt", "b.txt"]
    assert all_of(text(f"{bucket}/logs/deep/*.txt")) == ["deep/d.txt"]
    check(lambda: text(f"{bucket}/logs"), items_max=1)
    with pytest.raises(InputError, match="no file matches the pattern"):
        text(f"{bucket}/logs/*.none").open()
    with pytest.raises(InputError, match="has no files"):
        text(f"{bucket}/none/").open()
    assert "cannot be opened: No such file" in fault_of_opening(text(f"{bucket}/logs/none.txt"))
    assert "cannot be opened" in fault_of_opening(text("s3://no-such-bucket/a.txt"))


def fault_of_opening(source: Any) -> str:
    with pytest.raises(InputError) as found:
        source.open()
    return str(found.value)


def test_partitions_in_an_object_store_are_columns(store: ObjectStore, bucket: str) -> None:
    for day in ("2013-01-02", "2013-01-01"):
        store.files.pipe_file(f"{bucket}/trips/day={day}/part.parquet", in_parquet([{"n": int(day[-1])}]))
        store.files.pipe_file(f"{bucket}/trips/day={day}/.hidden.parquet", in_parquet([{"n": 7}]))
    store.files.pipe_file(f"{bucket}/trips/.waiting.parquet", in_parquet([{"n": 8}]))
    for path in (f"{bucket}/trips", f"{bucket}/trips/", f"{bucket}/trips/*/*.parquet"):
        source = sources.parquet(path, hive={"day": pa.date32()}, storage_options=store.options)
        found = [(row["n"], row["day"].isoformat()) for row in all_of(source)]
        assert found == [(1, "2013-01-01"), (2, "2013-01-02")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_an_object_that_was_replaced_is_not_read_on(store: ObjectStore, bucket: str, name: str) -> None:
    def put(values: list[Any]) -> None:
        lines = "".join(json.dumps(value) + "\n" for value in values).encode()
        made = {"a.jsonl": lambda: lines, "a.jsonl.gz": lambda: gzip.compress(lines, mtime=0)}
        store.files.pipe_file(f"{bucket}/{name}", made.get(name, lambda: in_parquet(values))())

    make: Any = sources.parquet if name.endswith("parquet") else sources.jsonl
    source = make(f"{bucket}/{name}", storage_options=store.options)
    put(VALUES)
    with opened(source) as reader:
        assert reader.read(3) == VALUES[:3]
        position: Any = reader.position()  # type: ignore[attr-defined]
    put(VALUES)
    with opened(source, position) as reader:
        assert read_to_end(reader) == VALUES[3:]
    put([*VALUES[:9], {"n": 8}])  # of the same size, and what was read is the same
    with pytest.raises(InputError, match="another"), opened(source, position):
        pass


def read_to_end(reader: Any) -> list[Any]:
    found: list[Any] = []
    while (payloads := reader.read(100)) is not None:
        found += payloads
    return found


def test_objects_that_were_read_before_the_one_at_the_position_are_known_by_their_etags(
    store: ObjectStore, bucket: str
) -> None:
    for name in "ab":
        store.files.pipe_file(f"{bucket}/{name}", f"{name}1\n{name}2\n".encode())
    source = sources.text(bucket, storage_options=store.options)
    with opened(source) as reader:
        assert [reader.read(1) for _ in range(3)] == [["a1"], ["a2"], ["b1"]]
        position: Any = reader.position()  # type: ignore[attr-defined]
    with opened(source, position) as reader:
        assert read_to_end(reader) == ["b2"]
    store.files.pipe_file(f"{bucket}/a", b"a1\na3\n")
    with pytest.raises(InputError, match="another name or content"), opened(source, position):
        pass


@pytest.fixture
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("drift.places._REQUEST_BYTES", "drift.places._BUFFER_BYTES", "drift.sources.chunks._CHUNK_BYTES"):
        monkeypatch.setattr(name, 1 << 10)


LONG = [f"{n:07d}" for n in range(5000)]


@pytest.mark.usefixtures("small_requests")
def test_an_object_that_is_replaced_while_it_is_read_ends_the_input_there(store: ObjectStore, bucket: str) -> None:
    store.files.pipe_file(f"{bucket}/a", "\n".join(LONG).encode())
    with opened(sources.text(f"{bucket}/a", storage_options=store.options)) as reader:
        found = [*(reader.read(10) or ())]
        store.files.pipe_file(f"{bucket}/a", "\n".join(reversed(LONG)).encode())
        with pytest.raises(InputError, match=r"line \d+: reading failed"):
            while payloads := reader.read(1000):
                found += payloads
    assert found == LONG[: len(found)]


@pytest.mark.usefixtures("small_requests")
def test_where_the_connection_is_lost_the_input_ends_with_an_error_and_goes_on_from_there(bucket: str) -> None:
    with object_store() as store:
        store.files.pipe_file(f"{bucket}/lost", "\n".join(LONG).encode())
        with opened(sources.text(f"{bucket}/lost", storage_options=store.options)) as reader:
            found = [*(reader.read(10) or ())]
            store.stop()
            with pytest.raises(InputError, match=r"line \d+: reading failed .*connection"):
                while payloads := reader.read(1000):
                    found += payloads
            position: Any = reader.position()  # type: ignore[attr-defined]
        assert found == LONG[: len(found)] and len(found) < len(LONG)
        store.start()
        with opened(sources.text(f"{bucket}/lost", storage_options=store.options), position) as reader:
            assert found + read_to_end(reader) == LONG


def test_objects_that_come_are_followed(store: ObjectStore, bucket: str) -> None:
    source = sources.text(f"{bucket}/*.log", storage_options=store.options, follow=True)
    with opened(source) as reader:
        assert read_all(reader) == []
        store.files.pipe_file(f"{bucket}/1.log", b"one\ntwo\n")
        assert woken(reader) and read_all(reader) == ["one", "two"]
        store.files.pipe_file(f"{bucket}/2.log", b"three\n")
        assert woken(reader) and read_all(reader) == ["three"]
        position: Any = reader.position()  # type: ignore[attr-defined]
    with opened(source, position) as reader:
        store.files.pipe_file(f"{bucket}/3.log", b"four\n")
        assert woken(reader) and read_all(reader) == ["four"]
        store.files.pipe_file(f"{bucket}/3.log", b"four\nfive\n")
        assert woken(reader)
        with pytest.raises(InputError, match="when it was read to its end"):
            reader.read(1)


KILLED = """
import os, signal, sys
from pathlib import Path
import drift

url, endpoint, folder, lives = sys.argv[1:]
options = {"key": "tests", "secret": "tests", "endpoint_url": endpoint}
left = [int(lives)]

class Dying:
    live = False
    def open(self):
        self.reader = drift.sources.jsonl(url, storage_options=options).open()
        for name in ("filenos", "close", "position", "seek"):
            setattr(self, name, getattr(self.reader, name))
        return self
    def read(self, items_max):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.reader.read(7)

graph = drift.Graph("sums")
stream = graph.source("n").scan(lambda row: row["n"] % 3, 0, lambda state, row: (state + row["n"], state))
stream.sink("out")
stream.map(lambda n: {"n": n, "third": n % 3}).sink("parts")
state = drift.Checkpoints(f"{folder}/state", every_s=0)
parts = url.rpartition("/")[0] + "/out"
out = drift.sinks.parquet(parts, part_items=50, partition_by="third", storage_options=options)
lines = drift.sinks.jsonl(f"{folder}/out.jsonl")
drift.run(graph, {"n": Dying()}, sinks={"out": lines, "parts": out}, state=state).finish()
"""


@pytest.mark.long
def test_a_run_that_is_killed_while_it_reads_and_writes_objects_goes_on_where_it_was(
    store: ObjectStore, bucket: str, tmp_path: Path
) -> None:
    for name in range(3):
        lines = "".join(f'{{"n": {100 * name + n}}}\n' for n in range(100))
        store.files.pipe_file(f"{bucket}/{name}.jsonl", lines.encode())
    endpoint = store.options["endpoint_url"]
    for lives in (12, 25, 0):
        arguments = [f"{bucket}/*.jsonl", endpoint, str(tmp_path), str(lives)]
        ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, capture_output=True, text=True)
        assert ended.returncode == (-9 if lives else 0), ended.stderr
    graph = drift.Graph("sums")
    graph.source("n").scan(lambda row: row["n"] % 3, 0, lambda state, row: (state + row["n"], state)).sink("out")
    rows = [{"n": n} for n in range(300)]
    drift.run(graph, {"n": rows}, sinks={"out": sinks.jsonl(tmp_path / "whole.jsonl")}).finish()
    assert numbers_in(tmp_path / "out.jsonl") == (sums := numbers_in(tmp_path / "whole.jsonl"))
    found = all_of(sources.parquet(f"{bucket}/out", hive=True, storage_options=store.options))
    found.sort(key=lambda row: row["position"])
    assert [row["n"] for row in found] == sums and all(row["third"] == str(row["n"] % 3) for row in found)
    assert not [name for name in store.files.find(f"{bucket}/out") if "/." in name], "nothing is left that is hidden"


def numbers_in(path: Path) -> list[int]:
    return [json.loads(line)["payload"] for line in path.read_text().splitlines()]


def test_a_run_that_finds_parts_of_another_one_ends(store: ObjectStore, bucket: str) -> None:
    sink = sinks.parquet(f"{bucket}/out", storage_options=store.options)
    sink.open()
    sink.write(range(2), Metas([global_time(n, 0, 0, 0) for n in range(2)]), [1, 2])
    store.files.pipe_file(f"{bucket}/out/part-{0:015d}-{5:015d}.parquet", in_parquet(VALUES))
    with pytest.raises(SinkError, match="another run has written part-0"):
        sink.commit()
    sink._items = None
    with pytest.raises(SinkError, match="folder s3://none/out cannot be written"):
        sinks.parquet("s3://none/out", storage_options=store.options).open()


def test_where_a_server_does_not_say_that_an_object_was_replaced_its_etag_does(tmp_path: Path) -> None:
    class Replaced(Local):
        def open(self, path: str) -> Opened:
            return super().open(path)._replace(etag="one")

        def stat(self, path: str) -> Stat | None:
            return Stat(2, "two", "two")

    (tmp_path / "a").write_text("1\n2\n")
    source = sources.text(tmp_path / "a")
    source.storage = Replaced()
    payloads, error = fault_of(source)
    assert payloads == ["1", "2"] and "was replaced or removed while it was read" in error


def test_a_page_of_a_web_server_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n2\n3\n4\n")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = in_thread(server.serve_forever)
        try:
            url = f"http://127.0.0.1:{server.server_port}/a.csv"
            assert [row["n"] for row in all_of(sources.csv(f"{url}?version=1"))] == ["1", "2", "3", "4"]
            check(lambda: sources.csv(url), items_max=1)
            assert "cannot be opened" in fault_of_opening(sources.csv(f"{url}x"))
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("validator", ["ETag", "Last-Modified", ""])
def test_a_page_that_is_replaced_while_it_is_read_gives_lines_of_one_file(
    validator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_REQUEST_BYTES", 1 << 14)
    monkeypatch.setattr(places, "_BUFFER_BYTES", 1 << 12)
    old, new = (b"".join(b"%s %05d\n" % (word, n) for n in range(9000)) for word in (b"old", b"new"))
    asked = count()
    replaced_at = 0

    class Page(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET(body=False)

        def do_GET(self, *, body: bool = True) -> None:
            data, version = (old, 1) if next(asked) < replaced_at else (new, 2)
            part, begin = data, 0
            if wanted := self.headers.get("Range"):
                begin, end = map(int, wanted.removeprefix("bytes=").split("-"))
                part = data[begin : end + 1]
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Accept-Ranges", "bytes")
            if wanted:
                self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(data)}")
            if validator == "ETag":
                self.send_header("ETag", f'"{version}"')
            elif validator:
                self.send_header(validator, f"Mon, 0{version} Jan 2024 00:00:00 GMT")
            self.end_headers()
            if body:
                self.wfile.write(part)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.daemon_threads = True
        thread = in_thread(server.serve_forever)
        try:
            for replaced_at in (0, 1, 2, 3, 4, 5, 10, 10_000):
                asked = count()
                source = sources.text(f"http://127.0.0.1:{server.server_port}/a.txt")
                try:
                    payloads, error = drained(source)
                except InputError as refused:
                    payloads, error = [], refused
                words = {line[:3] for line in payloads}
                assert len(words) <= 1, replaced_at
                assert (len(payloads) == 9000) == (error is None), (replaced_at, error)
                assert error is None or validator == "ETag"
                assert error is None or "was replaced or removed while it was read" in str(error)
        finally:
            server.shutdown()
            thread.join()


def test_a_url_that_nothing_reads_says_so() -> None:
    for wrong in (lambda: sources.text("nowhere://bucket/a.txt"), lambda: source_of("nowhere://bucket/a.txt")):
        with pytest.raises(SettingsError, match="Protocol not known: nowhere"):
            wrong()
    assert [*map(repr, map(source_of, ("s3://logs/*.jsonl", "follow:csv:s3://logs/in")))] == [
        "jsonl('s3://logs/*.jsonl')", "csv('s3://logs/in'), followed",
    ]  # fmt: skip
    with pytest.raises(SettingsError, match="what is in s3://logs/in"):
        source_of("s3://logs/in")
    assert isinstance(sink_of("s3://logs/out.parquet?part_every=5m", "continue"), ParquetSink)
    with pytest.raises(SettingsError, match="is a local path"):
        sources.text("a.txt", storage_options={"key": "x"})
    for sink in (sinks.jsonl, sinks.csv):
        with pytest.raises(SettingsError, match=r"use drift.sinks.parquet"):
            sink("s3://bucket/out")


@pytest.mark.parametrize("pattern", ["logs/*/*.txt", "logs/**/*.txt"])
def test_a_folder_that_cannot_be_listed_is_an_error_and_not_left_out(
    store: ObjectStore, bucket: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3fs import S3FileSystem

    def listed(self: Any, path: str, *arguments: Any, **more: Any) -> Any:
        if path.rstrip("/").endswith("logs/b"):
            raise PermissionError("access denied")
        return lsdir(self, path, *arguments, **more)

    for name in ("a/1.txt", "b/2.txt", "c/3.txt"):
        store.files.pipe_file(f"{bucket}/logs/{name}", name.encode())
    source = sources.text(f"{bucket}/{pattern}", storage_options=store.options)
    assert all_of(source) == ["a/1.txt", "b/2.txt", "c/3.txt"]
    lsdir = S3FileSystem._lsdir
    monkeypatch.setattr(S3FileSystem, "_lsdir", listed)
    assert "cannot be listed: access denied" in fault_of_opening(source)


@pytest.mark.parametrize("follow", [False, True], ids=["listed", "followed"])
def test_a_store_that_is_away_at_any_call_is_an_error_of_input(follow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects(lambda count: 0, 9)
    objects.contents = {f"{number}.jsonl": b"%d\n" % number for number in range(3)}
    objects.written_at = dict.fromkeys(objects.contents, 0)
    monkeypatch.setattr(Remote, "files", Bucket(objects))

    def is_read(away_at: int) -> bool:
        """Whether all is read where the store is away at one call, or needs fewer."""
        calls, found = count(), list[Any]()
        monkeypatch.setattr(objects, "is_away", lambda: next(calls) == away_at)
        try:
            with opened(sources.jsonl("memory://bucket/*.jsonl", follow=follow)) as reader:
                while len(found) < 3:
                    found += reader.read(1) or []
        except InputError as error:
            assert "the model is away" in str(error)
            assert found == [0, 1, 2][: len(found)]
            return False
        return found == [0, 1, 2]

    assert next(filter(is_read, count())) > 8


def test_a_server_that_does_not_answer_or_let_in_is_not_taken_for_one_without_the_file() -> None:
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(int(self.path[1:4]))

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = in_thread(server.serve_forever)
        address = f"http://127.0.0.1:{server.server_port}"
        said = {
            "404.txt?token=hush": "No such file",
            "403.txt?token=hush": "Forbidden",
            "500.txt?token=hush": "Internal Server Error",
        }
        try:
            found = {path: fault_of_opening(sources.text(f"{address}/{path}")) for path in said}
        finally:
            server.shutdown()
            thread.join()
    assert all(words in found[path] and "hush" not in found[path] for path, words in said.items()), found
    error = fault_of_opening(sources.text(f"{address}/404.txt"))  # of a server which is closed now
    assert "Connect call failed" in error and "No such file" not in error
