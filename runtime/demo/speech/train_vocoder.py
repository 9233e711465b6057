"""Teaches the BigVGAN to turn spectrograms into sound, by spectral losses alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import torch
from torch.nn import functional
from transformers import Qwen2_5OmniToken2WavBigVGANModel

from .data import Utterance, load_utterances
from .fit import Recipe, fit
from .mel import HOP, SILENCE, mel_of

_RECIPE: Final = Recipe(2e-3, betas=(0.8, 0.99), weight_decay=1e-4, clip=5.0, average=0.995)
_BATCH: Final = 5
_FRAMES: Final = 32
_WINDOWS: Final = (128, 256, 512, 1024, 2048)
_MEL_WEIGHT: Final = 2.0


def train_vocoder(vocoder: Qwen2_5OmniToken2WavBigVGANModel, folder: Path, steps: int) -> None:
    """Trains in place; see `fit`."""
    utterances = load_utterances(folder)
    vocoder.train()

    def loss(rng: random.Random) -> tuple[torch.Tensor, dict[str, float]]:
        crops = [_crop(rng.choice(utterances), rng) for _ in range(_BATCH)]
        mels = torch.stack([mel for mel, _ in crops])
        waves = torch.stack([wave for _, wave in crops])
        made = vocoder(mels)
        mel_error = (mel_of(made) - mels).abs().mean()
        spectral = sum(_spectral_error(made, waves, size) for size in _WINDOWS) / len(_WINDOWS)
        return _MEL_WEIGHT * mel_error + spectral, {"mel": mel_error.item()}

    fit("vocoder", vocoder, loss, _RECIPE, folder, steps)


def _crop(utterance: Utterance, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """A random piece [80, 32] and its samples [7680]; short utterances end in silence."""
    count = utterance.mel.shape[1]
    start = rng.randrange(max(1, count - _FRAMES + 1))
    mel = utterance.mel[:, start : start + _FRAMES]
    wave = utterance.wave[start * HOP : (start + _FRAMES) * HOP]
    missing = _FRAMES - mel.shape[1]
    return (
        functional.pad(mel, (0, missing), value=SILENCE),
        functional.pad(wave, (0, missing * HOP)),
    )


def _spectral_error(made: torch.Tensor, real: torch.Tensor, size: int) -> torch.Tensor:
    """Spectral convergence and log-magnitude error at one window size.

    Source: Yamamoto et al., Parallel WaveGAN, 2020.
    """
    first, second = _magnitude(made, size), _magnitude(real, size)
    convergence = (first - second).norm() / (second.norm() + 1e-5)
    return convergence + (torch.log(first + 1e-4) - torch.log(second + 1e-4)).abs().mean()


def _magnitude(waves: torch.Tensor, size: int) -> torch.Tensor:
    spectrum = torch.stft(
        waves,
        size,
        size // 4,
        window=torch.hann_window(size),
        pad_mode="constant",
        return_complex=True,
    )
    return torch.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-8)
