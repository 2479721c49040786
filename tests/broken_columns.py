"""Breakages of rows as columns."""

from __future__ import annotations

from broken import Breakage, one

_FORMS, _METAS = "drift/columns/forms.py", "drift/columns/metas.py"
ROWS = ("tests/test_rows.py", "-k", "forms or metas")
_UNSEEN = "its inputs are no rows"

BREAKAGES: list[Breakage] = [
    one("a NaN has the bits it came with", _FORMS, "if np.isnan(values).any():", "if False:", ROWS, _UNSEEN),
    one(
        "null is encoded as the value below it",
        _FORMS,
        "        codes[~valid] = _NIL[0]\n",
        "        pass\n",
        ROWS,
        _UNSEEN,
    ),
    one("a text's last bits are left out", _FORMS, "bit_length()):", "bit_length() - 1):", ROWS, _UNSEEN),
    one("a long text has a short header", _FORMS, "(0, short - 1,", "(0, short,", ROWS, _UNSEEN),
    one("integers of two sizes overlap", _FORMS, "(1 << 8, (1 << 16) - 1", "(1 << 7, (1 << 16) - 1", ROWS, _UNSEEN),
    one("chosen metas of rows without a head", _METAS, "joined(head), f", "joined(bytes(len(head))), f", ROWS, _UNSEEN),
    one(
        "forms of the first rows for all",
        "drift/columns/rows.py",
        "slice(number * _FORMS",
        "slice(0 * _FORMS",
        ROWS,
        _UNSEEN,
    ),
]
