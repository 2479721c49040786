"""The address at which the page of a run is served, and who may see it.

Invariant: nobody outside of this machine sees a run without a token, nor unless its user named a host.

Why: the address is on the loopback device unless a host is named; on any other host every request needs a token, which
is made if none is set. On loopback the Host header must name the loopback host: otherwise a web page in a browser on
this machine could read the run, by a domain name that resolves to 127.0.0.1.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from dataclasses import dataclass

from drift_graph.errors import SettingsError

#: Holds the token that requests must bring; if set, also on loopback.
TOKEN_VARIABLE = "DRIFT_WEB_TOKEN"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """Attributes:
    host: a name or an IP address.
    port: 0 for any that is free.
    token: what every request has to bring; "" for nothing.
    """

    host: str
    port: int
    token: str = ""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def url(self, port: int) -> str:
        """The URL of the page, once it is bound to this port."""
        host = self.host if self.host not in ("0.0.0.0", "::", "") else socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/" + (f"?token={self.token}" if self.token else "")

    def bound(self) -> socket.socket:
        """A socket bound to this address, which does not listen yet.

        Raises:
            SettingsError: the address is in use, or not of this machine.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self.host, self.port))
        except OSError as error:
            bound.close()
            raise SettingsError(
                f"web: cannot serve at {self.host}:{self.port}: {error.strerror or error}; choose another port, or 0 "
                f"for any that is free"
            ) from None
        return bound


def as_address(web: object) -> Address:
    """An address of a port, "PORT", "HOST:PORT" or "[IPV6]:PORT". Raises SettingsError: it is none of these."""
    host, port = _LOOPBACK, web
    if isinstance(web, str):
        before, colon, after = web.rpartition(":")
        host, port = (before.removeprefix("[").removesuffix("]") if colon else _LOOPBACK), after
        port = int(port) if port.isascii() and port.isdigit() else None
    if type(port) is not int or not 0 <= port <= 0xFFFF or not host:
        raise SettingsError(f"web={web!r:.80} is no port (0 to 65535), nor 'HOST:PORT'")
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token and not is_loopback(host):
        token = secrets.token_urlsafe(16)
    return Address(host, port, token)


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host that a Host header names, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header
