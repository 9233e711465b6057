"""Pictures out of a result, for clients that want files."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from ..protocol.errors import InvalidRequest
from ..protocol.frames import Frame


def png_of(frame: Frame, index: int) -> bytes:
    """One picture of a frame of kind `images` as an 8-bit PNG.

    Args:
        frame: holds `images` `[B, H, W, C]`, float, 0..1.
        index: which of the B.

    Raises:
        InvalidRequest: these are no pictures, or there are not so many.
    """
    kind = frame.header.get("kind")
    if kind != "images":
        raise InvalidRequest(
            f"A result of kind {kind} has no pictures.", field="format", allowed="frame"
        )
    pictures = frame.tensors["images"].array
    if index >= len(pictures):
        raise InvalidRequest(
            f"There is no picture {index}; there are {len(pictures)}.",
            field="index",
            value=index,
            allowed=f"0 to {len(pictures) - 1}",
        )
    pixels = np.rint(np.clip(pictures[index].astype(np.float32), 0, 1) * 255).astype(np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
