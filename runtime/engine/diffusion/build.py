"""A diffusion core for the configured models."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from ...models.catalogue import ModelEntry
from ...models.lora_shelf import adapter_shelf
from ...models.program import LoadedModel
from .engine import DiffusionEngine
from .residency import HOST, Residency
from .settings import EngineSettings

log = logging.getLogger(__name__)

_CARD: Final = 0.9
_MEMORY: Final = 0.7
_HOST_COPIES: Final = 0.5
"""Shares of a GPU's memory and of the machine's that weights may take, unless it is set."""


def build_core(settings: EngineSettings, models: Sequence[ModelEntry]) -> DiffusionEngine:
    """Make the core; each model is opened when the first task needs it."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    devices = {_device(entry.device) for entry in models}
    if len(devices) > 1:
        raise ValueError(f"one diffusion core serves one device, not {sorted(map(str, devices))}")
    device = next(iter(devices), HOST)
    return DiffusionEngine(
        {entry.id: _loader(entry) for entry in models},
        settings,
        device=device,
        residency=Residency(device, *budgets(settings, device)),
        offload=[entry.id for entry in models if entry.offload == "group"],
    )


def _device(name: str) -> torch.device:
    """The device; there is only one CPU, however it is numbered."""
    device = torch.device(name)
    return HOST if device.type == HOST.type else device


def budgets(settings: EngineSettings, device: torch.device) -> tuple[int | None, int | None]:
    """Bytes of weights on the device, and of copies on the host; None: no limit."""
    on_device = _bytes(settings.memory_mb, lambda: _default_bytes(device))
    on_host = _bytes(settings.host_memory_mb, lambda: int(_HOST_COPIES * _memory_bytes()))
    return on_device, on_host


def _bytes(megabytes: int | str, default: Callable[[], int]) -> int | None:
    if isinstance(megabytes, str):
        return default()
    return megabytes << 20 or None


def _default_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(_CARD * torch.cuda.mem_get_info(device)[1])
    return int(_MEMORY * _memory_bytes())


def _memory_bytes() -> int:
    """Memory of this machine, or of the container that this is in."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.strip().isdecimal() else memory


def _loader(entry: ModelEntry) -> Callable[[], LoadedModel]:
    def load() -> LoadedModel:
        checkpoint = entry.checkpoint
        checkpoint.check_files()
        log.info("opening model %s from %s", entry.id, checkpoint.folder)
        with torch.inference_mode(False):
            model = checkpoint.family.load(checkpoint, dtype=entry.dtype, device=entry.device)
        return replace(model, loras=adapter_shelf(entry, model.modules))

    return load
