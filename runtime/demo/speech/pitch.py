"""The pitch of a voice, by autocorrelation.

Owns the measurement. Knows nothing of models.
"""

from __future__ import annotations

from typing import Final

import torch

from .mel import RATE_HZ

_WINDOW: Final = 1200
_HOP: Final = 480
_LOWEST_HZ: Final = 60
_HIGHEST_HZ: Final = 400
_VOICED: Final = 0.5
_LOUD: Final = 0.05


def pitch_hz(wave: torch.Tensor) -> float:
    """The median pitch of the voiced parts of a waveform [T] at 24 kHz; 0 if there are none."""
    if len(wave) < _WINDOW:
        return 0.0
    frames = wave.float().unfold(0, _WINDOW, _HOP)
    frames = frames[frames.abs().amax(1) > _LOUD]
    if not len(frames):
        return 0.0
    frames = frames - frames.mean(1, keepdim=True)
    power = torch.fft.rfft(frames, 2 * _WINDOW).abs() ** 2
    likeness = torch.fft.irfft(power)[:, :_WINDOW]
    likeness = likeness / likeness[:, :1].clamp(min=1e-9)
    shortest, longest = RATE_HZ // _HIGHEST_HZ, RATE_HZ // _LOWEST_HZ
    best, lag = likeness[:, shortest : longest + 1].max(1)
    lags = (lag + shortest)[best > _VOICED]
    return RATE_HZ / float(lags.float().median()) if len(lags) else 0.0
