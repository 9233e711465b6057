"""The entry point that builds the AR core of one stage, in whichever process it is to live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..engine.ar.settings import ARSettings
from ..engine.core import EngineCore
from ..models.catalogue import ModelEntry
from .core_spec import CoreSpec

PRELOAD = f"{__name__}:preload"
"""What a `ForkServer` for AR engines is to call."""


def core_spec(engine: str, settings: ARSettings, model: ModelEntry, stage: str) -> CoreSpec:
    """How to build the AR core of one stage of a model."""
    config = {
        "settings": settings.model_dump(mode="json"),
        "model": asdict(model),
        "stage": stage,
    }
    return CoreSpec(f"{__name__}:build", config, engine)


def build(config: Mapping[str, Any]) -> EngineCore:
    """Build the core from `core_spec`'s JSON."""
    from ..engine.ar.build import build_core

    settings = ARSettings.model_validate(config["settings"])
    return build_core(settings, ModelEntry(**config["model"]), config["stage"])


def preload() -> None:
    """Make the imports of `build` beforehand: vLLM's take far longer than all else it does."""
    from ..engine.ar.build import preload as prepare

    prepare()
    from ..engine.ar import scheduler, worker  # noqa: F401
