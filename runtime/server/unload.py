"""The routes that end engines and free what they hold."""

from __future__ import annotations

from aiohttp import web

from .services import SERVICES


async def unload(request: web.Request) -> web.Response:
    """DELETE /v1/engines/{engine}; it comes back when it is needed. Refused while it works."""
    loaded = await request.app[SERVICES].engines.unload(request.match_info["engine"])
    return web.json_response({"unloaded": loaded})


async def unload_all(request: web.Request) -> web.Response:
    """DELETE /v1/engines; those that work end when they have nothing to do."""
    engines = await request.app[SERVICES].engines.unload_all()
    return web.json_response({"unloading": engines})
