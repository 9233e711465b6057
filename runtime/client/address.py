"""Which runtime to talk to: an explicit address, else the environment, else this machine."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ..protocol.errors import InvalidRequest

DEFAULT_ADDRESS = "http://127.0.0.1:8400"
ADDRESS_VARIABLE = "OMNISTAGE_ADDRESS"
TOKEN_VARIABLE = "OMNISTAGE_TOKEN"
_ALLOWED = "http://host:port or https://host:port"


@dataclass(frozen=True, slots=True)
class RuntimeAddress:
    """A runtime's base URL, and the token to show it."""

    url: str
    token: str | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """Host name or number."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port, the scheme's own if none is written."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(self.host)


def find_address(
    address: str | None = None,
    token: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> RuntimeAddress:
    """The runtime to use.

    The environment's token goes to the environment's address (or the default one) only: an
    address can come out of a stranger's workflow, and must not collect the user's token.

    Args:
        address: explicit choice; empty or None leaves it to the environment.
        token: explicit token for whatever address is chosen.
        environ: replaces the process environment (tests).

    Raises:
        InvalidRequest: the address is not one; says what is wrong with it.
    """
    environ = os.environ if environ is None else environ
    configured = normalised(environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS, ADDRESS_VARIABLE)
    chosen = normalised(address, "address") if address else configured
    if token is None and chosen == configured:
        token = environ.get(TOKEN_VARIABLE) or None
    return RuntimeAddress(chosen, token)


def normalised(address: str, field_name: str = "address") -> str:
    """The address as a base URL without a slash at its end; `host:port` means http.

    Raises:
        InvalidRequest: the scheme, host or port is missing or wrong, or there is more than that.
    """
    text = address.strip()
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port  # raises for a port that is no number, or over 65535
    except ValueError as error:
        raise _refused(address, field_name, str(error)) from error
    if parts.scheme not in ("http", "https"):
        raise _refused(address, field_name, f"its scheme is {parts.scheme!r}")
    if not parts.hostname or port == 0 or any(c.isspace() for c in text):
        raise _refused(address, field_name, "it names no host" if not parts.hostname else "")
    if parts.username is not None or parts.query or parts.fragment:
        raise _refused(address, field_name, "it holds more than a host, a port and a path")
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host name or number means this machine and is reachable from it only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _refused(address: str, field_name: str, why: str) -> InvalidRequest:
    reason = f": {why}" if why else ""
    return InvalidRequest(
        f"{address!r} is not a runtime address{reason}. Write {_ALLOWED}.",
        field=field_name,
        value=address,
        allowed=_ALLOWED,
    )
