"""LTX-2: films with sound."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from ..modular.family import ModularFamily
from ..modular.params import (
    FilmParams,
    VAEDecodeParams,
    frames,
    frames_per_second,
    guidance,
    side,
    steps,
    whole_latents,
)


def _scale(default: float, words: str) -> Any:
    return Field(default, ge=0.0, le=100.0, description=words)


class LTX2Params(FilmParams):
    """diffusers' defaults, but for spatio-temporal guidance, which depends on the model's layers.

    Sound lasts as long as the film does, so that the frame rate is a part of what is drawn.
    """

    width: int = side(704, multiple=32)
    height: int = side(512, multiple=32)
    frames: int = frames(121, per_latent=8, maximum=1001)
    _whole_latents = whole_latents(8)
    fps: float = frames_per_second(24.0)
    steps: int = steps(30)
    guidance: float = guidance(3.0)
    audio_guidance: float = _scale(7.0, "Guidance scale of the sound; works above 1.")
    modality_guidance: float = _scale(
        3.0, "How far picture and sound keep away from what each is without the other; 1: not."
    )
    audio_modality_guidance: float = _scale(3.0, "The same for the sound.")
    guidance_rescale: float = Field(
        0.7, ge=0.0, le=1.0, description="Pull the deviation back to the unguided one's."
    )
    stg: float = _scale(0.0, "Spatio-temporal guidance: away from what is drawn without layers.")
    audio_stg: float = _scale(0.0, "The same for the sound.")
    stg_layers: list[Annotated[int, Field(ge=0, le=999)]] = Field(
        default=[28], min_length=1, max_length=64, description="Layers to do without."
    )


class LTX2(ModularFamily):
    """LTX-2 and LTX-2.3."""

    name: ClassVar[str] = "ltx2"
    pipelines: ClassVar = {"LTX2Pipeline": "LTX2AutoBlocks"}
    components: ClassVar = frozenset(
        {"transformer", "vae", "audio_vae", "vocoder", "connectors", "text_encoder", "tokenizer"}
    )
    max_tokens: ClassVar = {"tokenizer": 1024}
    sample: ClassVar = LTX2Params
    decode: ClassVar = VAEDecodeParams
    guidance: ClassVar = {
        "guider": {
            "guidance_scale": "guidance",
            "stg_scale": "stg",
            "modality_scale": "modality_guidance",
            "guidance_rescale": "guidance_rescale",
            "spatio_temporal_guidance_blocks": "stg_layers",
        },
        "audio_guider": {
            "guidance_scale": "audio_guidance",
            "stg_scale": "audio_stg",
            "modality_scale": "audio_modality_guidance",
            "guidance_rescale": "guidance_rescale",
        },
    }
    films: ClassVar = True
    sounds: ClassVar = True
    packed: ClassVar = True


class LTX25(LTX2):
    """LTX-2.5, which can begin with a picture."""

    name: ClassVar[str] = "ltx2.5"
    pipelines: ClassVar = {"LTX25ModularPipeline": "LTX25AutoBlocks"}
    components: ClassVar = LTX2.components | {"diffusion_decoder"}
    undeclared: ClassVar = {"decode": frozenset({"vae"})}
    references: ClassVar = 1
    fits_references: ClassVar = True
