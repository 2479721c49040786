"""Addresses of files and servers, and options of their clients: passwords in them, which no message shows.

Invariant: the result of `without_secrets` has no password of a URL or of a connection string of libpq, anywhere; no
error has one that `secrets_of` finds in what a run was given, once it was `cleaned`; and no client gets a URL of
`checked_url` that it would split within the password.

Why: a password is between a colon and the last @, or after the name of a password parameter; in an address of a web
server all before the @ may be a token, and so may a parameter that is named as one, or as a signature or key; nothing
is parsed, so an address that is no URL, for example one with a typing error, or with a password that has characters
which separate the parts of a URL, is treated alike. Where it is not certain what the password is, more is hidden. A
text of any kind, such as a function's source or a value that it holds, has other colons and @s: so there, only what is
in an address, or has the name of a secret, is hidden (`shown_safely`). What a client says of its options is known by
neither, but by the options themselves.
"""

from __future__ import annotations

import functools
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from drift_graph.errors import SettingsError

_SECRET = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credentials?|jwt|authorization|(?:api|access|account|private|auth|sas)"
    r"[_.-]?key(?:[_.-]?id)?|connection[_.-]string)"
)
_NAMED = re.compile(rf"{_SECRET}\W*$", re.I)
_OF_USER = re.compile(r"(:/+[^:\s]*:).*@", re.S)
_OF_ADDRESS = re.compile(r"(:/+[^\s/?#'\"@:]*:)(?!\d+[/?#])[^\s'\"]*@")
_OF_NAME = re.compile(
    rf"({_SECRET}['\"]?\]?\s*(?:[=!]=|[=:])\s*[fbru]?)(?:'(?:[^'\\]|\\.)+'|\"(?:[^\"\\]|\\.)+\")", re.I
)
_OF_PAGE = re.compile(r"(https?:/+)[^/?#@\s]+@", re.I)
_OF_DSN = re.compile(r"((?:^|[\s'\"])\w*(?:password|passwd|secret|token)=)[^\s'\"&(),]+(?=[\s'\"]|$)", re.I)
_OF_QUERY = re.compile(
    r"([?&](?:[\w.-]*(?:password|passwd|pwd|secret|token|signature|credentials?|key|key_?id|access_?id|auth|jwt)|sig|code)"
    r"=)[^&\s'\"]*",
    re.I,
)
_OF_PARAMETER = re.compile(r"((?:^|\s)\w*(?:password|passwd|secret|token)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^&\s]*)", re.I)
_PARTS = re.compile(r"(?P<user>[\w+.-]*://[^:/?#@\s]*:)(?P<password>.*)@(?P<rest>[^@]*)", re.S)
_PLAIN = "!$%&'()*+,;=:"  # what a password may have as it is, as well as letters, digits and -._~
_SECRET_CHARACTERS_MIN = 4  # of one that is hidden wherever it stands: in "a" all texts have it
_ADDRESSES_MAX = 1000  # in a list that a source was made with
_PORT = re.compile(r"\d+[/?#]")

Chained = TypeVar("Chained", bound=BaseException)


def without_secrets(text: str) -> str:
    """A text with *** in place of each password in it, and of what else lets its owner in: tokens, signatures, keys."""
    text = _OF_PAGE.sub(r"\1***@", _OF_USER.sub(r"\1***@", text))
    return _OF_PARAMETER.sub(r"\1***", _OF_QUERY.sub(r"\1***", text))


def shown_safely(text: str, name: str = "") -> str:
    """A text of any kind with *** in place of the secrets of addresses in it, and of what has the name of a secret.

    Args:
        name: of a value, whose text it is.
    """
    if _NAMED.search(name):
        return "***"
    text = _OF_QUERY.sub(r"\1***", _OF_PAGE.sub(r"\1***@", _OF_ADDRESS.sub(r"\1***@", text)))
    return _OF_DSN.sub(r"\1***", _OF_NAME.sub(r"\1'***'", text))


def secrets_of(*given: Any) -> set[str]:
    """The passwords that sources, sinks and checkpoints of drift were made with: in their addresses and their options.

    Invariant: a payload is none of them; lists of others, which a run reads, are not looked into.
    """
    found: set[str] = set()
    todo: list[tuple[str, Any]] = [("", each) for each in given]
    seen: set[int] = set()
    while todo:
        name, value = todo.pop()
        if isinstance(value, str):
            found.update(_secrets_in(value) if not _NAMED.search(name) else [value])
        elif id(value) not in seen:
            seen.add(id(value))
            for each in _made_with(value):
                if isinstance(each, Mapping):
                    todo += [(str(key), option) for key, option in each.items()]
                elif type(each) in (list, tuple) and len(each) <= _ADDRESSES_MAX:
                    todo += [("", address) for address in each]
                else:
                    todo.append(("", each))
    return {secret for secret in found if len(secret) >= _SECRET_CHARACTERS_MIN}


def _made_with(value: Any) -> Iterable[Any]:
    """What an object or a function of drift holds; of those of others nothing."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args]
    if isinstance(value, types.FunctionType):
        if value.__module__.partition(".")[0] != "drift":
            return ()
        return [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]  # a filled one
    is_ours = type(value).__module__.partition(".")[0] == "drift"
    return getattr(value, "__dict__", {}).values() if is_ours else ()


def _secrets_in(address: str) -> Iterable[str]:
    """The passwords in one address, as they are and as clients read them."""
    if not any(mark in address for mark in "@="):
        return ()
    parts = _PARTS.fullmatch(address)
    found = [] if parts is None or _PORT.match(parts["password"]) else [parts["password"]]
    for pattern in (_OF_PAGE, _OF_QUERY, _OF_PARAMETER):
        found += [each[0][len(each[1]) :].removesuffix("@").strip("'") for each in pattern.finditer(address)]
    return {*found, *map(unquote, found)}


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
    return _cleaned(error, lambda text: without_secrets(_hidden(text, known)))


def cleaned_of(error: Chained, known: set[str]) -> Chained:
    """Any error, itself, with none of the `secrets_of` what a run was given, nor those of an address."""
    return _cleaned(error, lambda text: shown_safely(_hidden(text, known)))


def _cleaned(error: Chained, clean: Callable[[str], str]) -> Chained:
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        todo += [each.__cause__, each.__context__]
        args = tuple(clean(arg) if isinstance(arg, str) else arg for arg in each.args)
        if args != each.args:
            each.args = args
        notes = getattr(each, "__notes__", None)
        if notes:
            notes[:] = map(clean, notes)
    return error


def _hidden(text: str, known: set[str]) -> str:
    for password in sorted(known, key=len, reverse=True):
        text = text.replace(password, "***")
    return text


def path_text(function: str, path: Any, what: str = "file") -> str:
    """The path of a file, folder or table as text. Raises SettingsError: it is no path."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise SettingsError(f"{function}({path!r:.80}): the path of a {what} is a text or a pathlib.Path") from None
