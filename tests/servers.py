"""Real servers for the tests of connectors: Redis, Postgres, and librdkafka's own mock of a Kafka cluster.

They are started for a session of tests, in a temporary folder, and end with it. Where one cannot be started the tests
fail: `.ci/run` installs what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import HANG_S, wait_until


@contextmanager
def redis_server() -> Iterator[str]:
    """A Redis server; its URL."""
    import redis

    program = shutil.which("redis-server")
    assert program, "there is no redis-server; .ci/run installs it (Debian: apt-get install redis-server)"
    with tempfile.TemporaryDirectory(prefix="drift-redis-") as folder:
        socket = f"{folder}/redis.sock"
        settings = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder, "--daemonize", "no"]
        server = subprocess.Popen([program, *settings], stdout=subprocess.DEVNULL)
        try:
            url = f"unix://{socket}"

            def answers() -> bool:  # its socket is there a moment before somebody listens
                try:
                    with redis.Redis.from_url(url) as client:
                        return bool(client.ping())
                except redis.ConnectionError:
                    return False

            wait_until(answers, "Redis answers")
            yield url
        finally:
            server.terminate()
            server.wait()


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
        settings = ["-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
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
            server.terminate()
            server.wait()


class Kafka:
    """A mock cluster of Kafka within this process.

    Attributes:
        servers: its bootstrap servers.
    """

    def __init__(self) -> None:
        from confluent_kafka import Producer

        self._holder = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._holder.list_topics(timeout=HANG_S).brokers.values()
        self.servers = ",".join(f"{each.host}:{each.port}" for each in brokers)

    def topic(self, name: str) -> str:
        """Make a topic, of as many partitions as the mock gives it; its name."""
        wait_until(
            lambda: self._holder.list_topics(name, timeout=HANG_S).topics[name].error is None, "the topic is there"
        )
        return name

    def send(self, topic: str, values: Mapping[int, Sequence[bytes | None]]) -> None:
        """Messages into partitions."""
        for partition, each in values.items():
            for value in each:
                self._holder.produce(topic, value, partition=partition)
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
