"""Every failure as JSON: `{"error": {"code", "message", ...}}`."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler

from ..client.http import PROTOCOL_HEADER
from ..protocol import PROTOCOL_VERSION
from ..protocol.errors import InvalidRequest, NotFound, OmniStageError, TooLarge

log = logging.getLogger(__name__)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost handler; the HTTP border, where nothing may pass unanswered."""
    try:
        return await handler(request)
    except OmniStageError as error:
        return error_response(error)
    except web.HTTPException as refusal:
        if refusal.status < 400:
            raise
        return error_response(_translated(refusal, request), refusal.status)
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        words = "The runtime made a mistake; its log says more."
        return error_response(OmniStageError(words))


async def mark_protocol(_: web.Request, response: web.StreamResponse) -> None:
    """Mark every answer as one of an OmniStage runtime."""
    response.headers[PROTOCOL_HEADER] = str(PROTOCOL_VERSION)


def error_response(error: OmniStageError, status: int | None = None) -> web.Response:
    """An error as a response."""
    return web.json_response({"error": error.to_json()}, status=status or error.http_status)


def _translated(refusal: web.HTTPException, request: web.Request) -> OmniStageError:
    """Aiohttp's own refusals in the words of the error tree."""
    if isinstance(refusal, web.HTTPNotFound):
        return NotFound(f"There is nothing at {request.path}.", field="path", value=request.path)
    if isinstance(refusal, web.HTTPRequestEntityTooLarge):
        return TooLarge("The request is too large.", field="body")
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refusal.allowed_methods))
        words = f"{request.path} does not take {request.method}."
        return InvalidRequest(words, field="method", value=request.method, allowed=allowed)
    return InvalidRequest(refusal.reason)
