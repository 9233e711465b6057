"""Qwen2.5-Omni and Qwen3-Omni: Thinker, Talker and codec, in transformers layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, create_model, field_validator

from .chat import Chat
from .stage import Params, Stage, StageGraph, with_defaults
from .voices import voices_of

if TYPE_CHECKING:
    from .ar_stage import ARStage
    from .checkpoint import Checkpoint
    from .program import LoadedModel

MAX_SEED = 2**63 - 1
RATE_HZ = 24000
"""Of the sound that these models make."""
_QWEN25 = ("Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration")
_QWEN3 = ("Qwen3OmniMoeForConditionalGeneration",)


class TalkerParams(Params):
    """Whose voice says the answer, and how freely. `voice` is added with the model's voices."""

    max_seconds: float = Field(
        30.0, gt=0, le=600, description="Seconds of speech at most; longer speech is cut there."
    )
    temperature: float = Field(0.9, ge=0, le=2, description="0: always the likeliest sound.")
    top_p: float = Field(0.8, gt=0, le=1, description="Choose among sounds of this total share.")
    top_k: int = Field(40, ge=0, le=1_000_000, description="Choose among so many sounds; 0: all.")
    repetition_penalty: float = Field(
        1.05, gt=0, le=2, description="Above 1: avoid sounds that have occurred."
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of the choices.")

    @field_validator("voice", mode="before", check_fields=False)
    @classmethod
    def _any_case(cls, voice: object) -> object:
        return voice.lower() if isinstance(voice, str) else voice


class CodecParams(Params):
    """How codes become sound, and in which pieces it is made."""

    first_chunk: int = Field(4, ge=1, le=1000, description="Codes that the first sound waits for.")
    chunk: int = Field(25, ge=1, le=1000, description="Codes that further sound waits for.")
    left_context: int = Field(25, ge=0, le=1000, description="Earlier codes that a chunk sees.")
    whole: bool = Field(
        False, description="Make it in one piece, as transformers does; nothing is streamed."
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of the noise it begins with.")


class Token2WavParams(CodecParams):
    """Qwen2.5-Omni's codec begins with a diffusion model."""

    steps: int = Field(10, ge=2, le=100, description="Points in time of its ODE solver.")
    guidance: float = Field(0.5, ge=0, le=10, description="How closely it keeps to the codes.")


class QwenOmni(Chat):
    """Chat models that speak."""

    name: ClassVar[str] = "qwen-omni"

    def owns(self, index: Mapping[str, Any]) -> bool:
        """See `Family.owns`."""
        names = index.get("architectures") or []
        return any(name in (*_QWEN25, *_QWEN3) for name in names)

    def stages(self, checkpoint: Checkpoint) -> StageGraph:
        """See `Family.stages`; a checkpoint without voices only thinks."""
        thinker = super().stages(checkpoint)["thinker"]
        voices = voices_of(checkpoint.index, checkpoint.folder)
        if not voices or not checkpoint.index.get("enable_audio_output", True):
            return StageGraph.of(thinker)
        codec = CodecParams if is_qwen3(checkpoint.index) else Token2WavParams
        own = with_defaults(codec, _own_defaults(checkpoint, "codec_decode"))
        return speaking(thinker, voices, talker_layers(checkpoint.index), own)

    def ar_stage(self, checkpoint: Checkpoint, stage: str) -> ARStage:
        """See `Family.ar_stage`."""
        if stage == "thinker":
            return super().ar_stage(checkpoint, stage)
        from .talker import talker_of

        return talker_of(checkpoint)

    def load(self, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
        """See `Family.load`: the codec."""
        from .codec import load

        return load(checkpoint, dtype=dtype, device=device)


def speaking(
    thinker: Stage, voices: tuple[str, ...], layers: tuple[int, ...], codec: type[Params]
) -> StageGraph:
    """The graph of a model that speaks.

    Args:
        thinker: as that of a model that does not.
        voices: names in lower case, the usual one first.
        layers: the Thinker's that the Talker reads.
        codec: parameters of the codec.
    """
    return StageGraph.of(
        replace(
            thinker,
            params=with_defaults(thinker.params, {"hidden_layers": list(layers)}),
            streams=frozenset({"hidden"}),
        ),
        Stage(
            "talker",
            _with_voices(voices),
            inputs={"hidden": "hidden"},
            outputs={"codes": "codes"},
            engines=("ar",),
            streams=frozenset({"codes"}),
            follows=frozenset({"hidden"}),
        ),
        Stage(
            "codec_decode",
            codec,
            inputs={"codes": "codes"},
            outputs={"audio": "audio"},
            streams=frozenset({"audio"}),
            follows=frozenset({"codes"}),
        ),
    )


def is_qwen3(config: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is Qwen3-Omni's."""
    return any(name in _QWEN3 for name in config.get("architectures") or [])


def talker_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The Thinker's layers that the Talker reads; 0: embeddings, -1: the last."""
    if is_qwen3(config):
        return (0, int(config["talker_config"]["accept_hidden_layer"]))
    return (0, -1)


def _with_voices(voices: tuple[str, ...]) -> type[Params]:
    """The Talker's parameters with the voices a checkpoint has."""
    voice: Any = (Literal[voices], Field(voices[0], description="Who speaks."))
    return create_model("TalkerParams", __base__=TalkerParams, voice=voice)


def _own_defaults(checkpoint: Checkpoint, stage: str) -> dict[str, Any]:
    """Of a stage's parameters, as the checkpoint's `omnistage.json` spells them."""
    own = checkpoint.overrides.get(stage, {})
    return {name: words["default"] for name, words in own.items()}
