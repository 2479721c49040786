"""Real servers for the tests of connectors: Redis, Postgres, librdkafka's own mock of a Kafka cluster, and moto's S3.

They are started for a session of tests, in a temporary folder, and end with it. Where one cannot be started the tests
fail: `.ci/run` installs what is missing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import HANG_S, wait_until


def redis_program() -> str:
    """The path of redis-server."""
    program = shutil.which("redis-server")
    assert program, "there is no redis-server; .ci/run installs it (Debian: apt-get install redis-server)"
    return program


class Redis:
    """A Redis server in a folder, which can be killed and come back with what it had saved.

    Attributes:
        url: the same each time.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.url = f"unix://{folder}/redis.sock"
        self.start()

    def start(self) -> None:
        settings = ["--port", "0", "--unixsocket", f"{self._folder}/redis.sock", "--save", "", "--dir", self._folder]
        self._server = subprocess.Popen([redis_program(), *settings, "--daemonize", "no"], stdout=subprocess.DEVNULL)
        wait_until(self._answers, "Redis answers")

    def _answers(self) -> bool:  # its socket is there a moment before somebody listens
        import redis

        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    def save(self) -> None:
        import redis

        with redis.Redis.from_url(self.url) as client:
            client.save()

    def kill(self) -> None:
        self._server.kill()
        self._server.wait()


@contextmanager
def redis_server() -> Iterator[Redis]:
    """A Redis server."""
    with tempfile.TemporaryDirectory(prefix="drift-redis-") as folder:
        server = Redis(folder)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def postgres_server() -> Iterator[str]:
    """A Postgres server; its URL."""
    import psycopg

    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    program = shutil.which("postgres") or (str(folders[-1]) if folders else None)
    assert program, "there is no postgres; .ci/run installs it (Debian: apt-get install postgresql)"
    programs = Path(program).resolve().parent
    with tempfile.TemporaryDirectory(prefix="drift-pg-") as folder:
        as_user: dict[str, Any] = {}
        if os.getuid() == 0:  # Postgres refuses to run as root
            as_user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(folder, "postgres", "postgres")
        data = f"{folder}/data"
        made = [str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "drift", "--no-sync"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)
        settings = ["-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "wal_level=logical"]
        server = subprocess.Popen(
            [str(programs / "postgres"), *settings], stderr=subprocess.DEVNULL, cwd=folder, **as_user
        )
        url = f"postgresql://drift@/postgres?host={folder}"

        def answers() -> bool:
            try:
                psycopg.connect(url).close()
            except psycopg.OperationalError:
                return False
            return True

        try:
            wait_until(answers, "Postgres answers")
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # at once, also where a test that failed holds a connection
            server.wait()


class ObjectStore:
    """A server of S3, moto's, within this process; what it has outlives `stop`.

    Attributes:
        options: for `storage_options`, of the server that runs now.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.options = {
            "key": "tests",
            "secret": "tests",
            "endpoint_url": f"http://{host}:{port}",
            "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": HANG_S, "read_timeout": HANG_S},
        }

    def stop(self) -> None:
        self._server.stop()

    @property
    def files(self) -> Any:
        """What fsspec has of it."""
        import fsspec

        return fsspec.filesystem("s3", use_listings_cache=False, **self.options)

    def bucket(self, name: str) -> str:
        """Make a bucket; its URL."""
        self.files.mkdir(name)
        return f"s3://{name}"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server of S3."""
    store = ObjectStore()
    try:
        yield store
    finally:
        store.stop()


class Kafka:
    """A mock cluster of Kafka in a process of its own (`kafka_broker.py`), whose broker can fail.

    Attributes:
        servers: its bootstrap servers.
    """

    def __init__(self) -> None:
        from confluent_kafka import Producer

        command = [sys.executable, str(Path(__file__).with_name("kafka_broker.py"))]
        self._broker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.servers = self._line()
        self._holder = Producer({"bootstrap.servers": self.servers, "log_level": 0})

    def close(self) -> None:
        self._broker.communicate()
        assert self._broker.returncode == 0

    def _line(self) -> str:
        assert self._broker.stdout is not None
        return self._broker.stdout.readline().rstrip()

    def _becomes(self, how: str) -> None:
        assert self._broker.stdin is not None
        self._broker.stdin.write(f"{how}\n")
        self._broker.stdin.flush()
        assert self._line() == how

    @contextmanager
    def outage(self, how: str) -> Iterator[None]:
        """The broker is "down", so that nobody can connect, or it "hangs": it takes requests and does not answer."""
        self._becomes(how)
        try:
            yield
        finally:
            self._becomes("up")

    def topic(self, name: str) -> str:
        """Make a topic, of as many partitions as the mock gives it; its name."""
        wait_until(
            lambda: self._holder.list_topics(name, timeout=HANG_S).topics[name].error is None, "the topic is there"
        )
        return name

    def send(self, topic: str, values: Mapping[int, Sequence[bytes | None]], at_ms: int = 0) -> None:
        """Messages into partitions, all with the timestamp `at_ms`; 0 for that of the clock when each is sent."""
        for partition, each in values.items():
            for value in each:
                self._holder.produce(topic, value, partition=partition, timestamp=at_ms)
        assert self._holder.flush(HANG_S) == 0

    def committed(self, group: str, topic: str, partition: int) -> int:
        """The offset that a group has committed; 0 before the first."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=HANG_S)
            return max(found.offset, 0)
        finally:
            consumer.close()
