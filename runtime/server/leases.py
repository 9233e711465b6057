"""Routes of leases."""

from __future__ import annotations

from aiohttp import web

from ..protocol.errors import InvalidRequest
from ..protocol.recipe import take_fields
from .body import read_json
from .services import SERVICES


async def renew(request: web.Request) -> web.Response:
    """POST /v1/leases/renew `{"owners": [...]}`; answers with the owners that have no lease."""
    owners = take_fields(await read_json(request), "renewal", {"owners": list})["owners"]
    if not all(isinstance(owner, str) for owner in owners):
        raise InvalidRequest("`owners` must be texts.", field="owners", allowed="a list of texts")
    return web.json_response({"unknown": request.app[SERVICES].orchestrator.renew(owners)})


async def release(request: web.Request) -> web.Response:
    """DELETE /v1/leases/{owner}; nothing is wrong if it has none."""
    request.app[SERVICES].orchestrator.release(request.match_info["owner"])
    return web.json_response({})
