"""The route of uploads."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ..models.stage import UPLOADS
from ..protocol.errors import InvalidRequest
from ..protocol.frames import Frame
from ..protocol.recipe import blob_digest
from .body import read_body
from .services import SERVICES


async def put_blob(request: web.Request) -> web.Response:
    """PUT /v1/blobs/{digest}: an encoded frame, whose header says its `kind`."""
    services = request.app[SERVICES]
    digest = request.match_info["digest"]
    data = await read_body(request, services.config.max_body_mb << 20)
    frame = await asyncio.to_thread(_checked, digest, data)
    services.orchestrator.put_blob(digest, frame)
    return web.json_response({"digest": digest})


def _checked(digest: str, data: bytes) -> Frame:
    actual = blob_digest(data)
    if actual != digest:
        raise InvalidRequest(
            "The upload's content does not have the digest in its address: it was damaged on "
            "its way, or named wrongly.",
            field="digest",
            value=digest,
            allowed=actual,
        )
    frame = Frame.decode(data)
    kind = frame.header.get("kind")
    if not isinstance(kind, str) or kind not in UPLOADS:  # a header can hold anything
        raise InvalidRequest(
            f"An upload of kind {kind!r} is refused.",
            field="kind",
            value=kind,
            allowed=", ".join(sorted(UPLOADS)),
        )
    return frame
