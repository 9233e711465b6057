"""Training data: what is said, its codes, and how each voice says it.

Owns drawing, aligning and keeping it. Knows nothing of models. The codes of an utterance come
from the coded voice; the demo's voices say the same words a little faster or slower, so their
spectrograms are brought to the codes' time word by word.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from .codec import CODE_SAMPLES, FRAMES, encode, find_codebook, pairs_of
from .espeak import Espeak, Speech
from .mel import HOP, RATE_HZ, mel_of
from .vocabulary import WORDS, is_held_out, random_words
from .voices import CODED, TEACHERS, VOICES, Voice

_SPOKEN: Final = 1000
_WRITTEN: Final = 7000
_LISTENED: Final = 4000
_LOUD: Final = 0.004
_BEFORE: Final = RATE_HZ // 50
_AFTER: Final = 3 * RATE_HZ // 50
_PAIRS: Final = 40_000


@dataclass(frozen=True, slots=True)
class Line:
    """Words with their codes [N], and the number of the word [N] that each code belongs to."""

    words: tuple[str, ...]
    codes: torch.Tensor
    places: torch.Tensor


@dataclass(frozen=True, slots=True)
class Utterance:
    """One voice's sound, with its codes [N].

    The spectrogram in the codes' time [2 N, 80], the spectrogram as it is [80, M], and the
    waveform [240 M].
    """

    voice: str
    codes: torch.Tensor
    aligned: torch.Tensor
    mel: torch.Tensor
    wave: torch.Tensor


def training_words(rng: random.Random) -> tuple[str, ...]:
    """A random sequence that is not held out."""
    while True:
        words = random_words(rng)
        if not is_held_out(words):
            return words


def make_lines(folder: Path, rng: random.Random) -> None:
    """Writes the codebook, the lines for the talker and the sound for the codec."""
    espeak = Espeak()
    spoken = [training_words(rng) for _ in range(_SPOKEN)]
    coded = [_trimmed(espeak.say(words, CODED)) for words in spoken]
    pairs = torch.cat([pairs_of(_mel(speech.samples)) for speech in coded])
    codebook = find_codebook(pairs[torch.randperm(len(pairs))[:_PAIRS]])
    rows = []
    for words, speech in zip(spoken, coded, strict=True):
        codes = encode(_mel(speech.samples), codebook).to(torch.int16)
        for name, voice in VOICES.items():
            own = _trimmed(espeak.say(words, voice))
            frames = _frames_at(speech, own, FRAMES * len(codes))
            wave = torch.from_numpy(own.samples * 32767).to(torch.int16)
            rows.append({"voice": name, "codes": codes, "frames": frames, "wave": wave})
    seen = {tuple(training_words(rng)) for _ in range(_WRITTEN)}
    lines = []
    for words in sorted(seen):
        speech = _trimmed(espeak.say(words, CODED))
        codes = encode(_mel(speech.samples), codebook)
        lines.append({"words": words, "codes": codes, "places": _places(speech, len(codes))})
    torch.save(rows, folder / "utterances.pt")
    torch.save(lines, folder / "lines.pt")
    torch.save(codebook, folder / "codebook.pt")


def load_lines(folder: Path) -> list[Line]:
    """The talker's data."""
    rows: list[dict[str, Any]] = torch.load(folder / "lines.pt")
    return [Line(tuple(row["words"]), row["codes"].long(), row["places"]) for row in rows]


def load_utterances(folder: Path) -> list[Utterance]:
    """The codec's data."""
    rows: list[dict[str, Any]] = torch.load(folder / "utterances.pt")
    utterances = []
    for row in rows:
        wave = row["wave"].float() / 32767
        mel = mel_of(wave[None])[0]
        aligned = mel.T[row["frames"].clamp(max=mel.shape[1] - 1)]
        utterances.append(Utterance(row["voice"], row["codes"].long(), aligned, mel, wave))
    return utterances


def make_listening(rng: random.Random) -> list[tuple[list[int], torch.Tensor]]:
    """Word numbers and waveforms [T] of many other people, for the recogniser."""
    espeak = Espeak()
    heard = []
    for index in range(_LISTENED):
        words = training_words(rng)
        voice = Voice(
            TEACHERS[index % len(TEACHERS)],
            rng.randint(25, 75),
            rng.randint(0, 80),
            rng.randint(115, 185),
        )
        samples = _trimmed(espeak.say(words, voice)).samples
        heard.append(([WORDS.index(word) for word in words], torch.from_numpy(samples)))
    return heard


def _mel(samples: np.ndarray[Any, np.dtype[np.float32]]) -> torch.Tensor:
    return mel_of(torch.from_numpy(samples)[None])[0]


def _trimmed(speech: Speech) -> Speech:
    """Cut to the sound, with a little silence around it, to a whole number of codes."""
    loud = np.nonzero(np.abs(speech.samples) > _LOUD)[0]
    start, stop = max(0, loud[0] - _BEFORE), loud[-1] + _AFTER
    samples = speech.samples[start:stop]
    samples = np.pad(samples, (0, -len(samples) % CODE_SAMPLES))
    starts = tuple(max(0.0, begin - start / RATE_HZ) for begin in speech.word_starts_s)
    return Speech(samples, starts)


def _places(speech: Speech, count: int) -> torch.Tensor:
    """The number of the word at each of ``count`` codes."""
    times = (torch.arange(count) + 0.5) * CODE_SAMPLES / RATE_HZ
    return torch.bucketize(times, torch.tensor(speech.word_starts_s[1:]), right=True)


def _frames_at(coded: Speech, own: Speech, count: int) -> torch.Tensor:
    """For ``count`` mel frames of the coded voice, the frame where the other voice is as far."""
    ends = len(coded.samples) / RATE_HZ, len(own.samples) / RATE_HZ
    theirs = np.array([*coded.word_starts_s, ends[0]])
    ours = np.array([*own.word_starts_s, ends[1]])
    times = (np.arange(count) + 0.5) * HOP / RATE_HZ
    return torch.from_numpy((np.interp(times, theirs, ours) * RATE_HZ / HOP).astype(np.int64))
