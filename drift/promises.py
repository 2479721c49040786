"""What a source and a sink promise for a run that is done again: data, on the class of each.

Invariant: a run writes each item exactly once where every source can be read again and every sink stores the last
position with its data; the guarantee of a run is the least of what its sources and sinks promise.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Rereads = Literal["from a position", "from the start", "not at all"]
Delivers = Literal["exactly once", "at least once"]


class SourcePromise(NamedTuple):
    """Attributes:
    rereads: from where a later run can read the same items again.
    because: why.
    """

    rereads: Rereads
    because: str


class SinkPromise(NamedTuple):
    """Attributes:
    delivers: how often an item is there after runs that were broken off and done again.
    because: why.
    """

    delivers: Delivers
    because: str
