"""The models of each runtime, as last seen; what lists in nodes are filled from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..runtime.protocol.errors import OmniStageError
from ..runtime.protocol.messages import ModelInfo
from .plans import DEFAULT
from .runtimes import Runtimes
from .schemas import choices_in

_FRESH_S = 2.0
"""How long an answer is good for without asking again: one burst of prompts."""
_PATIENCE_S = 2.0
"""How long a page may wait for its lists."""


class Catalogue:
    """Snapshots by address; asked on the I/O loop, read anywhere."""

    def __init__(self, runtimes: Runtimes, clock: Callable[[], float] = time.monotonic) -> None:
        self._runtimes = runtimes
        self._clock = clock
        self._seen: dict[str, Mapping[str, ModelInfo]] = {}
        self._seen_at_s: dict[str, float] = {}

    def last(self, address: str = "") -> Mapping[str, ModelInfo]:
        """The models by id as last seen, without asking; empty if never seen."""
        return self._seen.get(address, {})

    def choices(self, stage: str, parameter: str) -> list[str]:
        """`default`, then every choice of some model at the configured address, as last seen."""
        return list(dict.fromkeys([DEFAULT, *self.names(stage, parameter)]))

    def names(self, stage: str, *path: str) -> list[str]:
        """Every choice of some model at a place inside a stage's parameters, as last seen."""
        stages = [model.stages[stage] for model in self.last().values() if stage in model.stages]
        return list(dict.fromkeys(name for s in stages for name in choices_in(s.params, *path)))

    def loras(self) -> list[str]:
        """Every adapter of some model at the configured address, as last seen."""
        return list(dict.fromkeys(name for model in self.last().values() for name in model.loras))

    def controlnets(self) -> list[str]:
        """Every ControlNet of some model at the configured address, as last seen."""
        models = self.last().values()
        return list(dict.fromkeys(name for model in models for name in model.controlnets))

    async def models(self, address: str = "") -> Mapping[str, ModelInfo]:
        """The models by id, asked for unless just seen.

        Raises:
            RuntimeUnavailable: nothing answers; says where it was looked for.
        """
        now_s = self._clock()
        if now_s - self._seen_at_s.get(address, float("-inf")) >= _FRESH_S:
            infos = await self._runtimes.client(address).models()
            self._seen[address] = {info.id: info for info in infos}
            self._seen_at_s[address] = now_s
        return self._seen[address]

    async def refresh(self, address: str = "") -> None:
        """Ask again now; what was last seen stays if nothing answers."""
        self._seen_at_s.pop(address, None)
        with suppress(OmniStageError, asyncio.TimeoutError):
            await asyncio.wait_for(self.models(address), _PATIENCE_S)
