"""Qwen-Image: text encode, denoise, VAE encode and decode, on diffusers' modular blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, create_model

from .family import Family
from .stage import Params, Stage, StageGraph

if TYPE_CHECKING:
    from .ar_stage import ARStage
    from .checkpoint import Checkpoint
    from .program import LoadedModel

MAX_SEED = 2**64 - 1
MAX_TOKENS = 1024
"""Prompt tokens the pipeline can use. Source: diffusers `QwenImagePipeline.check_inputs`."""

TEMPLATE_TOKENS = 64
"""Room for the prompt template, of which 34 tokens are dropped again."""


class StrictParams(Params):
    """What every stage of this family has."""

    strict: bool = Field(
        False, description="Never share a forward pass: bit-identical to diffusers, slower."
    )


class TextEncodeParams(StrictParams):
    """What to draw, and what not to."""

    prompt: str = Field("", description="What to draw.", max_length=20_000)
    negative_prompt: str = Field(
        "",
        description="What to avoid. Empty: no guidance, one forward pass a step instead of two.",
        max_length=20_000,
    )


class SampleParams(StrictParams):
    """One picture, or several that differ in seed only."""

    width: int = Field(1024, ge=16, le=2048, multiple_of=16, description="Pixels.")
    height: int = Field(1024, ge=16, le=2048, multiple_of=16, description="Pixels.")
    count: int = Field(1, ge=1, le=64, description="Pictures; picture i uses seed + i.")
    steps: int = Field(50, ge=1, le=1000, description="Denoising steps.")
    guidance: float = Field(
        4.0, ge=0.0, le=100.0, description="True CFG scale; needs a negative prompt, works above 1."
    )
    scheduler: Literal["default"] = Field("default", description="Noise schedule.")
    denoise: float = Field(
        1.0, gt=0.0, le=1.0, description="Share of the schedule (with a latent)."
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of the noise.")


class VAEEncodeParams(StrictParams):
    """Pictures to latents."""


class VAEDecodeParams(StrictParams):
    """Latents to pictures."""


class QwenImage(Family):
    """Qwen-Image and checkpoints of its classes."""

    name: ClassVar[str] = "qwen-image"
    components: ClassVar[frozenset[str]] = frozenset(
        {"transformer", "vae", "text_encoder", "tokenizer", "scheduler"}
    )

    def owns(self, index: Mapping[str, Any]) -> bool:
        """See `Family.owns`."""
        return index.get("_class_name") == "QwenImagePipeline"

    def stages(self, checkpoint: Checkpoint) -> StageGraph:
        """See `Family.stages`."""
        return self.graph(checkpoint.overrides)

    def graph(self, overrides: Mapping[str, Any]) -> StageGraph:
        """The stage graph with defaults and limits as `omnistage.json` spells them."""
        return StageGraph.of(
            Stage(
                "text_encode",
                TextEncodeParams,
                inputs={"prompt": "text", "negative_prompt": "text"},
                outputs={"conditioning": "conditioning"},
                optional=frozenset({"prompt", "negative_prompt"}),
                engines=("ar", "diffusion"),
            ),
            Stage(
                "sample",
                _with_overrides(SampleParams, overrides.get("sample", {})),
                inputs={"conditioning": "conditioning", "latent": "latent"},
                outputs={"latent": "latent"},
                optional=frozenset({"latent"}),
            ),
            Stage(
                "vae_encode",
                VAEEncodeParams,
                inputs={"images": "images"},
                outputs={"latent": "latent"},
            ),
            Stage(
                "vae_decode",
                VAEDecodeParams,
                inputs={"latent": "latent"},
                outputs={"images": "images"},
            ),
        )

    def load(self, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
        """See `Family.load`."""
        from .qwen_image_program import load

        return load(checkpoint, dtype=dtype, device=device)

    def ar_stage(self, checkpoint: Checkpoint, stage: str) -> ARStage:
        """See `Family.ar_stage`."""
        from .ar_encoder import EncoderStage
        from .components import load_tokenizer
        from .qwen_image_text import TextEncode

        encoder = checkpoint.read_json("text_encoder/config.json")
        return EncoderStage(
            TextEncode(load_tokenizer(checkpoint.folder / "tokenizer")),
            checkpoint.folder / "text_encoder",
            width=encoder.get("text_config", encoder)["hidden_size"],
            max_tokens=MAX_TOKENS + TEMPLATE_TOKENS,
        )


def _with_overrides(
    params: type[Params], overrides: Mapping[str, Mapping[str, Any]]
) -> type[Params]:
    """The parameters with a checkpoint's own defaults and limits.

    Args:
        params: the family's own.
        overrides: JSON-schema words by field, e.g. `{"width": {"default": 64, "maximum": 128}}`.
    """
    fields: dict[str, Any] = {}
    for name, words in overrides.items():
        own = params.model_fields[name]
        multiple = 16 if name in ("width", "height") else None
        fields[name] = (
            own.annotation,
            Field(
                words.get("default", own.default),
                ge=words.get("minimum", 1),
                le=words["maximum"],
                multiple_of=multiple,
                description=own.description,
            ),
        )
    return create_model(params.__name__, __base__=params, **fields)
