"""Language models that denoise their answer, block by block, instead of writing word by word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ...protocol.errors import ModelLoadFailed
from ..call_spec import CallSpec, SpecTable
from ..chat import ThinkerParams, media_inputs
from ..family import Family
from ..modular.params import steps, with_overrides
from ..remote_code import brings_code, model_class
from ..stage import Kind, Stage, StageGraph, with_defaults

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint
    from ..program import LoadedModel


def _tokens(default: int) -> Any:
    return Field(default, ge=1, le=1_000_000, description="Tokens to write at most.")


def _only(value: float) -> Any:
    return Field(value, ge=value, le=value, description="This model has no other.")


def _none(empty: Any) -> Any:
    return Field(default_factory=empty, max_length=0, description="This model takes none.")


class DenoisedTextParams(ThinkerParams):
    """What a Thinker takes; what these models cannot do may only be as if it were not there."""

    temperature: float = Field(
        0.0, ge=0, le=2, description="0: always the likeliest token; higher: more varied."
    )
    steps: int = steps(32)
    top_p: float = _only(1.0)
    top_k: int = _only(0)
    min_p: float = _only(0.0)
    repetition_penalty: float = _only(1.0)
    stop: list[str] = _none(list)
    json_schema: str = _none(str)
    hidden_layers: list[int] = _none(list)
    answer: str = _none(str)
    strict: bool = Field(
        False, description="Never share a forward pass: bit-identical to diffusers, slower."
    )


class LLaDA2Params(DenoisedTextParams):
    """Defaults of `LLaDA2Pipeline`; steps are those of each block."""

    max_tokens: int = _tokens(2048)
    top_p: float = Field(1.0, gt=0, le=1, description="Choose among tokens of this total share.")
    top_k: int = Field(0, ge=0, le=1_000_000, description="Choose among so many tokens; 0: all.")
    block_length: int = Field(32, ge=1, le=4096, description="Tokens that are denoised together.")
    threshold: float = Field(
        0.7, ge=0, le=2, description="How sure to be of a token to keep it early; above 1: never."
    )
    editing_threshold: float = Field(
        0.5, ge=0, le=1, description="How sure to be of another token to replace one; 0: never."
    )


class DiffusionGemmaParams(DenoisedTextParams):
    """Defaults of `DiffusionGemmaPipeline`; steps are those of each canvas."""

    max_tokens: int = _tokens(256)
    steps: int = steps(48)
    confidence_threshold: float = Field(
        0.005,
        ge=0,
        le=20,
        description="Leave a canvas when it is stable and its mean entropy is below; 0: never.",
    )


class TextDiffusion(Family):
    """A pipeline of diffusers that answers a conversation.

    Attributes:
        pipeline: its class, as `model_index.json` names it.
        architectures: the model's classes, as `config.json` names them, in transformers' layout.
        texts: the component that knows the chat template.
        params: of the stage.
        schedulers: classes that the pipeline takes; the first where a checkpoint names none.
        encodes: whether the pipeline calls the model's encoder by itself.
        masks: whether what is to be written is masked at first.
    """

    pipeline: ClassVar[str]
    architectures: ClassVar[tuple[str, ...]]
    texts: ClassVar[str] = "tokenizer"
    params: ClassVar[type[DenoisedTextParams]]
    schedulers: ClassVar[tuple[str, ...]] = ("BlockRefinementScheduler",)
    encodes: ClassVar[bool] = False
    masks: ClassVar[bool] = False

    def owns(self, index: Mapping[str, Any]) -> bool:
        """See `Family.owns`."""
        named = index.get("architectures") or []
        own = any(name in self.architectures for name in named)
        return own or index.get("_class_name") == self.pipeline

    def stages(self, checkpoint: Checkpoint) -> StageGraph:
        """See `Family.stages`.

        Raises:
            ModelLoadFailed: it is loaded by code of its own, which nobody has allowed to run.
        """
        config = self.config(checkpoint)
        if brings_code(config) and not checkpoint.trust_remote_code:
            model_class(checkpoint, config)
        media = self.media(config)
        params = with_defaults(self.params, self.defaults(checkpoint, config))
        return StageGraph.of(
            Stage(
                "thinker",
                with_overrides(params, checkpoint.overrides.get("thinker", {})),
                inputs={"prompt": "text", "history": "chat", **media},
                outputs={"text": "text", "history": "chat"},
                optional=frozenset({"prompt", "history", *media}),
            )
        )

    def config(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """The model's `config.json`, whichever layout the folder has.

        Raises:
            ModelLoadFailed: there is none.
        """
        if "_class_name" not in checkpoint.index:
            return checkpoint.index
        config = checkpoint.read_json("model/config.json")
        if not config:
            raise ModelLoadFailed(
                f"The model folder {checkpoint.folder} has no model/config.json.", field="model"
            )
        return config

    def media(self, config: Mapping[str, Any]) -> dict[str, Kind]:
        """Inputs besides text."""
        return {}

    def longest(self, config: Mapping[str, Any]) -> int | None:
        """Tokens that a model reads and writes together, at most; None: its config has no limit."""
        inner = config.get("text_config", config)
        return inner.get("max_position_embeddings")

    def defaults(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults of the stage that follow from a checkpoint; the prompt, too, needs room."""
        usual = self.params.model_fields["max_tokens"].default
        longest = self.longest(config)
        return {} if longest is None else {"max_tokens": min(usual, longest // 2)}

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What the pipeline is called with beyond what all of them take."""
        return {}

    def whole_blocks(self, tokens: int, config: Mapping[str, Any]) -> int:
        """How many tokens the pipeline writes if it is asked for so many."""
        return tokens

    def specs(self) -> SpecTable:
        """How calls of its modules merge."""
        return {}

    def load(self, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
        """See `Family.load`."""
        from ..text_pipeline import load

        return load(self, checkpoint, dtype=dtype, device=device)


class LLaDA2(TextDiffusion):
    """Masked tokens, filled in where the model is sure."""

    name: ClassVar[str] = "llada2"
    pipeline: ClassVar[str] = "LLaDA2Pipeline"
    architectures: ClassVar = ("LLaDA2MoeModelLM",)
    params: ClassVar = LLaDA2Params
    masks: ClassVar[bool] = True

    def defaults(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> dict[str, Any]:
        """See `TextDiffusion.defaults`."""
        own = checkpoint.read_json("scheduler/scheduler_config.json")
        block = {"block_length": own["block_length"]} if "block_length" in own else {}
        return {**super().defaults(checkpoint, config), **block}

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """See `TextDiffusion.arguments`."""
        names = ("top_p", "top_k", "block_length", "threshold", "editing_threshold")
        return {name: params[name] for name in names}

    def specs(self) -> SpecTable:
        """See `TextDiffusion.specs`; the pipeline itself hides a tail by the mask."""
        spec = CallSpec(
            primary="input_ids",
            pad={"input_ids": "attention_mask", "position_ids": None},
            fixed={"use_cache": False},
            trim="input_ids",
        )
        return {("model", "__call__"): spec}


class DiffusionGemma(TextDiffusion):
    """Random tokens on a canvas, exchanged until they are stable; what was before is encoded."""

    name: ClassVar[str] = "diffusion-gemma"
    pipeline: ClassVar[str] = "DiffusionGemmaPipeline"
    architectures: ClassVar = ("DiffusionGemmaForBlockDiffusion",)
    texts: ClassVar[str] = "processor"
    params: ClassVar = DiffusionGemmaParams
    schedulers: ClassVar = (
        "BlockRefinementScheduler",
        "DiscreteDDIMScheduler",
        "EntropyBoundScheduler",
    )
    encodes: ClassVar[bool] = True

    def media(self, config: Mapping[str, Any]) -> dict[str, Kind]:
        """See `TextDiffusion.media`; the pipeline takes pictures only."""
        return {name: kind for name, kind in media_inputs(config).items() if name == "images"}

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """See `TextDiffusion.arguments`."""
        return {"confidence_threshold": params["confidence_threshold"] or None}

    def whole_blocks(self, tokens: int, config: Mapping[str, Any]) -> int:
        """See `TextDiffusion.whole_blocks`."""
        canvas = int(config.get("canvas_length", 256))
        return -(-tokens // canvas) * canvas
