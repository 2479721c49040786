"""Sends lines "number due" over TCP at a steady rate: `python -m benchmarks.producer PORT ITEMS ITEMS_PER_SECOND`.

Invariant: line n is due n / rate seconds after the first, whatever became of the lines before.

Why: were a line's due time put off when the receiver is slow, its delay would not be seen in any latency.
"""

from __future__ import annotations

import socket
import sys
import time

_FIRST_DUE_S = 0.3


def send(port: int, items: int, items_per_second: float) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = time.clock_gettime(time.CLOCK_MONOTONIC) + _FIRST_DUE_S
        for number in range(items):
            due = first + number / items_per_second
            while (left := due - time.clock_gettime(time.CLOCK_MONOTONIC)) > 0:
                time.sleep(left)  # the pace is what is asked for
            connection.sendall(f"{number} {due}\n".encode())


if __name__ == "__main__":
    send(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
