"""What can be read once and was: generators, other iterators, readers of batches.

Invariant: what is said to have ended has nothing more to give; what was read to its end by a run of this process, or
lets it be seen, is known.

Why: generators say it. Iterators of Python's own have let go of what they went through, or hold another iterator that
has ended. The rest is noted where a run reads its end: by a weak reference, or, of types that have none, by one that is
dropped at the next look, once nobody else has the object.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

#: Types that hold something until they have ended.
_LETTING_GO = frozenset(
    type(each)
    for each in (
        *map(iter, ([], (), "", "\u1234", b"", bytearray(), {}, {}.values(), {}.items(), set())),
        *(reversed([]), reversed({}), iter(int, 0), itertools.chain(), itertools.islice((), 0)),
    )
)
#: Types that have ended where an iterator that they hold has. Those of Python's own say what it is as they are copied,
#: since they hold what they gave last, too.
_COPIED = frozenset((map, zip, filter, enumerate))
_HOLDING = frozenset(
    (itertools.starmap, itertools.filterfalse, itertools.compress, itertools.takewhile, itertools.dropwhile)
)

_weak: dict[int, weakref.ref[Any]] = {}  # by id, as long as they live
_held: list[Any] = [object()]
_HELD_ALONE = sys.getrefcount(_held[0])  # references to what only this list has
_lock = threading.Lock()


def note_end(once: Any) -> None:
    """Note that what can be read once, if anything, was read to its end."""
    if once is None or has_ended(once):
        return
    within = _within(once)
    if len(within) == 1:
        note_end(within[0])
        return
    key = id(once)

    def forget(_: Any) -> None:
        _weak.pop(key, None)

    try:
        _weak[key] = weakref.ref(once, forget)
    except TypeError:
        with _lock:
            _held.append(once)


def has_ended(once: Any) -> bool:
    """Whether what can be read once is known to have nothing more."""
    _drop_unshared()
    known = _weak.get(id(once))
    if (known is not None and known() is once) or any(each is once for each in _held[:]):
        return True
    if inspect.isgenerator(once):
        return inspect.getgeneratorstate(once) == inspect.GEN_CLOSED
    if type(once) in _LETTING_GO:
        return not gc.get_referents(once)
    return any(map(has_ended, _within(once))) or getattr(once, "closed", False) is True


def _within(once: Any) -> list[Any]:
    """The iterators that one of Python's own goes through."""
    if type(once) in _COPIED:
        return [each for each in once.__reduce__()[1] if isinstance(each, Iterator)]
    return [each for each in gc.get_referents(once) if isinstance(each, Iterator)] if type(once) in _HOLDING else []


def _drop_unshared() -> None:
    """Forget what nobody else has any more."""
    with _lock:
        alone = [at for at in range(len(_held)) if sys.getrefcount(_held[at]) <= _HELD_ALONE]
        dropped = [_held.pop(at) for at in reversed(alone)]
    del dropped  # without the lock: a class may do something as it goes
