"""Small pictures of what a request is drawing, from its latents."""

from __future__ import annotations

import io

import torch
from PIL import Image

_QUALITY = 80


def preview_jpeg(latents: torch.Tensor, to_rgb: torch.Tensor, longest_px: int) -> bytes:
    """The first row of clean latents as a JPEG.

    Args:
        latents: `[rows, C, h, w]`, any float dtype.
        to_rgb: `[C + 1, 3]`; last row: bias. Maps latents to 0..1.
        longest_px: the longest side; a preview is never larger than 8 times the latents.
    """
    picture = latents[0].float().movedim(0, -1) @ to_rgb[:-1] + to_rgb[-1]
    pixels = (picture.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    image = Image.fromarray(pixels)
    scale = min(longest_px / max(image.size), 8.0)
    image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()
