"""librdkafka's own mock of a Kafka cluster as a program: it prints its bootstrap servers and does what its lines say.

It has a process to itself, since the mock's thread ends for good once a signal interrupts it (librdkafka issue 4727). A
test process gets signals, also one that cannot be blocked: to change the user of a process is to signal its threads.

A line is what the broker does from then on: "down", so that nobody can connect; "hangs", so that it takes requests and
does not answer; "up". Each is answered by the same line. The process ends with its input.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from waiting import HANG_S


def librdkafka() -> Any:
    """The library that confluent-kafka brings along, with the types of the functions that are called."""
    import confluent_kafka

    packages = Path(confluent_kafka.__file__).parents[1]
    (found,) = packages.glob("confluent_kafka.libs/librdkafka*")
    library: Any = ctypes.CDLL(str(found))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("conf_new", pointer, []),
        ("conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("mock_cluster_new", pointer, [pointer, number]),
        ("mock_cluster_bootstraps", text, [pointer]),
        ("mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("mock_broker_set_up", number, [pointer, ctypes.c_int32]),
        ("mock_broker_set_rtt", number, [pointer, ctypes.c_int32, number]),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def main() -> None:
    library, text = librdkafka(), ctypes.create_string_buffer(512)
    config = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(config, b"log_level", b"0", text, len(text))
    cluster = library.rd_kafka_mock_cluster_new(library.rd_kafka_new(0, config, text, len(text)), 1)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        library.rd_kafka_mock_broker_set_rtt(cluster, -1, int(HANG_S * 1000) if line == "hangs\n" else 0)
        if line == "down\n":
            library.rd_kafka_mock_broker_set_down(cluster, -1)
        else:
            library.rd_kafka_mock_broker_set_up(cluster, -1)
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
