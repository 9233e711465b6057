"""The entry point that builds the diffusion core, in whichever process it is to live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ..engine.core import EngineCore
from ..engine.diffusion.settings import EngineSettings
from ..models.catalogue import ModelEntry
from .core_spec import CoreSpec


def core_spec(settings: EngineSettings, models: Iterable[ModelEntry]) -> CoreSpec:
    """How to build the diffusion core for the configured models."""
    config = {
        "settings": settings.model_dump(mode="json"),
        "models": [asdict(entry) for entry in models],
    }
    return CoreSpec(f"{__name__}:build", config, "diffusion")


def build(config: Mapping[str, Any]) -> EngineCore:
    """Build the core from `core_spec`'s JSON."""
    from ..engine.diffusion.build import build_core

    models = [ModelEntry(**entry) for entry in config["models"]]
    return build_core(EngineSettings.model_validate(config["settings"]), models)
