"""Server-sent events as OpenAI's clients read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web


class EventStream:
    """A response that begins with its first event: until then an error can have a status."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._starting = asyncio.Lock()
        self.response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )

    async def send(self, body: Mapping[str, Any]) -> None:
        """Send an event; waits while the reader is slow."""
        await self._send(json.dumps(body))

    async def end(self) -> None:
        """Say that nothing follows."""
        await self._send("[DONE]")

    async def _send(self, data: str) -> None:
        async with self._starting:  # one of several choices comes first
            if not self.response.prepared:
                await self.response.prepare(self._request)
        await self.response.write(f"data: {data}\n\n".encode())
