"""Stable Diffusion XL: text to image, image to image, and inpainting."""

from __future__ import annotations

from typing import ClassVar

from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import SampleParams, guidance, side, steps


class StableDiffusionXLParams(SampleParams):
    """Defaults of the base model."""

    width: int = side(1024, multiple=8)
    height: int = side(1024, multiple=8)
    steps: int = steps(50)
    guidance: float = guidance(5.0)


class StableDiffusionXL(ModularFamily):
    """SDXL and its fine-tuned models."""

    name: ClassVar[str] = "stable-diffusion-xl"
    pipelines: ClassVar = {"StableDiffusionXLPipeline": "StableDiffusionXLAutoBlocks"}
    components: ClassVar = frozenset({"unet", "vae", "text_encoder", "text_encoder_2"})
    max_tokens: ClassVar = {"tokenizer": 77, "tokenizer_2": 77}
    sample: ClassVar = StableDiffusionXLParams
    guiders: ClassVar = PLAIN_KINDS
    controlnet: ClassVar = "ControlNetModel"
    starts: ClassVar = True
    inpaints: ClassVar = True
    denoiser: ClassVar = "unet"
