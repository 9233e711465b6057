"""Sound from files, by libsndfile."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...protocol.conversation import Media
from ...protocol.errors import InvalidRequest
from ...protocol.frames import Tensor
from .budget import Budget
from .library import library

FORMATS: Final = ("wav", "flac", "mp3")

_CONTAINERS = frozenset({"WAV", "WAVEX", "RF64", "FLAC", "MP3"})
_BLOCK_SAMPLES = 1 << 20
_SAMPLE_BYTES = 4


def decode_audio(data: bytes, budget: Budget) -> Media:
    """A sound as one channel, the mean of all, at the file's own rate.

    Returns:
        float32 `[T]`, with the rate in Hz.

    Raises:
        TooLarge: the budget has too few bytes left.
        InvalidRequest: it is broken, empty or in another format.
    """
    soundfile = library("soundfile", "sound")
    try:
        with soundfile.SoundFile(BytesIO(data)) as sound:
            if sound.format not in _CONTAINERS:
                raise _unreadable(f"it is {sound.format}")
            rate, samples = sound.samplerate, _mono(sound, budget)
    except soundfile.SoundFileError as error:
        raise _unreadable(str(error).rpartition(": ")[2].rstrip(".")) from error
    if not len(samples):
        raise _unreadable("it is empty")
    if not np.isfinite(samples).all():
        raise _unreadable("not all samples are numbers")
    return Media("audio", Tensor.of(samples), float(rate))


def _mono(sound: Any, budget: Budget) -> npt.NDArray[np.float32]:
    """Read in blocks: a file's head may say anything about its length."""
    frames = max(1, _BLOCK_SAMPLES // sound.channels)
    parts = [np.empty(0, np.float32)]
    while len(block := sound.read(frames, dtype="float32", always_2d=True)):
        budget.take(_SAMPLE_BYTES * len(block))
        parts.append(block.mean(axis=1))
    return np.concatenate(parts)


def _unreadable(why: str) -> InvalidRequest:
    return InvalidRequest(f"The sound cannot be read: {why}.", allowed=", ".join(FORMATS))
