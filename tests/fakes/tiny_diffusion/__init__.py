"""Tiny random-weight checkpoints of diffusers' families, laid out as `from_pretrained` wants them.

Each is a function of a folder and a seed.
"""

from .anima import anima
from .flux import flux, flux2, flux2_klein, flux2_klein_base, flux_kontext
from .hunyuan import hunyuan15, hunyuan15_i2v
from .ltx import ltx, ltx2, ltx_i2v
from .pictures import ernie_image, sd3, sdxl, sdxl_controlnet, z_image
from .qwen import (
    qwen_image,
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
        hunyuan15_i2v,
        anima,
    )
}
"""By family name."""
