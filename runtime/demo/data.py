"""Training data made on the fly: drawn pictures with captions, as tensors.

Owns sampling and the picture format ([3, H, W], float32, -1..1). Knows nothing of models.
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import torch
from PIL import Image

from .captions import Request, training_request
from .drawing import draw

SIZES_PX: Final = (64, 96, 128)


def to_tensor(picture: Image.Image) -> torch.Tensor:
    """An RGB picture as [3, H, W] float32 in -1..1."""
    pixels = torch.from_numpy(np.asarray(picture).copy())
    return pixels.permute(2, 0, 1).float() / 127.5 - 1.0


def draw_examples(
    count: int, size_px: int, rng: random.Random
) -> tuple[list[Request], torch.Tensor]:
    """``count`` training requests and their pictures [count, 3, size_px, size_px]."""
    requests = [training_request(rng) for _ in range(count)]
    pictures = [to_tensor(draw(request.scene, size_px, rng)) for request in requests]
    return requests, torch.stack(pictures)


def random_crops(pictures: torch.Tensor, side_px: int, rng: random.Random) -> torch.Tensor:
    """One random square crop of each picture: [N, 3, H, W] to [N, 3, side_px, side_px]."""
    room = pictures.shape[-1] - side_px
    crops = []
    for picture in pictures:
        top, left = rng.randint(0, room), rng.randint(0, room)
        crops.append(picture[:, top : top + side_px, left : left + side_px])
    return torch.stack(crops)
