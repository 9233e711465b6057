"""Teaches the diffusion model of the codec: codes and a voice in, a spectrogram out.

Flow matching. In some rows codes, voice and reference are left out together, which is what
classifier-free guidance compares with.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Final

import torch
from transformers import Qwen2_5OmniToken2WavDiTModel

from .codec import FRAMES
from .data import Utterance, load_utterances
from .fit import Recipe, fit
from .speakers import REFERENCE_FRAMES, speaker_vector
from .voices import VOICES

_RECIPE: Final = Recipe(1.5e-3, weight_decay=1e-3)
_WINDOWS: Final = ((48, 16), (48, 16), (24, 32), (24, 32), (4, 96))
"""Codes of a window, and windows of a batch. Short ones let single words be learnt whole, and
the shortest what comes first when speech is streamed."""

_DROPPED: Final = 0.15


def train_dit(dit: Qwen2_5OmniToken2WavDiTModel, folder: Path, steps: int) -> None:
    """Trains in place; see `fit`."""
    utterances = load_utterances(folder)
    with torch.no_grad():
        dit.proj_out.bias.copy_(torch.cat([u.aligned for u in utterances]).mean(0))
    batches = _Batches(utterances)
    dit.train()

    def loss(rng: random.Random) -> tuple[torch.Tensor, dict[str, float]]:
        codes, mels, references, vectors = batches.draw(rng)
        kept = torch.rand(len(codes)) >= _DROPPED
        time = torch.rand(len(codes))
        noise = torch.randn_like(mels)
        velocity = dit(
            hidden_states=torch.lerp(noise, mels, time[:, None, None]),
            condition_vector=references * kept[:, None, None],
            speaker_embedding=vectors * kept[:, None, None],
            quantized_code=codes * kept[:, None],
            time_step=time,
            apply_cfg=False,
        )
        return (velocity - (mels - noise)).pow(2).mean(), {}

    fit("dit", dit, loss, _RECIPE, folder, steps)


class _Batches:
    """Random windows of utterances, with another utterance of the same voice as reference."""

    def __init__(self, utterances: list[Utterance]) -> None:
        self._utterances = utterances
        self._references: dict[str, list[torch.Tensor]] = defaultdict(list)
        for utterance in utterances:
            if utterance.mel.shape[1] >= REFERENCE_FRAMES:
                self._references[utterance.voice].append(utterance.mel.T)
        self._vectors = {voice: speaker_vector(voice) for voice in VOICES}

    def draw(self, rng: random.Random) -> tuple[torch.Tensor, ...]:
        """Codes [B, N], spectrograms [B, 2 N, 80], references and speaker vectors [B, 2 N, 32]."""
        length, count = rng.choice(_WINDOWS)
        long_enough = [u for u in self._utterances if len(u.codes) >= length]
        rows = [self._window(rng.choice(long_enough), length, rng) for _ in range(count)]
        return tuple(torch.stack(column) for column in zip(*rows, strict=True))

    def _window(
        self, utterance: Utterance, length: int, rng: random.Random
    ) -> tuple[torch.Tensor, ...]:
        """Beginnings and ends as often as what is between."""
        room = len(utterance.codes) - length
        start = rng.choice((0, room, rng.randint(0, room), rng.randint(0, room)))
        return (
            utterance.codes[start : start + length],
            utterance.aligned[FRAMES * start : FRAMES * (start + length)],
            self._reference(utterance.voice, rng),
            self._vectors[utterance.voice].expand(FRAMES * length, -1),
        )

    def _reference(self, voice: str, rng: random.Random) -> torch.Tensor:
        mel = rng.choice(self._references[voice])
        start = rng.randint(0, len(mel) - REFERENCE_FRAMES)
        return mel[start : start + REFERENCE_FRAMES]
