"""The settings of the engine over ZeroMQ."""

from __future__ import annotations

import os
from dataclasses import dataclass

from drift.engines.settings import StatefulSettings, either, flag, optional, setting
from drift_graph.errors import SettingsError
from drift_graph.numbers import why_no_int, why_no_seconds


def port_of(address: str) -> tuple[str, int] | None:
    """Host and port of tcp://HOST:PORT; None if it is none, or names no one host.

    >>> port_of("tcp://10.0.0.1:7000"), port_of("tcp://*:7000")
    (('10.0.0.1', 7000), None)
    """
    host, colon, port = address.removeprefix("tcp://").rpartition(":")
    is_one = address.startswith("tcp://") and bool(colon) and port.isdecimal() and int(port) < 1 << 16
    return (host, int(port)) if is_one and host not in ("", "*", "0.0.0.0", "::", "[::]") else None


def _port(value: object) -> str:
    is_one = value is None or (isinstance(value, str) and port_of(value) is not None)
    return "" if is_one else "not tcp://HOST:PORT, an address of this machine at which the others reach it"


def _path(value: object) -> str:
    return "" if value is None or isinstance(value, (str, os.PathLike)) else "not the path of a file"


@dataclass(frozen=True)
class ZeromqSettings(StatefulSettings):
    """Settings of engine "zeromq", in addition to those of all engines.

    Attributes:
        workers: processes that share the keys.
        recover: if a process dies, replace it, rewind to the last checkpoint and continue; False ends the run.
        checkpoint_interval_s: seconds between the checkpoints for that; None takes checkpoints as often as they cost
            little.
        transport: "ipc" or "tcp".
        listen: workers are on other machines, and join at this address, tcp://HOST:PORT, where `drift worker` is given
            it; None for processes of this machine.
        key: the file with the key that all machines of the run have (`drift key`); whoever has it can run anything on
            each of them.
        silence_max_s: after so long without a sign of life a process counts as hung.
        call_max_s: after so long in one call of a step a worker counts as hung; None for never.
    """

    workers: int = setting(1, why_no_int, "Processes that share the keys (zeromq).", kind=int)
    recover: bool = setting(True, flag, "Replace processes of the run that die (zeromq).", kind=bool)
    checkpoint_interval_s: float | None = setting(None, optional(why_no_seconds))
    transport: str = setting("ipc", either("ipc", "tcp"), "ipc or tcp, between the processes of the run (zeromq).")
    listen: str | None = setting(None, _port, "Workers join here from other machines, tcp://HOST:PORT (zeromq).")
    key: str | os.PathLike[str] | None = setting(None, _path, "File of the key of such a run; see drift key (zeromq).")
    silence_max_s: float = setting(5.0, why_no_seconds)
    call_max_s: float | None = setting(60.0, optional(why_no_seconds))

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.listen is None) != (self.key is None):
            raise SettingsError(
                f"listen={self.listen!r} and key={self.key!r} belong together: workers of other machines join at the "
                f"address if they have the key, which `drift key FILE` makes"
            )

    @property
    def workers_in_all(self) -> int:
        return self.workers
