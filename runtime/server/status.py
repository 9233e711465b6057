"""Routes that say how the runtime is."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from ..protocol import PROTOCOL_VERSION
from ..protocol.errors import EngineStarting
from ..version import omnistage_version
from .services import SERVICES


async def health(request: web.Request) -> web.Response:
    """GET /health: the server answers."""
    body = {
        "status": "ok",
        "version": omnistage_version(),
        "protocol": PROTOCOL_VERSION,
        "boot_id": request.app[SERVICES].boot_id,
    }
    return web.json_response(body)


async def ready(request: web.Request) -> web.Response:
    """GET /ready: the engine is up; 503 while it is not."""
    services = request.app[SERVICES]
    if not services.engines.ready:
        loss = services.orchestrator.last_loss
        words = "The engine is starting." if loss is None else f"The engine is down: {loss}"
        raise EngineStarting(words)
    return web.json_response({"ready": True})


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: the models, and what is wrong with those that cannot be used.

    `object` and `data` say what OpenAI's clients want to know.
    """
    found = await request.app[SERVICES].shelf.describe()
    data = [_card(model["id"]) for model in found["models"]]
    return web.json_response({**found, "object": "list", "data": data})


async def model(request: web.Request) -> web.Response:
    """GET /v1/models/{id}: that there is one, for OpenAI's clients."""
    name = request.match_info["id"]
    await request.app[SERVICES].shelf.open([name])
    return web.json_response(_card(name))


async def stats(request: web.Request) -> web.Response:
    """GET /v1/stats: counters and gauges as JSON."""
    return web.json_response(request.app[SERVICES].orchestrator.stats())


async def metrics(request: web.Request) -> web.Response:
    """GET /metrics: the same for Prometheus."""
    body = request.app[SERVICES].metrics()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _card(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "omnistage"}
