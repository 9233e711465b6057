"""The models this runtime was configured with: described, checked, never loaded here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from ..protocol.errors import InvalidRequest, ModelLoadFailed, UnknownModel
from ..protocol.messages import ModelInfo
from .checkpoint import Checkpoint, has_component
from .control_params import Control
from .controlnet import open_controlnets, with_revision
from .lora import LORA_FOLDER, LoRAFolders
from .lora_params import LOW_NOISE, LoRA
from .model_files import open_model
from .model_folders import ModelFolders
from .stage import EngineKind, Stage, StageGraph, with_names


@dataclass(frozen=True)
class ModelEntry:
    """One configured model.

    Attributes:
        source: `demo`, `voice`, a folder, a hub id such as `Qwen/Qwen-Image`, or a file of
            weights; see `open_model` for it, `files` and `base`.
        dtype: `float32`, `bfloat16` or `float16`.
        device: a torch device such as `cpu` or `cuda:0`.
        engine: which engine runs a stage that both can: `ar`, `diffusion`, or `auto`.
        offload: `group` keeps a component's weights on the host and brings them to the device
            layer by layer, for one that is larger than the device; or `none`.
        vllm: options of vLLM's engine, passed through untouched.
        model_folders, comfyui: where files are looked for.
        lora_folders: folders with adapters, besides the model's own `loras`.
        lora_mb: what all adapters in memory may take; None: 2048 on a GPU, 512 on a CPU.
        controlnets: a folder, a hub id or a file of each, by the name that requests use; files
            in ComfyUI's folders have their own.
        trust_remote_code: whether Python code that comes with the model may be run.
    """

    id: str
    source: str | None
    dtype: str = "float32"
    device: str = "cpu"
    engine: str = "auto"
    offload: str = "none"
    vllm: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    base: str | None = None
    model_folders: Sequence[str] = ()
    comfyui: str | None = None
    lora_folders: Sequence[str] = ()
    lora_mb: int | None = None
    controlnets: Mapping[str, str] = field(default_factory=dict)
    trust_remote_code: bool = False

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, opened on first use; a failure is not remembered.

        Raises:
            ModelLoadFailed: see `open_model` and `open_controlnets`.
        """
        folders = ModelFolders.of(self.model_folders, self.comfyui)
        found = open_model(self.source, folders, files=self.files, base=self.base)
        return replace(
            found,
            controlnets=open_controlnets(self.controlnets, found, folders),
            trust_remote_code=self.trust_remote_code,
        )

    @cached_property
    def graph(self) -> StageGraph:
        """The model's stages."""
        return self.checkpoint.family.stages(self.checkpoint)

    @cached_property
    def revision(self) -> str:
        """What a result depends on besides its request: checkpoint content and dtype."""
        return f"{self.checkpoint.revision}-{self.dtype}"

    @property
    def loras(self) -> LoRAFolders:
        """The adapters that requests may name."""
        folders = [Path(folder).expanduser() for folder in self.lora_folders]
        return LoRAFolders([self.checkpoint.folder / LORA_FOLDER, *folders])

    @property
    def lora_bytes(self) -> int:
        """What all adapters in memory may take."""
        default = 512 if self.device == "cpu" else 2048
        return (default if self.lora_mb is None else self.lora_mb) << 20

    def pinned(self, stage: Stage, params: Mapping[str, Any]) -> dict[str, Any]:
        """A stage's parameters with adapters and ControlNet pinned to the files there are now.

        A stage that AR engines can run has none: no loader brings adapters to its module, so that
        its result is that of requests without them.

        Raises:
            InvalidRequest: there is no such adapter or ControlNet; says which there are. Or an
                adapter is for a transformer that the model does not have.
        """
        self._check_noise(params.get("loras") or [])
        pinned = with_revision(self.loras.with_revisions(params), self.checkpoint.controlnets)
        return {**pinned, "loras": []} if "ar" in stage.engines and "loras" in pinned else pinned

    def _check_noise(self, loras: Sequence[Mapping[str, Any]]) -> None:
        some = next((lora for lora in loras if lora.get("noise", "all") != "all"), None)
        if some is not None and not has_component(self.checkpoint.index, LOW_NOISE):
            raise InvalidRequest(
                f"LoRA {some['name']!r} is for {some['noise']} noise only, but model {self.id!r} "
                "has one transformer for all noise.",
                field="loras",
                value=some["noise"],
                allowed="all",
            )

    def engine_kind(self, stage: Stage, params: Mapping[str, Any]) -> EngineKind:
        """Which kind of engine core runs a stage.

        Where both can, strict work runs on modules, which equal diffusers' bit by bit.
        """
        if len(stage.engines) == 1:
            return stage.engines[0]
        if params.get("strict") or self.checkpoint.source("text_encoder").file is not None:
            return "diffusion"  # vLLM wants a folder
        if self.engine == "auto":
            return "diffusion" if self.device == "cpu" else "ar"
        return cast(EngineKind, self.engine)

    def engine_name(self, stage: Stage, params: Mapping[str, Any]) -> str:
        """The engine that runs a stage: one for all diffusion, one for each AR stage."""
        kind = self.engine_kind(stage, params)
        return kind if kind == "diffusion" else f"{kind}/{self.id}/{stage.name}"

    def info(self) -> ModelInfo:
        """The model as clients see it."""
        loras = tuple(self.loras.files())
        controlnets = tuple(self.checkpoint.controlnets)
        stages = {}
        for name, stage in self.graph.stages.items():
            info = stage.info()
            params = with_names(with_names(info.params, LoRA, loras), Control, controlnets)
            stages[name] = replace(info, params=params)
        family = self.checkpoint.family.name
        return ModelInfo(self.id, family, self.revision, stages, loras, controlnets)


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
