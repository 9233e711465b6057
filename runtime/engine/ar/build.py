"""vLLM's engine for one stage of a model."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...models.ar_stage import ARStage, SubConfig
from ...models.catalogue import ModelEntry
from ...models.torchvision_ops import make_torchvision_importable
from .settings import ARSettings

if TYPE_CHECKING:
    from .engine import AREngine

log = logging.getLogger(__name__)

_ENVIRONMENT = {
    # One process is one stage, so that ending the process unloads it.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Our seams are in the V1 runner, which runs on CPUs and GPUs alike.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}

_SHARE = "gpu_memory_utilization"
_LITTLE = 0.01
"""vLLM only starts where so large a part of a GPU is free, even if it is told how much to take."""


def preload() -> None:
    """Import all that an AR engine needs, so that processes forked from this one have it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    make_torchvision_importable()
    from . import engine  # noqa: F401


def build_core(settings: ARSettings, entry: ModelEntry, stage: str) -> AREngine:
    """Load a model into vLLM and make the core around it.

    Raises:
        ModelLoadFailed: the checkpoint is not whole, or this vLLM lacks a hook of ours.
    """
    preload()
    checkpoint = entry.checkpoint
    checkpoint.check_files()
    log.info("loading stage %s of model %s from %s", stage, entry.id, checkpoint.folder)
    return core_of(settings, entry, checkpoint.family.ar_stage(checkpoint, stage), stage)


def core_of(settings: ARSettings, entry: ModelEntry, program: ARStage, stage: str) -> AREngine:
    """Make the core of one stage's program.

    Raises:
        ModelLoadFailed: this vLLM lacks a hook of ours.
    """
    preload()
    from vllm import EngineArgs
    from vllm.config import PoolerConfig
    from vllm.v1.engine.llm_engine import LLMEngine

    from .engine import AREngine
    from .out_of_tree import register_models
    from .seams import check_seams

    check_seams()
    options = engine_options(settings, entry, program.engine_args())
    if "pooler_config" in options:
        options["pooler_config"] = PoolerConfig(**options["pooler_config"])
    register_models(architectures_of(options))
    return AREngine(LLMEngine.from_engine_args(EngineArgs(**options)), program, stage=stage)


def architectures_of(options: Mapping[str, Any]) -> list[str]:
    """The architectures in a model folder's `config.json`, or those that override them."""
    overrides = options.get("hf_overrides") or {}
    if isinstance(overrides, SubConfig):
        return [overrides.architecture]
    own = json.loads((Path(options["model"]) / "config.json").read_text("utf-8"))
    return list(overrides.get("architectures") or own.get("architectures") or [])


def engine_options(
    settings: ARSettings, entry: ModelEntry, stage: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of vLLM's `EngineArgs`: ours, the stage's, the settings', the model's own.

    Each wins over those before it.
    """
    package = __package__
    options: dict[str, Any] = {
        "model": str(entry.checkpoint.folder),
        "dtype": entry.dtype,
        "worker_cls": f"{package}.worker.RowWorker",
        "scheduler_cls": f"{package}.scheduler.GatedScheduler",
        "scheduling_policy": "priority",
        "max_num_seqs": 64,
        "max_model_len": -1,  # as long as the KV cache allows
        "disable_log_stats": True,
        "async_scheduling": False,
    }
    given = {**settings.vllm, **entry.vllm}
    if entry.device == "cpu":
        options["enforce_eager"] = True
    if _SHARE not in given:
        # Stages share a device: each takes what it was given, not most of what is there.
        options["kv_cache_memory_bytes"] = settings.kv_cache_bytes(entry.device)
        if entry.device != "cpu":
            options[_SHARE] = _LITTLE
    return {**options, **stage, **given}
