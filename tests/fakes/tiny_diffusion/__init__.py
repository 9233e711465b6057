"""Tiny random-weight checkpoints of diffusers' families, laid out as `from_pretrained` wants them.

Each is a function of a folder and a seed.
"""

from .anima import anima
from .flux import flux, flux2, flux2_klein, flux2_klein_base, flux_kontext
from .flux3 import flux3, flux3_distilled
from .helios import helios, helios_pyramid, helios_pyramid_distilled
from .hunyuan import hunyuan15
from .ideogram import ideogram4
from .krea import krea2, krea2_turbo
from .ltx import echo, ltx, ltx2, ltx25, ltx_i2v
from .pictures import ernie_image, sd3, sdxl, sdxl_controlnet, z_image
from .qwen import (
    qwen_image,
    qwen_image_21,
    qwen_image_21_turbo,
    qwen_image_controlnet,
    qwen_image_edit,
    qwen_image_edit_2511,
    qwen_image_edit_plus,
    qwen_image_layered,
)
from .wan import wan, wan22, wan22_i2v, wan_i2v

CHECKPOINTS = {
    made.__name__: made
    for made in (
        qwen_image,
        qwen_image_edit,
        qwen_image_edit_plus,
        qwen_image_edit_2511,
        qwen_image_layered,
        qwen_image_controlnet,
        flux,
        flux_kontext,
        flux2,
        flux2_klein,
        flux2_klein_base,
        z_image,
        sd3,
        sdxl,
        sdxl_controlnet,
        wan,
        wan22,
        wan_i2v,
        wan22_i2v,
        ltx2,
        ltx,
        ltx_i2v,
        ernie_image,
        hunyuan15,
        anima,
        krea2,
        krea2_turbo,
        ideogram4,
        helios,
        helios_pyramid,
        helios_pyramid_distilled,
        qwen_image_21,
        qwen_image_21_turbo,
        flux3,
        flux3_distilled,
        ltx25,
        echo,
    )
}
"""By family name."""
