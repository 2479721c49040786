"""Breakages of the kernel, which is built anew for each."""

from __future__ import annotations

from broken import SAME_CODE, Breakage, one

_HASH, _ENCODE, _ARROW, _KEYS = (
    f"kernel/drift_kernel/{name}" for name in ("hash.h", "encode.pyx", "arrow.pyx", "keys.pyx")
)
KERNEL = ("tests/core/test_compiled.py",)
ROWS = ("tests/core/test_compiled.py", "-k", "columns")
_FEW = "its values are too few and too short"

BREAKAGES: list[Breakage] = [
    one("a stripe at the end of a block is left out", _HASH, "p) > 1024;", "p) > 1088;", KERNEL, SAME_CODE),
    one("the last stripe begins elsewhere", _HASH, "SECRET + 121", "SECRET + 120", KERNEL, SAME_CODE),
    one(
        "240 bytes are many",
        _HASH,
        "hash128 sum;\n    if (size > 240)",
        "hash128 sum;\n    if (size > 239)",
        KERNEL,
        _FEW,
    ),
    one(
        "the last three bytes of a hash are left out",
        _HASH,
        "for (; p < end; p++) sum",
        "for (; p + 3 < end; p++) sum",
        KERNEL,
    ),
    one("-32 has two bytes", _ENCODE, "    if value >= -32:", "    if value > -32:", KERNEL, SAME_CODE),
    one("an extension of 16 bytes has no header of its own", _ENCODE, " or size == 16:", ":", KERNEL, _FEW),
    one(
        "a long extension is not moved back",
        _ENCODE,
        "    out.size -= HEAD_MAX - head\n",
        "    out.size -= 3\n",
        KERNEL,
        _FEW,
    ),
    one("dicts are in the order of insertion", _ENCODE, "if self.in_order and count > 1:", "if False:", KERNEL, _FEW),
    one(
        "fields that are not set are an error",
        _ENCODE,
        "except AttributeError:  # n",
        "except KeyError:  # n",
        ("tests/core/test_canonical.py",),
        _FEW,
    ),
    one(
        "attributes that are no fields are not seen",
        _ENCODE,
        "if of_names not in plan.known:",
        "if False:",
        ("tests/core/test_canonical.py",),
        _FEW,
    ),
    one("what is deep is not asked of the twin", _ENCODE, "    DEPTH_MAX = 60", "    DEPTH_MAX = 3000", KERNEL, _FEW),
    one("a moment has no microseconds", _ENCODE, "0xA0 | (26 if micros else 19)", "0xA0 | 19", KERNEL, _FEW),
    one(
        "True is a key like 1",
        _KEYS,
        "kind == <PyObject *>int or",
        "kind == <PyObject *>int or kind == <PyObject *>bool or",
        KERNEL,
    ),
    one(
        "bits of null are read from the first",
        _ARROW,
        "column.valid[at >> 3] >> (at & 7) & 1:",
        "column.valid[row >> 3] >> (row & 7) & 1:",
        ROWS,
        _FEW,
    ),
    one("small unsigned integers are negative", _ARROW, "(<uint64_t>1 << (8 * width)) - 1", "~<uint64_t>0", ROWS, _FEW),
    one(
        "a text of twelve bytes is not in its view",
        _ARROW,
        "if 0 <= size <= VIEW_MAX:",
        "if 0 <= size < VIEW_MAX:",
        ROWS,
        _FEW,
    ),
    one(
        "a leap year is every fourth",
        _ARROW,
        "leap = ones == 3 and (fours != 24 or hundreds == 3)",
        "leap = ones == 3",
        ROWS,
        _FEW,
    ),
    one("a day before 1970 is the day after", _ARROW, "            day -= 1\n", "            pass\n", ROWS, _FEW),
    one(
        "a text may end behind its bytes",
        _ARROW,
        "if not 0 <= start <= end <= memory.view.len or",
        "if not 0 <= start <= end or",
        ROWS,
        _FEW,
    ),
]
