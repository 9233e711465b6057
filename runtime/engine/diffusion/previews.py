"""Who is shown a preview when, and the colours of each model's latents."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from ...models.program import LatentToRGB
from ..core import EngineEvent
from .call import ModuleCall
from .preview import preview_jpeg
from .request import Request
from .residency import Key, Residency
from .settings import EngineSettings

log = logging.getLogger(__name__)


class Previews:
    """Previews of the requests that want them, no more than one in an interval each.

    Args:
        settings: their interval and size.
        residency: holds the modules that colours are fitted with.
    """

    def __init__(self, settings: EngineSettings, residency: Residency) -> None:
        self._settings = settings
        self._residency = residency
        self._colours: dict[str, torch.Tensor | None] = {}
        self._wanted: dict[str, LatentToRGB] = {}

    def fit_next(self, needed: Callable[[], set[Key]]) -> bool:
        """Fit the colours of a model that somebody wants to see; whether there was one.

        Args:
            needed: the modules that calls wait for.
        """
        if not self._wanted:
            return False
        name, colours = self._wanted.popitem()
        self._colours[name] = None
        try:
            self._residency.build(name, colours.module, needed())
            self._residency.load(name, colours.module, needed())
            module = self._residency.module(name, colours.module)
            assert module is not None
            self._colours[name] = colours.fit(module)
        except Exception:  # a preview is no reason to fail anything
            log.warning("there will be no previews of model %s", name, exc_info=True)
        return True

    def of(self, request: Request, call: ModuleCall, now_s: float) -> EngineEvent | None:
        """The preview after a request's call, if one is due and its colours are there."""
        model, name = request.model, request.task.model
        wanted = request.task.previews and call.method == model.denoiser and call.error is None
        if not wanted or model.preview is None or model.latent_to_rgb is None:
            return None
        if now_s < request.preview_due_s:
            return None
        colours = self._colours.get(name)
        if colours is None:
            if name not in self._colours:
                self._wanted[name] = model.latent_to_rgb
            return None
        request.preview_due_s = now_s + self._settings.preview_interval_ms / 1000
        latents = model.preview(call.arguments, call.result)
        return EngineEvent(
            request.task.id,
            "preview",
            step=request.step,
            total=request.total,
            batch=request.batch,
            image=preview_jpeg(latents, colours, self._settings.preview_px),
        )
