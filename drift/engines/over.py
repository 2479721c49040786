"""A run that is over, called again: what its input has more than it had is refused before anything is read.

Invariant: once a run has ended as complete, its sources are not read any more; a call that finds more in one of them,
or could only find out by taking what nobody gives twice, is refused, with the words of `_refused`.

Why: windows have closed and aggregates at the end have come, so an item that comes later has no place in the order. A
reader of its own looks behind the position at which the source ended; that changes nothing for a source with positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drift.guarantees import gives_once
from drift.sources.base import Reader
from drift_graph.errors import SettingsError
from drift_graph.rereading import from_plain


def refuse_once_only(sources: Mapping[str, Any], where: str) -> None:
    """To be called before the sources of a run that is over are opened.

    Raises:
        SettingsError: one of them is live, or gives what it gives once.
    """
    for name, source in sources.items():
        if source.live:
            raise _refused(where, name, "is live, so all that it gives comes later")
        if gives_once(source):
            raise _refused(where, name, f"cannot be asked what is new ({source.guarantee.because})")


def refuse_more(name: str, reader: Reader, position: Any, where: str) -> None:
    """To be called before anything is read; the reader is of no more use.

    Args:
        position: of the checkpoint at the end, of this source.

    Raises:
        SettingsError: the source has more than it had at the end of the run, or does not say.
        InputError: the source no longer has what it had, or what is new cannot be read.
    """
    end = from_plain(name, position).reader
    if more := reader.more_behind(end):
        raise _refused(where, name, more)


def _refused(where: str, name: str, why: str) -> SettingsError:
    return SettingsError(
        f"the run whose state is in {where} is over: its input ended and was taken as complete, so its windows are "
        f"closed; source {name!r} {why}, and nothing of that was read, since it would have no place in the output; run "
        f"all of the input as a new run, with another state= and new targets of the sinks; if input is to be added "
        f"between calls, begin that run with complete=False (--incomplete), and each call goes on"
    )
