"""The route that ends an engine and frees what it holds."""

from __future__ import annotations

from aiohttp import web

from .services import SERVICES


async def unload(request: web.Request) -> web.Response:
    """DELETE /v1/engines/{engine}; it comes back when it is needed. Refused while it works."""
    loaded = await request.app[SERVICES].engines.unload(request.match_info["engine"])
    return web.json_response({"unloaded": loaded})
