"""Clients of the runtimes in use; starts a local runtime where the settings say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..runtime.client import LocalRuntime, RuntimeAddress, RuntimeClient, start_local
from .settings import Settings

log = logging.getLogger(__name__)


class Runtimes:
    """One client per runtime; used on the I/O loop only.

    Args:
        settings: reads the settings in force now.
    """

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._clients: dict[RuntimeAddress, RuntimeClient] = {}
        self._started: dict[str, LocalRuntime] = {}
        self._starting = asyncio.Lock()

    def client(self, address: str = "") -> RuntimeClient:
        """The client for an address; empty: the configured one. Nothing is connected yet.

        Raises:
            InvalidRequest: the address is not one.
        """
        target = self._settings().runtime(address)
        if target not in self._clients:
            self._clients[target] = RuntimeClient(target.url, target.token)
        return self._clients[target]

    def starts(self, address: str = "") -> bool:
        """Whether a runtime at this address is started by this side when it is down."""
        settings = self._settings()
        return bool(settings.python) and settings.runtime(address).is_local

    async def ready(self, address: str = "") -> RuntimeClient:
        """The client for an address, after its runtime was started if that is wanted.

        Raises:
            RuntimeUnavailable: it was to be started and did not come up.
        """
        if self.starts(address):
            settings = self._settings()
            target = settings.runtime(address)
            async with self._starting:
                local = await start_local(target, python=settings.python)
            if local.process is not None:
                log.info("OmniStage: started a runtime at %s, log %s", target.url, local.log)
                self._started[target.url] = local
        return self.client(address)
