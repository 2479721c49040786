"""Addresses of files and servers: passwords in them, which no message shows.

Invariant: the result of `without_secrets` has no password of a URL or of a connection string of libpq, anywhere; and no
client gets a URL of `checked_url` that it would split within the password.

Why: a password is between a colon and the last @, or after the name of a password parameter; in an address of a web
server all before the @ may be a token, and so may a parameter that is named as one, or as a signature or key; nothing
is parsed, so an address that is no URL, for example one with a typing error, or with a password that has characters
which separate the parts of a URL, is treated alike. Where it is not certain what the password is, more is hidden.
"""

from __future__ import annotations

import os
import re
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from drift_graph.errors import SettingsError

_OF_USER = re.compile(r"(:/+[^:\s]*:).*@", re.S)
_OF_PAGE = re.compile(r"(https?:/+)[^/?#@\s]+@", re.I)
_OF_QUERY = re.compile(
    r"([?&](?:[\w.-]*(?:password|passwd|pwd|secret|token|signature|credentials?|key|key_?id|access_?id|auth|jwt)|sig|code)"
    r"=)[^&\s'\"]*",
    re.I,
)
_OF_PARAMETER = re.compile(r"((?:^|\s)\w*(?:password|passwd|secret|token)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^&\s]*)", re.I)
_PARTS = re.compile(r"(?P<user>[\w+.-]*://[^:/?#@\s]*:)(?P<password>.*)@(?P<rest>[^@]*)", re.S)
_PLAIN = "!$%&'()*+,;=:"  # what a password may have as it is, as well as letters, digits and -._~
_PORT = re.compile(r"\d+[/?#]")

Chained = TypeVar("Chained", bound=BaseException)


def without_secrets(text: str) -> str:
    """A text with *** in place of each password in it, and of what else lets its owner in: tokens, signatures, keys."""
    text = _OF_PAGE.sub(r"\1***@", _OF_USER.sub(r"\1***@", text))
    return _OF_PARAMETER.sub(r"\1***", _OF_QUERY.sub(r"\1***", text))


def checked_url(url: str) -> str:
    """A URL that every client splits alike: with @, white space and so on in its password escaped.

    Raises:
        SettingsError: its password has a character that ends the part of a URL that it is in.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None or _PORT.match(parts["password"]):  # the colon is before a port, and the @ is in a name
        return url
    if re.search(r"[/?#]", parts["password"]):
        raise SettingsError(
            f"the URL {without_secrets(url)} has a password, or a name before its last @, with one of the characters "
            f"/ ? # in it, which end that part of a URL; write %2F, %3F or %23 for them, and %40 for @"
        )
    return f"{parts['user']}{quote(parts['password'], safe=_PLAIN)}@{parts['rest']}"


def client_of_redis(url: str, **options: Any) -> Any:
    """A client of Redis; what it does not know is refused before anything is asked.

    Raises:
        ValueError: it is no URL, or has a parameter that the client does not know.
    """
    import redis

    try:
        client = redis.Redis.from_url(url, **options)
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # which connects to nothing
    except TypeError as error:
        raise ValueError(f"the client of Redis {str(error).partition(') ')[2] or error}") from None
    return client


def cleaned(error: Chained, url: str = "") -> Chained:
    """An error of a client, itself, with no password in its message or in those of the errors that it comes from.

    Args:
        url: the address, if known, whose password is hidden wherever it stands.
    """
    parts = _PARTS.fullmatch(url)
    known = {parts["password"], unquote(parts["password"])} - {""} if parts is not None else set()
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        todo += [each.__cause__, each.__context__]
        each.args = tuple(_hidden(arg, known) if isinstance(arg, str) else arg for arg in each.args)
    return error


def _hidden(text: str, known: set[str]) -> str:
    for password in sorted(known, key=len, reverse=True):
        text = text.replace(password, "***")
    return without_secrets(text)


def path_text(function: str, path: Any, what: str = "file") -> str:
    """The path of a file, folder or table as text.

    Raises:
        SettingsError: it is no path.
    """
    try:
        return os.fsdecode(path)
    except TypeError:
        raise SettingsError(f"{function}({path!r:.80}): the path of a {what} is a text or a pathlib.Path") from None
