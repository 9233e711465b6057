"""The native API as Python calls."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp

from ..protocol import FRAME_MEDIA_TYPE
from ..protocol.errors import (
    EngineStarting,
    JobCancelled,
    JobFailed,
    MissingBlobs,
    OmniStageError,
    ResultGone,
)
from ..protocol.frames import Frame
from ..protocol.messages import JobEvent, ModelInfo, SubmitReply, SubmitRequest
from ..protocol.recipe import Handle, blob_digest
from .address import normalised
from .http import RuntimeHTTP

_ATTEMPTS = 3
_TRANSFER_TIMEOUT_S = 600.0


class RuntimeClient:
    """A client of one runtime, used from one event loop.

    Every method raises `RuntimeUnavailable` when nothing (or something else) answers at the
    address, and otherwise the `OmniStageError` the runtime answered with.

    Args:
        address: base URL, such as `http://127.0.0.1:8400`.
        token: shown to the runtime when it was configured with one.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        self._http = RuntimeHTTP(normalised(address), token)

    @property
    def address(self) -> str:
        """The base URL in use."""
        return self._http.url

    async def __aenter__(self) -> RuntimeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def health(self, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """`status`, `version`, `protocol` and `boot_id` of the runtime."""
        return dict(await self._http.call_json("GET", "/health", timeout_s=timeout_s))

    async def ready(self, *, timeout_s: float = 5.0) -> bool:
        """Whether the engine is up; it may still be starting on a healthy runtime."""
        try:
            await self._http.call("GET", "/ready", timeout_s=timeout_s)
        except EngineStarting:
            return False
        return True

    async def models(self) -> list[ModelInfo]:
        """The models that can be used."""
        body = await self._http.call_json("GET", "/v1/models")
        return [ModelInfo.from_json(model) for model in body["models"]]

    async def problems(self) -> dict[str, OmniStageError]:
        """What is wrong with the configured models that cannot be used, by id."""
        body = await self._http.call_json("GET", "/v1/models")
        return {k: OmniStageError.from_json(error) for k, error in body["problems"].items()}

    async def stats(self) -> dict[str, Any]:
        """Counters and gauges of the runtime."""
        return dict(await self._http.call_json("GET", "/v1/stats"))

    async def submit(
        self, request: SubmitRequest, blobs: Mapping[str, bytes] | None = None
    ) -> SubmitReply:
        """Ask for jobs; uploads what the runtime misses of `blobs` (encoded frames by digest).

        Raises:
            MissingBlobs: the recipe needs an upload that neither side has.
            InvalidRequest: a job is wrong; none was started.
        """
        blobs = blobs or {}
        for _ in range(_ATTEMPTS):
            try:
                body = await self._http.call_json("POST", "/v1/jobs", request.to_json())
                return SubmitReply.from_json(body)
            except MissingBlobs as error:
                refused = error
            if not set(refused.value or ()) <= set(blobs):
                break
            for digest in refused.value:
                await self.upload(blobs[digest])
        raise refused

    async def upload(self, data: bytes) -> str:
        """Upload an encoded frame; returns the digest to refer to it by."""
        digest = blob_digest(data)
        headers = {"Content-Type": FRAME_MEDIA_TYPE}
        await self._http.call(
            "PUT", f"/v1/blobs/{digest}", data=data, headers=headers, timeout_s=_TRANSFER_TIMEOUT_S
        )
        return digest

    async def output(self, key: str, name: str) -> Frame:
        """A result of a finished job.

        Raises:
            ResultGone: it has left the store; submitting the recipe again computes it again.
            NotFound: no such job or output, or the job has not finished.
        """
        path = f"/v1/jobs/{_quoted(key)}/outputs/{_quoted(name)}"
        return Frame.decode(await self._http.call("GET", path, timeout_s=_TRANSFER_TIMEOUT_S))

    async def events(self, key: str, *, owner: str | None = None) -> AsyncGenerator[JobEvent, None]:
        """A job's current state, then what happens to it, up to and with its final event.

        A reader that is slower than the job misses steps, never the final event.

        Args:
            key: the runtime's key of the job.
            owner: lease to keep alive while the events are followed.

        Raises:
            RuntimeUnavailable: the connection broke before the final event.
        """
        query = f"?{urlencode({'owner': owner})}" if owner else ""
        path = f"/v1/jobs/{_quoted(key)}"
        try:
            socket = await self._http.websocket(f"{path}/events{query}")
        except aiohttp.WSServerHandshakeError as error:
            await self._http.call("GET", path)  # a refused handshake has no body: ask why
            raise self._http.unavailable(error) from error
        async with socket:
            async for message in socket:
                if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    break
                event = _event_of(message)
                yield event
                if event.final:
                    return
        raise self._http.unavailable("the connection broke while a job ran")

    async def release(self, owner: str) -> None:
        """Give up an owner's lease: its jobs that nobody else wants are stopped."""
        await self._http.call("DELETE", f"/v1/leases/{_quoted(owner)}")

    async def renew(self, owners: Iterable[str]) -> list[str]:
        """Keep leases from expiring; returns the owners whose lease had gone."""
        body = await self._http.call_json("POST", "/v1/leases/renew", {"owners": list(owners)})
        return list(body["unknown"])

    async def unload(self, engine: str) -> bool:
        """End an idle engine and free what it holds; it comes back when it is needed.

        Args:
            engine: a name from `stats()["engines"]`, such as `ar/smollm2/thinker`.

        Returns:
            Whether it was loaded.

        Raises:
            InvalidRequest: it has work to do.
        """
        body = await self._http.call_json("DELETE", f"/v1/engines/{_quoted(engine)}")
        return bool(body["unloaded"])

    async def unload_all(self) -> list[str]:
        """End all engines: those that work, once they have nothing to do.

        Returns:
            The engines that end.
        """
        body = await self._http.call_json("DELETE", "/v1/engines")
        return list(body["unloading"])

    async def run(
        self,
        handle: Handle,
        *,
        owner: str,
        client: str,
        priority: int = 0,
        on_event: Callable[[JobEvent], None] | None = None,
        previews: bool = True,
    ) -> Frame:
        """Submit a handle's recipe, follow its job, and fetch the output it names.

        The owner's lease lives on afterwards: `release` it when its work is over, and also
        when this call is cancelled.

        Args:
            handle: names the output.
            owner: names the lease.
            client: whoever shares fairly with others.
            priority: higher runs earlier under the `priority` policy.
            on_event: called with each event, the final one included.
            previews: whether to make and send previews.

        Raises:
            JobFailed: the job failed; the subclass and the words say how.
            JobCancelled: the job was stopped.
        """
        request = SubmitRequest(owner, client, handle.recipe, priority, previews)
        lost: OmniStageError
        for _ in range(_ATTEMPTS):
            reply = await self.submit(request, handle.blobs)
            key = reply.keys[handle.job]
            try:
                await self._follow(key, owner, on_event)
                return await self.output(key, handle.output)
            except (ResultGone, MissingBlobs) as error:
                lost = error  # evicted between two steps of ours: the recipe brings it back
        raise lost

    async def _follow(
        self, key: str, owner: str, on_event: Callable[[JobEvent], None] | None
    ) -> None:
        """Wait for a job's end; raises unless it is `done`."""
        async with aclosing(self.events(key, owner=owner)) as events:
            async for event in events:
                if on_event is not None:
                    on_event(event)
                if event.kind == "failed":
                    raise event.error or JobFailed("The job failed.", job=key)
                if event.kind == "cancelled":
                    raise event.error or JobCancelled("The job was stopped.", job=key)


def _event_of(message: aiohttp.WSMessage) -> JobEvent:
    if message.type is aiohttp.WSMsgType.TEXT:
        return JobEvent.from_json(json.loads(message.data))
    return JobEvent.from_frame(Frame.decode(message.data))


def _quoted(part: str) -> str:
    return quote(part, safe="")
