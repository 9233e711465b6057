"""Routes of jobs: submit, look at, wait for, fetch."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ..orchestrator.jobs import Job
from ..protocol import FRAME_MEDIA_TYPE
from ..protocol.errors import InvalidRequest
from ..protocol.messages import SubmitRequest
from .body import query_number, read_json
from .pictures import png_of
from .services import SERVICES

_MAX_WAIT_S = 60.0


async def submit(request: web.Request) -> web.Response:
    """POST /v1/jobs."""
    services = request.app[SERVICES]
    asked = SubmitRequest.from_json(await read_json(request))
    await services.shelf.open(job.model for job in asked.recipe)
    return web.json_response(services.orchestrator.submit(asked).to_json())


async def describe(request: web.Request) -> web.Response:
    """GET /v1/jobs/{key}; `wait_s` waits up to that long for its end."""
    orchestrator = request.app[SERVICES].orchestrator
    key = request.match_info["key"]
    wait_s = query_number(request, "wait_s", 0.0, _MAX_WAIT_S)
    job = orchestrator.job(key)
    if wait_s and job.live:
        await _wait_for_end(request, key, wait_s)
    return web.json_response(_description(job))


async def output(request: web.Request) -> web.Response:
    """GET /v1/jobs/{key}/outputs/{name}; `format=png&index=i` for pictures."""
    match = request.match_info
    frame = request.app[SERVICES].orchestrator.output(match["key"], match["name"])
    form = request.query.get("format", "frame")
    if form == "frame":
        body = await asyncio.to_thread(frame.encode)
        return web.Response(body=body, content_type=FRAME_MEDIA_TYPE)
    if form == "png":
        index = query_number(request, "index", 0, 1e6)
        body = await asyncio.to_thread(png_of, frame, int(index))
        return web.Response(body=body, content_type="image/png")
    raise InvalidRequest(
        f"format = {form!r} is refused.", field="format", value=form, allowed="frame, png"
    )


async def _wait_for_end(request: web.Request, key: str, wait_s: float) -> None:
    orchestrator = request.app[SERVICES].orchestrator
    subscription = orchestrator.subscribe(key)
    try:
        async with asyncio.timeout(wait_s):
            async for _ in subscription:
                pass
    except TimeoutError:
        pass  # as asked
    finally:
        orchestrator.unsubscribe(key, subscription)


def _description(job: Job) -> dict[str, Any]:
    body: dict[str, Any] = {
        "key": job.key,
        "model": job.plan.model,
        "stage": job.plan.stage.name,
        "params": dict(job.plan.params),
        "state": job.state,
    }
    for event in job.news:  # the last one wins; all say which step it is
        facts = event.to_json()
        body |= {name: facts[name] for name in facts if name not in ("key", "kind")}
    return body
