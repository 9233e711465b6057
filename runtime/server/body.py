"""Reading requests within limits."""

from __future__ import annotations

import json
import math
from typing import Any

from aiohttp import web
from aiohttp.client_exceptions import ClientPayloadError

from ..protocol.errors import InvalidRequest, ProtocolError, TooLarge

MAX_JSON_BYTES = 16 << 20


async def read_body(request: web.Request, limit_bytes: int) -> bytes:
    """The body, refused as soon as it is known to be too large.

    Raises:
        TooLarge: it is over the limit.
        ProtocolError: it ended before it was complete.
    """
    announced = request.content_length
    if announced is not None and announced > limit_bytes:
        raise _too_large(limit_bytes)
    chunks, size = [], 0
    try:
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > limit_bytes:
                raise _too_large(limit_bytes)
            chunks.append(chunk)
    except (ClientPayloadError, web.PayloadAccessError) as error:
        raise ProtocolError(f"The body is incomplete or malformed: {error}") from error
    return b"".join(chunks)


async def read_json(request: web.Request) -> Any:
    """The body as JSON.

    Raises:
        ProtocolError: it is not JSON.
    """
    data = await read_body(request, MAX_JSON_BYTES)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"The body is not JSON: {error}", field="body") from error


def query_number(request: web.Request, name: str, default: float, most: float) -> float:
    """A number from the query, at least 0.

    Raises:
        InvalidRequest: it is none, or out of range.
    """
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:  # NaN is refused, too
        raise InvalidRequest(
            f"{name} = {text!r} is refused.", field=name, value=text, allowed=f"0 to {most:g}"
        )
    return value


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(
        f"The body is larger than the {limit_bytes} bytes this runtime takes.",
        field="body",
        allowed=f"at most {limit_bytes} bytes",
    )
