"""The models this runtime was configured with: described, checked, never loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from ..protocol.errors import ModelLoadFailed, UnknownModel
from ..protocol.messages import ModelInfo
from .checkpoint import Checkpoint
from .location import model_folder
from .stage import EngineKind, Stage, StageGraph


@dataclass(frozen=True)
class ModelEntry:
    """One configured model.

    Attributes:
        source: `demo`, a folder in diffusers layout, or a hub id such as `Qwen/Qwen-Image`.
        dtype: `float32`, `bfloat16` or `float16`.
        device: a torch device such as `cpu` or `cuda:0`.
        engine: which engine runs a stage that both can: `ar`, `diffusion`, or `auto`.
        vllm: options of vLLM's engine, passed through untouched.
    """

    id: str
    source: str
    dtype: str = "float32"
    device: str = "cpu"
    engine: str = "auto"
    vllm: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, opened on first use; a failure is not remembered.

        Raises:
            ModelLoadFailed: see `Checkpoint.open` and `model_folder`.
        """
        return Checkpoint.open(model_folder(self.source))

    @cached_property
    def graph(self) -> StageGraph:
        """The model's stages."""
        return self.checkpoint.family.stages(self.checkpoint)

    @cached_property
    def revision(self) -> str:
        """What a result depends on besides its request: checkpoint content and dtype."""
        return f"{self.checkpoint.revision}-{self.dtype}"

    def engine_kind(self, stage: Stage, params: Mapping[str, Any]) -> EngineKind:
        """Which kind of engine core runs a stage.

        Where both can, strict work runs on modules, which equal diffusers' bit by bit.
        """
        if len(stage.engines) == 1:
            return stage.engines[0]
        if params.get("strict"):
            return "diffusion"
        if self.engine == "auto":
            return "diffusion" if self.device == "cpu" else "ar"
        return cast(EngineKind, self.engine)

    def engine_name(self, stage: Stage, params: Mapping[str, Any]) -> str:
        """The engine that runs a stage: one for all diffusion, one for each AR stage."""
        kind = self.engine_kind(stage, params)
        return kind if kind == "diffusion" else f"{kind}/{self.id}/{stage.name}"

    def info(self) -> ModelInfo:
        """The model as clients see it."""
        stages = {name: stage.info() for name, stage in self.graph.stages.items()}
        return ModelInfo(self.id, self.checkpoint.family.name, self.revision, stages)


class Catalogue:
    """All configured models by id."""

    def __init__(self, entries: Mapping[str, ModelEntry]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, model: str) -> ModelEntry:
        """The entry of that id.

        Raises:
            UnknownModel: names the models there are.
        """
        try:
            return self._entries[model]
        except KeyError:
            have = ", ".join(self._entries) or "none"
            raise UnknownModel(
                f"Model {model!r} is not on this runtime; it has {have}.",
                field="model",
                value=model,
                allowed=have,
            ) from None

    def entries(self) -> list[ModelEntry]:
        """All entries, in the order of the configuration."""
        return list(self._entries.values())

    def infos(self) -> list[ModelInfo]:
        """Descriptions of the models whose folders are whole."""
        broken = self.problems()
        return [entry.info() for entry in self._entries.values() if entry.id not in broken]

    def problems(self) -> dict[str, ModelLoadFailed]:
        """What is wrong with the others, by model id."""
        found = {}
        for entry in self._entries.values():
            try:
                entry.info()
            except ModelLoadFailed as error:
                found[entry.id] = error
        return found
