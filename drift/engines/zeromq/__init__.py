"""The engine over ZeroMQ."""

from drift.engines.zeromq.engine import ZeromqEngine

__all__ = ["ZeromqEngine"]
