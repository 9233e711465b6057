"""Language models that chat: text, and what else the checkpoint can take, in; text out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jsonschema import Draft202012Validator, SchemaError
from pydantic import Field, field_validator

from .family import Family
from .stage import Kind, Params, Stage, StageGraph, with_defaults

if TYPE_CHECKING:
    from .ar_stage import ARStage
    from .checkpoint import Checkpoint

MAX_TEXT = 1_000_000
_ARCHITECTURES = ("ForCausalLM", "ForConditionalGeneration", "Qwen2_5OmniModel")
_GENERATION = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class ThinkerParams(Params):
    """What to say to the model, and how it is to choose its words."""

    prompt: str = Field(
        "",
        max_length=MAX_TEXT,
        description="What to say. May be empty where the history ends with the user.",
    )
    system: str = Field("", max_length=MAX_TEXT, description="How the model is to behave.")
    max_tokens: int = Field(512, ge=1, le=1_000_000, description="Tokens to write at most.")
    temperature: float = Field(
        0.7, ge=0, le=2, description="0: always the likeliest token; higher: more varied."
    )
    top_p: float = Field(1.0, gt=0, le=1, description="Choose among tokens of this total share.")
    top_k: int = Field(0, ge=0, le=1_000_000, description="Choose among so many tokens; 0: all.")
    min_p: float = Field(
        0.0, ge=0, le=1, description="Drop tokens less likely than this share of the likeliest."
    )
    repetition_penalty: float = Field(
        1.0, gt=0, le=2, description="Above 1: avoid tokens that have occurred."
    )
    stop: list[str] = Field(
        default_factory=list, max_length=16, description="Texts that end the answer."
    )
    json_schema: str = Field(
        "",
        max_length=100_000,
        description="JSON schema that the answer must follow; empty: free text.",
    )
    hidden_layers: list[int] = Field(
        default_factory=list,
        max_length=64,
        description="Layers whose hidden states are kept; 0: embeddings, -1: the last.",
    )
    answer: str = Field(
        "",
        max_length=MAX_TEXT,
        description="The answer, if there is one already: it is read instead of written.",
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Seed of the choices.")

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, stop: list[str]) -> list[str]:
        if any(not text or len(text) > 1000 for text in stop):
            raise ValueError("each stop text must have 1 to 1000 characters")
        return stop

    @field_validator("json_schema")
    @classmethod
    def _is_schema(cls, text: str) -> str:
        if text:
            _check_schema(text)
        return text


class Chat(Family):
    """Any chat or omni model that vLLM runs, in transformers layout."""

    name: ClassVar[str] = "chat"

    def owns(self, index: Mapping[str, Any]) -> bool:
        """See `Family.owns`."""
        names = index.get("architectures") or []
        return any(str(name).endswith(_ARCHITECTURES) for name in names)

    def stages(self, checkpoint: Checkpoint) -> StageGraph:
        """See `Family.stages`."""
        media = media_inputs(checkpoint.index)
        return StageGraph.of(
            Stage(
                "thinker",
                _with_defaults(checkpoint),
                inputs={"prompt": "text", "history": "chat", **media},
                outputs={"text": "text", "hidden": "hidden", "history": "chat"},
                optional=frozenset({"prompt", "history", *media}),
                engines=("ar",),
            )
        )

    def ar_stage(self, checkpoint: Checkpoint, stage: str) -> ARStage:
        """See `Family.ar_stage`."""
        from .thinker import Thinker

        return Thinker(checkpoint)


def media_inputs(config: Mapping[str, Any]) -> dict[str, Kind]:
    """The inputs for media that a model of this `config.json` takes, by name."""
    inner = config.get("thinker_config", config)
    kinds: dict[str, Kind] = {}
    if "vision_config" in inner:
        kinds["images"] = "images"
    if "audio_config" in inner:
        kinds["audio"] = "audio"
    if "vision_config" in inner and ("video_token_id" in inner or "video_token_index" in inner):
        kinds["video"] = "video"
    return kinds


def _with_defaults(checkpoint: Checkpoint) -> type[Params]:
    """The parameters with the defaults of the checkpoint's `generation_config.json`."""
    own = checkpoint.read_json("generation_config.json")
    told = {name: own[name] for name in _GENERATION if own.get(name) is not None}
    numbers = {name: int(n) if name == "top_k" else float(n) for name, n in told.items()}
    return with_defaults(ThinkerParams, numbers)


def _check_schema(text: str) -> None:
    """Raise ValueError, in words, if a text is no JSON schema."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(schema, dict):
        raise ValueError("it must be a JSON object")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"it is no JSON schema: {error.message}") from None
