"""Writing a graph: streams with the core's operations, and a catalogue made of them.

Invariant: every method adds sources, maps, groups, sinks and edges to the draft, and nothing else.
"""

from drift.streams.adding import ERRORS as ERRORS
from drift.streams.graph import Graph as Graph
from drift.streams.keyed import KeyedStream as KeyedStream
from drift.streams.stream import Feedback as Feedback
from drift.streams.stream import Stream as Stream
from drift.streams.windowed import WindowedStream as WindowedStream
