"""Who may talk to the runtime.

With a token: whoever shows it. Without one the runtime listens on this machine only, and what
must be kept out is a web page in the user's browser: a page of another site (its Origin tells),
or a name of the attacker's that resolves to this machine (the Host header tells).
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from ..client.address import is_loopback
from ..protocol.errors import Unauthorised
from .services import SERVICES

_OPEN_PATHS = frozenset({"/health", "/ready"})


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse strangers before anything is read."""
    token = request.app[SERVICES].config.token
    if token is None:
        _check_local(request)
    elif request.path not in _OPEN_PATHS:
        _check_token(request, token.get_secret_value())
    return await handler(request)


def _check_token(request: web.Request, token: str) -> None:
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    same = hmac.compare_digest(shown.strip().encode("utf-8", "replace"), token.encode())
    if scheme.lower() != "bearer" or not same:
        raise Unauthorised(
            "This runtime wants a token: set OMNISTAGE_TOKEN to the one it was started with."
        )


def _check_local(request: web.Request) -> None:
    if not is_loopback(_host_of(f"//{request.host}")):
        raise Unauthorised(
            f"A request for host {request.host!r} is refused: without a token this runtime "
            "answers requests for localhost only.",
            field="Host",
            value=request.host,
        )
    origin = request.headers.get("Origin")
    if origin is not None and not is_loopback(_host_of(origin)):
        raise Unauthorised(
            f"A request from a page of {origin!r} is refused.", field="Origin", value=origin
        )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
