"""A diffusion core for the configured models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from ...models.catalogue import ModelEntry
from ...models.program import LoadedModel
from .engine import DiffusionEngine
from .settings import EngineSettings

log = logging.getLogger(__name__)


def build_core(settings: EngineSettings, models: Sequence[ModelEntry]) -> DiffusionEngine:
    """Make the core; each model is loaded when the first task needs it."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    devices = {torch.device(entry.device) for entry in models}
    if len(devices) > 1:
        raise ValueError(f"one diffusion core serves one device, not {sorted(map(str, devices))}")
    loaders = {entry.id: _loader(entry) for entry in models}
    return DiffusionEngine(loaders, settings, device=next(iter(devices), None))


def _loader(entry: ModelEntry) -> Callable[[], LoadedModel]:
    def load() -> LoadedModel:
        checkpoint = entry.checkpoint
        checkpoint.check_files()
        log.info("loading model %s from %s", entry.id, checkpoint.folder)
        with torch.inference_mode(False):
            return checkpoint.family.load(checkpoint, dtype=entry.dtype, device=entry.device)

    return load
