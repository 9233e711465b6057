"""Teaches the recogniser, with connectionist temporal classification, to hear words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import torch
from torch.nn import functional

from .data import make_listening
from .fit import Recipe, fit
from .mel import SILENCE
from .recogniser import BLANK, STRIDE, Recogniser, loud_mel

_RECIPE: Final = Recipe(3e-3, clip=5.0, average=0.99)
_BATCH: Final = 16
_SEED: Final = 11
_NOISES: Final = (0.0, 0.3, 0.6)
_SHIFT: Final = 3


def train_recogniser(recogniser: Recogniser, folder: Path, steps: int) -> None:
    """Trains in place; see `fit`."""
    heard = [(words, loud_mel(wave)) for words, wave in make_listening(random.Random(_SEED))]
    recogniser.train()

    def loss(rng: random.Random) -> tuple[torch.Tensor, dict[str, float]]:
        rows = rng.sample(heard, _BATCH)
        longest = max(mel.shape[1] for _, mel in rows)
        mels = torch.stack(
            [functional.pad(mel, (0, longest - mel.shape[1]), value=SILENCE) for _, mel in rows]
        )
        scores = recogniser(_disturbed(mels, rng))
        value = functional.ctc_loss(
            scores.permute(2, 0, 1),
            torch.tensor([word for words, _ in rows for word in words]),
            torch.tensor([-(-mel.shape[1] // STRIDE) for _, mel in rows]),
            torch.tensor([len(words) for words, _ in rows]),
            blank=BLANK,
            zero_infinity=True,
        )
        return value, {}

    fit("recogniser", recogniser, loss, _RECIPE, folder, steps)


def _disturbed(mels: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Noise, and all bands a little higher or lower, as in another throat."""
    shift = rng.randint(-_SHIFT, _SHIFT)
    moved = functional.pad(mels, (0, 0, _SHIFT + shift, _SHIFT - shift), mode="replicate")
    moved = moved[:, _SHIFT : _SHIFT + mels.shape[1]]
    return moved + torch.randn_like(mels) * rng.choice(_NOISES)
