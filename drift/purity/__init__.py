"""Whether a graph's functions are pure: called again on equal payloads, in processes with other hash seeds."""

from drift.purity.check import PurityCheck

__all__ = ["PurityCheck"]
