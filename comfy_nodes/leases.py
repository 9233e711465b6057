"""Which owners hold work on which runtimes; gives it up when an owner's prompt is over."""

from __future__ import annotations

import logging
import uuid

from ..runtime.client import RuntimeClient
from ..runtime.protocol.errors import NotFound, OmniStageError

log = logging.getLogger(__name__)

CLIENT = f"comfyui-{uuid.uuid4().hex[:12]}"
"""This ComfyUI process: shares fairly with others, and keeps its prompts' ids apart from theirs."""


def owner_of(prompt_id: str) -> str:
    """The lease name of a prompt."""
    return f"{CLIENT}:{prompt_id}"


class Leases:
    """Prompts by id, and the clients through which they hold work; I/O loop only."""

    def __init__(self) -> None:
        self._held: dict[str, set[RuntimeClient]] = {}

    @property
    def prompts(self) -> frozenset[str]:
        """Ids of the prompts that hold something."""
        return frozenset(self._held)

    def hold(self, prompt_id: str, client: RuntimeClient) -> None:
        """Note that a prompt is about to hold work on a runtime."""
        self._held.setdefault(prompt_id, set()).add(client)

    async def release(self, prompt_id: str) -> None:
        """Give up all that a prompt holds; work nobody else wants is stopped."""
        for client in self._held.pop(prompt_id, set()):
            try:
                await client.release(owner_of(prompt_id))
            except NotFound:
                pass  # it had expired, or nothing was submitted yet
            except OmniStageError as error:
                log.debug("OmniStage: lease of prompt %s not released: %s", prompt_id, error)

    async def renew(self) -> set[str]:
        """Keep all leases from expiring; returns the prompts whose lease was gone."""
        gone = set()
        by_client: dict[RuntimeClient, list[str]] = {}
        for prompt_id, clients in self._held.items():
            for client in clients:
                by_client.setdefault(client, []).append(prompt_id)
        for client, prompt_ids in by_client.items():
            owners = {owner_of(prompt_id): prompt_id for prompt_id in prompt_ids}
            try:
                gone |= {owners[owner] for owner in await client.renew(owners) if owner in owners}
            except OmniStageError as error:
                log.debug("OmniStage: leases at %s not renewed: %s", client.address, error)
        return gone
