"""Failures as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from ...protocol.errors import (
    InvalidRequest,
    OmniStageError,
    QueueFull,
    TooLarge,
    Unauthorised,
    UnknownModel,
)

log = logging.getLogger(__name__)

_PATHS = ("/v1/audio/", "/v1/chat/", "/v1/models/")
_CODES = {UnknownModel.code: "model_not_found", Unauthorised.code: "invalid_api_key"}
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
# What the thinker calls its fields, as a chat request, or one for speech, does.
_CHAT_FIELDS = {
    "audio": "messages",
    "history": "messages",
    "image": "messages",
    "json_schema": "response_format",
    "prompt": "messages",
    "video": "messages",
}
SPEECH_FIELDS = {"answer": "input", "prompt": "input", "system": "instructions"}


@web.middleware
async def errors_as_openai(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer for the routes that OpenAI's clients use; all others are left alone."""
    if not request.path.startswith(_PATHS):
        return await handler(request)
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception as error:  # noqa: BLE001 - the HTTP border; `as_known` logs it
        speech = request.path.startswith("/v1/audio/")
        return _response(as_known(error), SPEECH_FIELDS if speech else _CHAT_FIELDS)


def error_body(
    error: OmniStageError, fields: Mapping[str, str] = MappingProxyType(_CHAT_FIELDS)
) -> dict[str, Any]:
    """The error as a JSON object.

    Args:
        error: what went wrong.
        fields: what the request calls the thinker's fields.
    """
    status = _status(error)
    general = "invalid_request_error" if status < 500 else "server_error"
    return {
        "error": {
            "message": error.message,
            "type": _TYPES.get(status, general),
            "param": _param(error, fields),
            "code": _CODES.get(error.code, error.code),
        }
    }


def as_known(error: Exception) -> OmniStageError:
    """The error, if it was raised on purpose; any other goes into the log, not to the client."""
    if isinstance(error, OmniStageError):
        return error
    log.error("a request failed", exc_info=error)
    return OmniStageError("The runtime made a mistake; its log says more.")


def refusal(field: str, problem: str, allowed: str) -> InvalidRequest:
    """A field of a request is wrong.

    Args:
        field: its path, such as `messages[0].role`.
        problem: how its sentence goes on.
        allowed: what would be accepted.
    """
    return InvalidRequest(f"{field} {problem}. Allowed: {allowed}.", field=field, allowed=allowed)


def _response(error: OmniStageError, fields: Mapping[str, str]) -> web.Response:
    # OpenAI's clients repeat whatever answers 5xx or 429, unless this header says otherwise.
    headers = {"x-should-retry": "true" if error.retry_helps else "false"}
    return web.json_response(error_body(error, fields), status=_status(error), headers=headers)


def _status(error: OmniStageError) -> int:
    if isinstance(error, UnknownModel | TooLarge | Unauthorised | QueueFull):
        return error.http_status
    if isinstance(error, InvalidRequest):
        return 400
    return 503 if error.retry_helps else 500


def _param(error: OmniStageError, fields: Mapping[str, str]) -> str | None:
    """The field that is wrong: a stage's `history[0]` is a request's `messages[0]`."""
    if error.field is None or error.stage is None:
        return error.field
    name, bracket, rest = error.field.partition("[")
    return fields.get(name, name) + bracket + rest
