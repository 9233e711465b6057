"""Opening models off the event loop: their files are checked and hashed, or even downloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from ..models.catalogue import Catalogue
from ..models.stage import Stage


class ModelShelf:
    """The catalogue, for code that must not wait."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._open: set[str] = set()

    async def open(self, models: Iterable[str]) -> None:
        """Make sure that asking the catalogue about these models takes no time.

        Raises:
            UnknownModel: one is not configured.
            ModelLoadFailed: one's folder is not whole.
        """
        for model in set(models) - self._open:
            await asyncio.to_thread(self._catalogue[model].info)
            self._open.add(model)

    async def stages(self, model: str) -> Mapping[str, Stage]:
        """A model's stages by name.

        Raises:
            UnknownModel: it is not configured.
            ModelLoadFailed: its folder is not whole.
        """
        await self.open([model])
        return self._catalogue[model].graph.stages

    async def describe(self) -> dict[str, Any]:
        """All models: descriptions of the whole ones, and what is wrong with the others."""
        return await asyncio.to_thread(self._describe)

    def _describe(self) -> dict[str, Any]:
        problems = self._catalogue.problems()
        return {
            "models": [model.to_json() for model in self._catalogue.infos()],
            "problems": {name: error.to_json() for name, error in problems.items()},
        }
