"""The mel spectrogram between the demo's codes and its sound.

80 natural-log mel bands of 10 ms at 24 kHz. Owns the transform. Knows nothing of models.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch.nn import functional
from transformers.audio_utils import mel_filter_bank

RATE_HZ: Final = 24_000
"""Samples a second of everything that the demo speaks."""

MEL_BANDS: Final = 80
HOP: Final = 240
_WINDOW: Final = 1024
_FLOOR: Final = 1e-4
SILENCE: Final = -9.21
"""The value of a band without sound, ln of the floor."""


@cache
def _bands() -> torch.Tensor:
    """Slaney's filters [80, 513]."""
    filters = mel_filter_bank(
        num_frequency_bins=_WINDOW // 2 + 1,
        num_mel_filters=MEL_BANDS,
        min_frequency=0.0,
        max_frequency=RATE_HZ / 2,
        sampling_rate=RATE_HZ,
        norm="slaney",
        mel_scale="slaney",
    )
    return torch.from_numpy(filters).float().T.contiguous()


def mel_of(waves: torch.Tensor) -> torch.Tensor:
    """Waveforms [B, T] to log-mel spectrograms [B, 80, T / 240]; T is a multiple of 240."""
    pad = (_WINDOW - HOP) // 2
    padded = functional.pad(waves[:, None], (pad, pad), mode="reflect")[:, 0]
    spectrum = torch.stft(
        padded, _WINDOW, HOP, window=torch.hann_window(_WINDOW), center=False, return_complex=True
    )
    magnitude = torch.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-9)
    return torch.log(torch.clamp(_bands() @ magnitude, min=_FLOOR))
