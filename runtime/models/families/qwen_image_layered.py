"""Qwen-Image-Layered: a picture and words for it to layers with transparency."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import NoiseParams, guidance, steps


class LayeredParams(NoiseParams):
    """The layers' shape is that of the picture."""

    resolution: Literal[640, 1024] = Field(
        640, description="Layers have about the area of a square of so many pixels."
    )
    layers: int = Field(4, ge=1, le=16, description="Layers to take the picture apart into.")
    count: int = Field(1, ge=1, le=1, description="Sets of layers: one a request.")
    steps: int = steps(50)
    guidance: float = guidance(4.0)


class QwenImageLayered(ModularFamily):
    """Qwen-Image-Layered."""

    name: ClassVar[str] = "qwen-image-layered"
    pipelines: ClassVar = {"QwenImageLayeredPipeline": "QwenImageLayeredAutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "tokenizer"})
    sample: ClassVar = LayeredParams
    guiders: ClassVar = PLAIN_KINDS
    references: ClassVar = 1
    needs_reference: ClassVar = True
    needs_prompt: ClassVar = True  # else the text encoder writes one, token by token
    transparent: ClassVar = True
    negatives: ClassVar = False
