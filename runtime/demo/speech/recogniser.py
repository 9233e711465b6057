"""Hears which words a waveform says: a small CTC network over mel spectrograms.

It learnt from other people than the demo's voices, so it judges them fairly. Owns the network,
its weights file and decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from torch import nn

from .mel import HOP, MEL_BANDS, mel_of
from .vocabulary import WORDS

WEIGHTS: Final = Path(__file__).parent / "recogniser.safetensors"
BLANK: Final = len(WORDS)
STRIDE: Final = 4
"""Mel frames of one output."""

_WIDTH: Final = 96
_PEAK: Final = 0.5
_QUIET: Final = 1e-3


class Recogniser(nn.Module):
    """Four convolutions of 5; spectrograms [B, 80, T] to log-probabilities [B, 30, T / 4]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = MEL_BANDS
        for stride, dilation in ((2, 1), (2, 1), (1, 1), (1, 2)):
            layers += [
                nn.Conv1d(width, _WIDTH, 5, stride, padding=2 * dilation, dilation=dilation),
                nn.BatchNorm1d(_WIDTH),
                nn.ReLU(),
            ]
            width = _WIDTH
        self.layers = nn.Sequential(*layers, nn.Dropout(0.1), nn.Conv1d(_WIDTH, BLANK + 1, 1))

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return torch.log_softmax(self.layers((mel + 6) / 3), 1)


def load_recogniser(path: Path = WEIGHTS) -> Recogniser:
    """The trained network."""
    recogniser = Recogniser()
    recogniser.load_state_dict(load_file(path))
    return recogniser.eval()


def loud_mel(wave: torch.Tensor) -> torch.Tensor:
    """The spectrogram [80, T / 240] of a waveform [T] at the loudness that the network knows."""
    wave = wave[: len(wave) // HOP * HOP].float()
    return mel_of(wave[None] / (wave.abs().max() + 1e-6) * _PEAK)[0]


@torch.no_grad()
def hear(recogniser: Recogniser, wave: torch.Tensor) -> tuple[str, ...]:
    """The words of a waveform [T] at 24 kHz, by greedy decoding; none where it is silent."""
    if wave.abs().max() < _QUIET:
        return ()
    best = recogniser(loud_mel(wave)[None])[0].argmax(0).tolist()
    pairs = zip([BLANK, *best], best, strict=False)
    return tuple(WORDS[now] for last, now in pairs if now not in (last, BLANK))


def mistakes(heard: Sequence[str], wanted: Sequence[str]) -> int:
    """Words to insert, delete or replace until the one is the other (Levenshtein)."""
    row = list(range(len(wanted) + 1))
    for done, left in enumerate(heard, start=1):
        before, row[0] = row[0], done
        for index, right in enumerate(wanted, start=1):
            best = min(row[index] + 1, row[index - 1] + 1, before + (left != right))
            before, row[index] = row[index], best
    return row[-1]
