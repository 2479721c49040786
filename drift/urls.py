"""Addresses of servers in messages.

Invariant: the result of `without_secrets` has no password of a URL or of a connection string of libpq, anywhere.

Why: a password is between a colon and the last @ before a host, or after the name of a password parameter; nothing is
parsed, so an address that is no URL, for example one with a typing error, is treated alike.
"""

from __future__ import annotations

import re

_OF_USER = re.compile(r"(://[^:/?#\s]*:)[^/?#\s]*@")
_OF_PARAMETER = re.compile(r"((?:^|[?&\s])\w*(?:password|passwd|secret|token)=)(?:'(?:[^'\\]|\\.)*'|[^&#\s]*)", re.I)


def without_secrets(text: str) -> str:
    """A text with *** in place of each password in it."""
    return _OF_PARAMETER.sub(r"\1***", _OF_USER.sub(r"\1***@", text))
