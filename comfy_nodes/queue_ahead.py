"""Submits the runtime's part of every queued prompt while ComfyUI still works on earlier ones.

ComfyUI runs prompts one after another; the runtime does not. What is submitted here is found
under way, or done, when ComfyUI reaches the node. A prompt that leaves the queue, whether it
ran, was deleted, or was interrupted, gives up its work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from ..runtime.client import RuntimeClient
from ..runtime.protocol.errors import EngineStarting, OmniStageError, RuntimeUnavailable
from ..runtime.protocol.messages import SubmitRequest
from ..runtime.protocol.recipe import Handle, Recipe
from .leases import CLIENT, Leases, owner_of
from .planner import Plan, QueuedPrompt, ReadAudio, ReadImage, plan
from .settings import Settings

log = logging.getLogger(__name__)

_POLL_S = 0.25
"""How often the queue is looked at when nothing woke the watcher."""
_HEARTBEAT_S = 2.0
_RETRY_S = 3.0
"""How long a prompt waits for another try after its runtime could not be reached."""


class QueueAhead:
    """Watches ComfyUI's queue; runs on the I/O loop.

    Args:
        queue: ComfyUI's queue, as it is now.
        read_image: reads an input picture as `LoadImage` does.
        read_audio: reads an input sound as `LoadAudio` does.
        settings: the settings in force now.
        client_at: the client for a runtime's address.
        leases: what prompts hold.
    """

    def __init__(
        self,
        queue: Callable[[], list[QueuedPrompt]],
        read_image: ReadImage,
        read_audio: ReadAudio,
        settings: Callable[[], Settings],
        client_at: Callable[[str], RuntimeClient],
        leases: Leases,
    ) -> None:
        self._queue = queue
        self._read_image = read_image
        self._read_audio = read_audio
        self._settings = settings
        self._client_at = client_at
        self._leases = leases
        self._due_s: dict[str, float] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at the queue now (I/O loop only)."""
        self._woken.set()

    async def watch(self) -> None:
        """Follow the queue for good."""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _POLL_S)
            self._woken.clear()
            try:
                await self.tick()
            except Exception:  # the watcher must outlive whatever one prompt does to it
                log.exception("OmniStage: looking at the queue failed")

    async def keep_alive(self) -> None:
        """Renew leases for good; a ComfyUI that dies stops doing so, and its work stops."""
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            await self.renew()

    async def renew(self) -> None:
        """Renew leases once; what a restarted runtime forgot is submitted again."""
        for prompt_id in await self._leases.renew():
            self._due_s.pop(prompt_id, None)

    async def tick(self) -> None:
        """Release what left the queue, submit what is new in it."""
        queued = {prompt.id: prompt for prompt in self._queue()}
        gone = self._leases.prompts - queued.keys()
        self._due_s = {k: due_s for k, due_s in self._due_s.items() if k in queued}
        for prompt_id in gone:
            await self._leases.release(prompt_id)
        now_s = asyncio.get_running_loop().time()
        due = [p for p in queued.values() if self._due_s.get(p.id, 0.0) <= now_s]
        if due and self._settings().queue_ahead:
            for prompt in due:
                await self._submit(prompt, now_s)

    async def _submit(self, prompt: QueuedPrompt, now_s: float) -> None:
        self._due_s[prompt.id] = float("inf")
        planned = await asyncio.to_thread(plan, prompt, self._read_image, self._read_audio)
        try:
            for address in planned.addresses:
                await self._hold(prompt, address, planned)
        except (EngineStarting, RuntimeUnavailable) as error:
            log.debug("OmniStage: prompt %s not submitted ahead: %s", prompt.id, error)
            self._due_s[prompt.id] = now_s + _RETRY_S
        except OmniStageError as error:
            log.debug("OmniStage: prompt %s left to its nodes: %s", prompt.id, error)

    async def _hold(self, prompt: QueuedPrompt, address: str, planned: Plan) -> None:
        """Submit a prompt's work for one runtime."""
        sources = [result.source for result in planned.at(address).results.values()]
        handles = [source for source in sources if isinstance(source, Handle)]
        if not handles:
            return
        client = self._client_at(address)
        self._leases.hold(prompt.id, client)
        recipe = Recipe().merged(*(handle.recipe for handle in handles))
        blobs = {digest: data for handle in handles for digest, data in handle.blobs.items()}
        request = SubmitRequest(owner_of(prompt.id), CLIENT, recipe, previews=prompt.watched)
        await client.submit(request, blobs)
        self._leases.hold(prompt.id, client)  # in case it was released meanwhile
