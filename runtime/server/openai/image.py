"""Pictures from files, by Pillow."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from ...protocol.conversation import Media
from ...protocol.errors import InvalidRequest, TooLarge
from ...protocol.frames import Tensor
from .budget import Budget

MAX_PIXELS: Final = 64_000_000
FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF")

_BROKEN = (OSError, ValueError, SyntaxError, EOFError, struct.error)  # what Pillow raises


def decode_image(data: bytes, budget: Budget) -> Media:
    """The first picture of a file, turned as its camera says, transparency on white.

    Returns:
        uint8 `[H, W, 3]`.

    Raises:
        TooLarge: it has too many pixels, or the budget has too few bytes left.
        InvalidRequest: it is broken, or in another format.
    """
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            _check_size(image.width * image.height, budget)
            pixels = np.asarray(_rgb(ImageOps.exif_transpose(image)))
    except Image.DecompressionBombError as error:
        raise _too_many_pixels() from error
    except _BROKEN as error:
        raise InvalidRequest(
            f"The picture cannot be read: {error}.", allowed=", ".join(FORMATS)
        ) from error
    return Media("image", Tensor.of(pixels))


def _check_size(pixels: int, budget: Budget) -> None:
    """So far only the file's head was read."""
    if pixels > MAX_PIXELS:
        raise _too_many_pixels()
    budget.take(3 * pixels)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "I;16":  # Pillow would clip it
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    canvas = Image.new("RGB", image.size, "white")
    canvas.paste(image, mask=image.getchannel("A"))
    return canvas


def _too_many_pixels() -> TooLarge:
    return TooLarge(
        f"A picture may have {MAX_PIXELS} pixels at most.", allowed=f"at most {MAX_PIXELS} pixels"
    )
