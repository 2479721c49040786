"""The settings of the engine over ZeroMQ."""

from __future__ import annotations

from dataclasses import dataclass

from drift.engines.settings import Settings, count, either, flag, optional, seconds, setting


@dataclass(frozen=True)
class ZeromqSettings(Settings):
    """Settings of engine "zeromq", in addition to those of all engines.

    Attributes:
        workers: processes that share the keys.
        recover: if a process dies, replace it, rewind to the last checkpoint and continue; False ends the run.
        checkpoint_interval_s: seconds between the checkpoints for that; None takes checkpoints as often as they cost
            little.
        transport: "ipc" or "tcp".
        silence_max_s: after so long without a sign of life a process counts as hung.
        call_max_s: after so long in one call of a step a worker counts as hung; None for never.
    """

    workers: int = setting(1, count, "Processes that share the keys (zeromq).", kind=int)
    recover: bool = setting(True, flag, "Replace processes of the run that die (zeromq).", kind=bool)
    checkpoint_interval_s: float | None = setting(None, optional(seconds))
    transport: str = setting("ipc", either("ipc", "tcp"), "ipc or tcp, between the processes of the run (zeromq).")
    silence_max_s: float = setting(5.0, seconds)
    call_max_s: float | None = setting(60.0, optional(seconds))

    @property
    def workers_in_all(self) -> int:
        return self.workers
