"""The demo's codes: each stands for 20 ms of sound, two mel frames.

Owns the codebook, found by k-means. Code 0 is left free: it is the codec's "no code".
"""

from __future__ import annotations

from typing import Final

import torch

from .mel import HOP, MEL_BANDS

CODES: Final = 256
FRAMES: Final = 2
"""Mel frames of one code."""

CODE_SAMPLES: Final = FRAMES * HOP
_ROUNDS: Final = 30
_FEWEST: Final = 3


def pairs_of(mel: torch.Tensor) -> torch.Tensor:
    """A spectrogram [80, 2 N] as the vectors [N, 160] that are coded."""
    return mel.T.reshape(-1, FRAMES * MEL_BANDS)


def find_codebook(pairs: torch.Tensor) -> torch.Tensor:
    """k-means centres [256, 160] of ``pairs`` [N, 160]; centres of few pairs are drawn anew."""
    centres = pairs[torch.randperm(len(pairs))[:CODES]].clone()
    for _ in range(_ROUNDS):
        nearest = torch.cdist(pairs, centres).argmin(1)
        count = torch.bincount(nearest, minlength=CODES).float()
        total = torch.zeros_like(centres).index_add_(0, nearest, pairs)
        centres = total / count.clamp(min=1)[:, None]
        rare = count < _FEWEST
        centres[rare] = pairs[torch.randperm(len(pairs))[: int(rare.sum())]]
    return centres


def encode(mel: torch.Tensor, codebook: torch.Tensor) -> torch.Tensor:
    """A spectrogram [80, 2 N] as codes [N], 1..256."""
    return torch.cdist(pairs_of(mel), codebook).argmin(1) + 1
