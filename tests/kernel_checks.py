"""The kernel under a sanitizer of addresses, with drawn values, and where memory runs out: `make kernel-checks`.

    python tests/kernel_checks.py ROUNDS     so many rounds of each check

The kernel is built anew, with AddressSanitizer and the sanitizer of undefined behaviour, in a copy, and the tests that
draw values for it run there, and then the checks. An error of memory ends them, and any answer that is not the twin's.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_FLAGS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
_TESTS = [f"tests/core/test_{name}.py" for name in ("compiled", "metas_of_batches")]
_TESTS += ["tests/rows/test_session_rows.py", "tests/rows/test_running.py", "tests/rows/test_rolled_rows.py"]
_TESTS += ["tests/flow/test_flow_windows.py"]
_CHOSEN = "test_compiled or test_metas or loop or bits or taken_back or by_number or numbers or added or fails"
_ALLOCATIONS = 60  # of a call, each of which fails once
_KINDS = [
    *((kind, (1, 2, 4, 8)) for kind in ("integer", "natural")),
    *((kind, (4, 8)) for kind in ("real", "text", "binary")),
    *((kind, (16,)) for kind in ("text view", "binary view")),
    *((kind, (8,)) for kind in ("moment", "moment in UTC")),
    ("boolean", (1,)),
]
_BLOCKS_MAX = 200  # that may be left by what Python keeps for itself


def _sanitizers() -> list[str]:
    compiler = os.environ.get("CC", "gcc")
    asked = ([compiler, f"-print-file-name=lib{name}.so"] for name in ("asan", "ubsan"))
    return [subprocess.run(each, capture_output=True, text=True, check=True).stdout.strip() for each in asked]


def main(rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="drift-kernel-") as folder:
        tree = Path(folder)
        shutil.copy(ROOT / "hatch_build.py", tree)
        shutil.copytree(ROOT / "kernel", tree / "kernel", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
        build = {**os.environ, "DRIFT_KERNEL": "require", "CFLAGS": _FLAGS}
        subprocess.run([sys.executable, "hatch_build.py"], cwd=tree, env=build, check=True)
        environment = {
            **build,
            "PYTHONPATH": os.pathsep.join(
                map(str, [tree / "kernel", ROOT, *(ROOT / each for each in ("graph", "tests"))])
            ),
            "PYTHONMALLOC": "malloc",  # so that each block has its own bounds
            "LD_PRELOAD": " ".join(_sanitizers()),
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        }
        tests = [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", *_TESTS, "-k", _CHOSEN]
        subprocess.run(tests, cwd=ROOT, env={**environment, "DRIFT_TESTS": "anew"}, check=True)
        here = [sys.executable, __file__, str(rounds)]
        checked = subprocess.run([*here, "checks"], env=environment, check=False).returncode
    return checked or subprocess.run([*here, "leaks"], check=False).returncode


def check(rounds: int) -> None:
    """All checks, with the kernel that is imported here."""
    from drift_kernel import kernel

    assert kernel is not None
    for name, one in (
        ("objects", objects),
        ("columns", columns),
        ("memory", memory),
        ("contents", contents),
    ):
        drawn = random.Random(f"{name} {rounds}")
        for number in range(rounds):
            one(kernel, drawn)
            if number in (0, rounds - 1):
                print(f"{name}: {number + 1} rounds", flush=True)


def value(drawn: random.Random, depth: int = 0) -> Any:
    """Any value, now and then one that has no form."""
    import datetime
    import decimal

    kind = drawn.randrange(20 if depth < 5 else 12)
    if kind < 3:
        return drawn.choice([1, -1]) * (drawn.getrandbits(drawn.randrange(70)) + drawn.randrange(-1, 2))
    if kind < 6:
        letters = drawn.choice(["a", "abc", "é€", "\U0001f600x", "\ud800"])
        return "".join(
            drawn.choice(letters) for _ in range(drawn.choice([0, 1, 5, 31, 32, 255, 256, 70_000 if depth < 2 else 3]))
        )
    if kind < 12:
        moment = datetime.datetime(drawn.randrange(1, 9999), 2, 3, 4, 5, 6, drawn.randrange(2), fold=drawn.randrange(2))
        times = [moment, moment.date(), moment.time(), moment.replace(tzinfo=datetime.UTC), datetime.timedelta(1, 2, 3)]
        floats = [0.0, -0.0, float("nan"), float("inf"), drawn.random()]
        rare = [decimal.Decimal("1.50"), object() if drawn.random() < 0.1 else 1j, bytearray(b"a")]
        return drawn.choice([None, True, False, drawn.randbytes(drawn.randrange(300)), *times, *floats, *rare])
    size = drawn.choice([0, 1, 2, 3, 15, 16, 17, 40])
    parts = [value(drawn, depth + 1 + (size > 3)) for _ in range(size)]
    if kind < 14:
        return tuple(parts)
    if kind < 16:
        return parts
    if kind < 18:
        return {(repr(part) if drawn.random() < 0.8 else at): part for at, part in enumerate(parts)}
    return {repr(part) for part in parts} if kind < 19 else Fields(parts, size)


@dataclasses.dataclass
class Fields:
    """Instances that the kernel takes apart."""

    one: Any
    other: Any


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error)


def objects(kernel: Any, drawn: random.Random) -> None:
    """Values by the kernel and its twin; and where the twin that it asks raises, or gives something else."""
    from drift_graph import canonical as forms

    one = value(drawn)
    assert _outcome(forms.canonical, one) == _outcome(forms._whole_canonical, one)
    assert _outcome(forms.stored, one) == _outcome(forms._whole_stored, one)

    def asked(part: Any) -> Any:
        if drawn.random() < 0.1:
            return drawn.choice([None, "text", 7])
        if drawn.random() < 0.1:
            raise drawn.choice([KeyError, RecursionError, MemoryError, AttributeError])("asked")
        return forms._canonical(part)

    def plan_of(kind: type) -> Any:
        return (
            forms._plan_of(kind)
            if drawn.random() < 0.9
            else drawn.choice([None, (), (13, b"", (), (), None), 7, (1, 2, 3, 4, 5)])
        )

    for call in (kernel.encode_joined, kernel.encode_each, kernel.hash_each, kernel.encode):
        _outcome(call, [one, value(drawn)], asked, asked, plan_of, drawn.random() < 0.5)


def columns(kernel: Any, drawn: random.Random) -> None:
    """Columns of any bytes, of which some say more than there is: an answer or an error, and no byte outside."""
    from drift_graph import canonical as forms

    kind, widths = drawn.choice(_KINDS)
    start, count, width = drawn.randrange(5), drawn.randrange(1, 9), drawn.choice(widths)
    size = (start + count + 1) * width - drawn.randrange(2)
    numbers = [drawn.choice([0, 1, 2, 5, 12, 13, 40, -1, drawn.getrandbits(31)]) for _ in range(size // 4 + 1)]
    data = b"".join(each.to_bytes(4, sys.byteorder, signed=True) for each in numbers)[:size]
    if drawn.random() < 0.3:
        data = drawn.randbytes(size)
    valid = drawn.randbytes(drawn.randrange(3)) if drawn.random() < 0.5 else None
    others = [drawn.randbytes(drawn.randrange(50)) for _ in range(drawn.randrange(3))]
    made = _outcome(kernel.Column, kind, width, start, count, valid, data, others)
    pieces = [b"\x92", made, (drawn.randrange(-1, 130), [made, (7, [made])])]
    rows = _outcome(kernel.RowForms, pieces[: drawn.randrange(4)], count, *forms.CANONICAL)
    for name in ("joined", "each", "hashes"):
        _outcome(lambda name=name: getattr(rows, name)(drawn.randrange(-1, count), drawn.randrange(count + 2)))
    codes = _outcome(
        kernel.coded_column, [b"a", None, b"bb"], drawn.randbytes(drawn.randrange(40)), drawn.randrange(-1, 9)
    )
    _outcome(lambda: kernel.RowForms([codes], 3, *forms.CANONICAL).joined(0, 3))


def real_meta(drawn: random.Random) -> bytes:
    """The meta of an item of a source, or of one that was put at a later moment; many begin alike."""
    from drift_graph.meta import TIME_MAX, TIME_MIN, global_time, later_meta, varint

    numbers = [0, 1, 7, 247, 248, 300, 2**64 - 1]
    moments = [TIME_MIN, TIME_MAX, *range(-3, 4)]
    meta = global_time(drawn.choice(moments), 3, drawn.choice(numbers), drawn.choice([0, 0, 1, 300]))
    meta += b"".join(varint(drawn.choice(numbers)) for _ in range(drawn.randrange(3)))
    for _ in range(drawn.choice([0, 0, 1, 2])):
        meta = later_meta(meta, b"ab", drawn.choice(moments), drawn.choice([1, 2, 3, 255]), drawn.randrange(2)) or meta
    return meta


def windows_of(table: Any, first: int, stop: int) -> tuple[list[Any], list[Any]]:
    """The keys of windows and their accumulators."""
    keys, _, accumulators = table.of(array("q", range(first, stop)))
    return keys, accumulators


def memory(kernel: Any, drawn: random.Random) -> None:
    """Each allocation of a call fails once: the call raises MemoryError, and the next one is right."""
    import _testcapi

    from drift_graph import canonical as forms

    values = [
        ("a", 1.5, {"b": (1, None)}, ["c"] * drawn.randrange(20), {"d" * at for at in range(drawn.randrange(20))})
    ]
    values.append({str(at): "x" * drawn.randrange(2000) for at in range(drawn.randrange(30))})  # type: ignore[arg-type]
    column = kernel.Column("integer", 8, 0, 9, None, drawn.randbytes(72))
    rows = kernel.RowForms([b"\x91", (7, [column])], 9, *forms.CANONICAL)
    several = [real_meta(drawn) for _ in range(drawn.randrange(2, 60))]
    increasing = sorted({*several})
    of = kernel.Metas(several)
    packed, encoded, ends, one_each = of.packed(), of.encoded(), [b"\1", b"\2\3"], [1] * len(several)
    times, ties = (array(code, [drawn.randrange(3) for _ in range(90)]) for code in "qQ")
    many = array("Q", range(90))
    calls: list[Callable[[], Any]] = [
        lambda: kernel.encode_joined(values, *forms.CANONICAL),
        lambda: kernel.encode_each(values, *forms.CANONICAL),
        lambda: kernel.hash_each(values, *forms.CANONICAL),
        lambda: kernel.RowForms([b"\x91", (7, [column])], 9, *forms.CANONICAL).joined(0, 9),
        lambda: rows.each(0, 9),
        lambda: rows.hashes(0, 9),
        lambda: kernel.encode_blocks([*values, *values], 1, 2, *forms.CANONICAL),
        lambda: kernel.encode_one(values[0], *forms.CANONICAL),
        lambda: [list(each) for each in kernel.Metas(several).sorted()],
        lambda: list(kernel.Metas(several)[1:].take([0])),
        lambda: list(of.children(one_each, ends)),
        lambda: list(of.later(b"\5", 2, 2)),
        lambda: list(kernel.Metas.joined([of, of.with_suffix(b"\1"), of])),
        lambda: [list(each) for each in kernel.Metas.merged([kernel.Metas(increasing), kernel.Metas(increasing[::2])])],
        lambda: list(of.chosen(bytes(one_each))) + list(of.from_on(several[0])),
        lambda: [*kernel.Metas.unpacked(packed), of.packed()],
        lambda: [*kernel.Metas.decoded(len(several), encoded), of.encoded()],
        lambda: list(kernel.Metas.numbered(0, 9, b"\3\0\0")) + list(kernel.Metas.stamped(times, ties, b"\3", b"\0")),
        lambda: [kernel.Stamps().add(times, each) for each in (ties, many)],
        lambda: kernel.late_of(times, 2, 0, 1),
        lambda: loops(kernel),
        lambda: kernel.Contents(values, frozenset({set})).before(),
        lambda: kernel.dicts_of(["a", "b"], [[1] * 90, [2] * 90], 90),
    ]
    for call in calls:
        expected = call()
        for fails_at in range(1, _ALLOCATIONS):
            _testcapi.set_nomemory(fails_at, fails_at + 1)
            try:
                found = call()
            except MemoryError:
                continue
            finally:
                _testcapi.remove_mem_hooks()
            assert found == expected
        assert call() == expected


def loops(kernel: Any) -> str:
    """What a batch of many keys makes of new windows and sessions."""
    of = [f"{at % 70}" for at in range(90)]
    codes, keys = kernel.codes_of(of)
    numbers = list(range(90))
    values = numbers, None, None
    made = [kernel.Accumulators("sum", int, int.__add__), kernel.Accumulators("mean", None, None)]
    table = kernel.Windows(made, several=True)
    table.add(codes, keys, [values, values], [80, 90], of, str)
    table.keep()
    made = [kernel.Accumulators("max", None, None), kernel.Accumulators("count")]
    several = kernel.Sessions(9, (b"\1", b"\2\0", 2), 1000, made, several=True)
    metas = kernel.Metas.stamped(array("q", numbers), array("Q", numbers), b"\0", b"")
    over = several.add(metas, codes, keys, [values, (None, None, None)], of, str)
    several.keep()
    made = [kernel.Accumulators("sum", int, int.__add__, int.__add__)]
    by_number = kernel.NumberedWindows(2, 1, None, made, several=False)
    for key in keys[:30]:
        by_number.absorb(key, (1, (), 1))
    ended = by_number.add(codes, keys, [values], False)
    by_number.keep()
    return repr(
        (ended, by_number.entries(), windows_of(table, 0, len(table)), len(over), several.states(several.cells_of()))
    )


def contents(kernel: Any, drawn: random.Random) -> None:
    """What is in values, before and after one more is in the list; and dicts of columns."""
    some = [value(drawn) for _ in range(3)]
    found = kernel.Contents(some, frozenset({bytes, object, complex}))
    if found.is_known:
        assert found.are_same() and repr(found.before()) == repr(some)
        some.append(drawn.choice(some))
        assert not found.are_same() and repr(found.before()) == repr(some[:3])
    else:
        assert _outcome(found.before)[0] is ValueError
    names = [f"{at}" for at in range(drawn.randrange(20))]
    columns = [[at * 1000 + row for row in range(drawn.choice([9, 10]))] for at in range(len(names))]
    assert kernel.dicts_of(names, columns, 9) == [
        dict(zip(names, row)) for row in zip(*(column[:9] for column in columns))
    ] + [{} for _ in range(0 if names else 9)]


def leaks() -> None:
    """As many blocks are left after many calls as after few; with Python's own memory, which counts them."""
    drawn = random.Random(0)
    some = [value(drawn) for _ in range(40)]
    from drift_graph import canonical as forms
    from drift_kernel import kernel

    assert kernel is not None

    def calls() -> None:
        for each in some:
            _outcome(forms.canonical, each)
            _outcome(forms.stored_each, [each, each])
            _outcome(forms.hash64_each, [each])
            _outcome(kernel.Contents([each], frozenset({bytes})).before)
            kernel.dicts_of(["a"], [[each]], 1)

    for _ in range(3):
        calls()
    before = sys.getallocatedblocks()
    for _ in range(20):
        calls()
    left = sys.getallocatedblocks() - before
    print(f"blocks left after 20 rounds: {left}")
    assert left < _BLOCKS_MAX


if __name__ == "__main__":
    if sys.argv[2:] == ["checks"]:
        check(int(sys.argv[1]))
    elif sys.argv[2:] == ["leaks"]:
        leaks()
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
