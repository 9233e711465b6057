"""The event stream of a job over WebSocket: text, or a frame where there is a preview or a part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from aiohttp import WSCloseCode, web

from ..orchestrator.events import Subscription
from .services import SERVICES, Services

_HEARTBEAT_S = 20.0
_MAX_INCOMING_BYTES = 1 << 12
_CLOSE_TIMEOUT_S = 2.0


async def job_events(request: web.Request) -> web.WebSocketResponse:
    """GET /v1/jobs/{key}/events; with `owner`, that lease stays alive meanwhile."""
    services = request.app[SERVICES]
    key = request.match_info["key"]
    subscription = services.orchestrator.subscribe(key)
    socket = web.WebSocketResponse(
        heartbeat=_HEARTBEAT_S, max_msg_size=_MAX_INCOMING_BYTES, timeout=_CLOSE_TIMEOUT_S
    )
    try:
        await socket.prepare(request)
        services.sockets.add(socket)
        await _first_of(
            _send(socket, subscription),
            _until_closed(socket),
            _keep_lease(services, request.query.get("owner")),
        )
        await socket.close()
    finally:
        services.sockets.discard(socket)
        services.orchestrator.unsubscribe(key, subscription)
    return socket


async def close_all(app: web.Application) -> None:
    """Tell every follower that the server is going away."""
    for socket in list(app[SERVICES].sockets):
        await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the runtime shuts down")


async def _send(socket: web.WebSocketResponse, subscription: Subscription) -> None:
    """Send as fast as the reader reads; what it is too slow for is coalesced meanwhile."""
    with contextlib.suppress(ConnectionError):
        async for event in subscription:
            frame = event.to_frame()
            if frame is None:
                await socket.send_json(event.to_json())
            else:
                await socket.send_bytes(frame.encode())


async def _until_closed(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        pass  # a follower has nothing to say


async def _keep_lease(services: Services, owner: str | None) -> None:
    while True:
        if owner is not None:
            services.orchestrator.renew([owner])
        await asyncio.sleep(services.lease_ttl_s / 3)


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
