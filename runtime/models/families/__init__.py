"""The diffusion families, one file each; a new one is added to a list here."""

from __future__ import annotations

from typing import Final

from ..modular.family import ModularFamily
from .flux import Flux
from .flux2 import Flux2, Flux2Klein
from .flux_kontext import FluxKontext
from .generic import GENERIC
from .ltx2 import LTX2, LTX25
from .qwen_image import QwenImage
from .qwen_image_edit import QwenImageEdit, QwenImageEditPlus
from .qwen_image_layered import QwenImageLayered
from .stable_diffusion_3 import StableDiffusion3
from .stable_diffusion_xl import StableDiffusionXL
from .text_diffusion import DiffusionGemma, LLaDA2, TextDiffusion
from .wan import Wan
from .wan_image import WanImage
from .z_image import ZImage

DIFFUSION: Final[tuple[ModularFamily, ...]] = (
    QwenImage(),
    QwenImageEdit(),
    QwenImageEditPlus(),
    QwenImageLayered(),
    Flux(),
    FluxKontext(),
    Flux2(),
    Flux2Klein(),
    ZImage(),
    StableDiffusion3(),
    StableDiffusionXL(),
    Wan(),
    WanImage(),
    LTX2(),
    LTX25(),
    *GENERIC,
)
"""Every family that diffusers' modular blocks run."""

TEXT_DIFFUSION: Final[tuple[TextDiffusion, ...]] = (LLaDA2(), DiffusionGemma())
"""Every family whose text is denoised, by a pipeline of diffusers."""
