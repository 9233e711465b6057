"""Z-Image: text to image and image to image."""

from __future__ import annotations

from typing import ClassVar

from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import SampleParams, guidance, steps


class ZImageParams(SampleParams):
    """Turbo checkpoints want guidance 0 and 8 steps; the base model is guided."""

    steps: int = steps(8)
    guidance: float = guidance(0.0)


class ZImage(ModularFamily):
    """Z-Image and Z-Image Turbo."""

    name: ClassVar[str] = "z-image"
    pipelines: ClassVar = {"ZImagePipeline": "ZImageAutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "tokenizer"})
    max_tokens: ClassVar = {"tokenizer": 512 - 16}  # the rest is for the chat around the prompt
    sample: ClassVar = ZImageParams
    guiders: ClassVar = PLAIN_KINDS
    starts: ClassVar = True
