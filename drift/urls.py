"""Addresses of servers in messages.

Invariant: what `without_secrets` gives has no password of a URL or of a text of libpq, wherever in a text it stands.

Why: a password stands between a colon and the last @ of a host, or behind the name of a parameter that says so; and
nothing is parsed, so an address that is no URL, as one with a slip in it, is treated alike.
"""

from __future__ import annotations

import re

_OF_USER = re.compile(r"(://[^:/?#\s]*:)[^/?#\s]*@")
_OF_PARAMETER = re.compile(r"((?:^|[?&\s])\w*(?:password|passwd|secret|token)=)(?:'(?:[^'\\]|\\.)*'|[^&#\s]*)", re.I)


def without_secrets(text: str) -> str:
    """A text with *** in place of each password in it."""
    return _OF_PARAMETER.sub(r"\1***", _OF_USER.sub(r"\1***@", text))
