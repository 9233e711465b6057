"""The application: routes, and what starts and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from ..config import Config
from ..executor.group import EngineGroup
from ..models.catalogue import Catalogue
from ..observe.metrics import exposition
from ..orchestrator.leases import Leases
from ..orchestrator.lifecycle import Limits
from ..orchestrator.orchestrator import Orchestrator
from ..orchestrator.store import Store
from . import blobs, jobs, leases, status
from .engines import build_engines
from .errors import errors_as_json, mark_protocol
from .events import close_all, job_events
from .guard import guard
from .openai import chat, speech
from .openai.errors import errors_as_openai
from .services import SERVICES, Services
from .shelf import ModelShelf
from .unload import unload, unload_all


def build_services(
    config: Config, *, catalogue: Catalogue | None = None, engines: EngineGroup | None = None
) -> Services:
    """Everything behind the routes, as configured.

    Args:
        config: the whole configuration.
        catalogue: replaces the configured models.
        engines: replaces the configured engines.
    """
    catalogue = catalogue or config.catalogue()
    engines = engines or build_engines(config, catalogue)
    orchestrator = Orchestrator(
        catalogue,
        engines,
        Store(config.store.budget_mb << 20),
        Leases(config.leases.ttl_s),
        Limits(queued_jobs=config.server.max_queued_jobs, retries=config.engine.retries),
    )
    return Services(
        config=config.server,
        orchestrator=orchestrator,
        engines=engines,
        shelf=ModelShelf(catalogue),
        lease_ttl_s=config.leases.ttl_s,
        metrics=exposition(orchestrator.stats),
    )


def build_app(services: Services) -> web.Application:
    """The application; the engine starts and ends with it."""
    app = web.Application(middlewares=[errors_as_json, errors_as_openai, guard])
    app[SERVICES] = services
    app.on_response_prepare.append(mark_protocol)
    app.on_shutdown.append(close_all)
    app.cleanup_ctx.append(_engine)
    app.cleanup_ctx.append(_upkeep)
    app.add_routes(
        [
            web.get("/health", status.health),
            web.get("/ready", status.ready),
            web.get("/metrics", status.metrics),
            web.get("/v1/models", status.models),
            web.get("/v1/models/{id:.+}", status.model),
            web.get("/v1/stats", status.stats),
            web.post("/v1/jobs", jobs.submit),
            web.get("/v1/jobs/{key}", jobs.describe),
            web.get("/v1/jobs/{key}/events", job_events),
            web.get("/v1/jobs/{key}/outputs/{name}", jobs.output),
            web.put("/v1/blobs/{digest}", blobs.put_blob),
            web.post("/v1/leases/renew", leases.renew),
            web.delete("/v1/leases/{owner}", leases.release),
            web.delete("/v1/engines", unload_all),
            web.delete("/v1/engines/{engine}", unload),
            web.post("/v1/chat/completions", chat.complete),
            web.post("/v1/audio/speech", speech.speak),
        ]
    )
    return app


async def _engine(app: web.Application) -> AsyncIterator[None]:
    services = app[SERVICES]
    await services.engines.start(services.orchestrator.listener)
    yield
    await services.engines.stop()


async def _upkeep(app: web.Application) -> AsyncIterator[None]:
    """Expire leases in time, and unload idle engines."""
    services = app[SERVICES]

    async def expire() -> None:
        while True:
            await asyncio.sleep(min(1.0, services.lease_ttl_s / 4))
            services.orchestrator.expire()
            await services.engines.unload_idle()

    task = asyncio.create_task(expire())
    yield
    task.cancel()
