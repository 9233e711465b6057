"""Speech from espeak-ng, through the shared library of the package `espeakng-loader`.

Needed to make training data only. Owns the library's handle, of which a process has one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...models.audio import resample
from .mel import RATE_HZ
from .voices import Voice

# Source: espeak-ng's speak_lib.h.
_SYNCHRONOUS: Final = 2
_UTF8: Final = 1
_SPEED, _PITCH, _RANGE = 1, 3, 4
_END, _WORD = 0, 1


class _Event(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position_ms", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass(frozen=True, slots=True)
class Speech:
    """Sound [T] (float32, -1..1) at 24 kHz, and the second at which each word begins."""

    samples: npt.NDArray[np.float32]
    word_starts_s: tuple[float, ...]


class Espeak:
    """espeak-ng, speaking into memory."""

    def __init__(self) -> None:
        """Load the library.

        Raises:
            ImportError: `espeakng-loader` is not installed.
        """
        from espeakng_loader import get_data_path, get_library_path

        self._library: Any = ctypes.CDLL(get_library_path())
        data = get_data_path().encode()
        self._rate_hz = self._library.espeak_Initialize(_SYNCHRONOUS, 0, data, 0)
        self._pieces: list[npt.NDArray[np.int16]] = []
        self._starts_s: list[float] = []
        self._callback = _Callback(self._take)  # kept: the library holds no reference
        self._library.espeak_SetSynthCallback(self._callback)

    def say(self, words: Sequence[str], voice: Voice) -> Speech:
        """Speaks the words in one breath.

        Raises:
            ValueError: espeak-ng does not have the voice.
        """
        if self._library.espeak_SetVoiceByName(voice.variant.encode()):
            raise ValueError(f"espeak-ng has no voice {voice.variant!r}")
        for setting, value in (
            (_SPEED, voice.speed),
            (_PITCH, voice.pitch),
            (_RANGE, voice.pitch_range),
        ):
            self._library.espeak_SetParameter(setting, value, 0)
        self._pieces.clear()
        self._starts_s.clear()
        text = " ".join(words).encode()
        self._library.espeak_Synth(text, len(text) + 1, 0, 0, 0, _UTF8, None, None)
        samples = np.concatenate(self._pieces).astype(np.float32) / np.float32(32768)
        return Speech(resample(samples, self._rate_hz, RATE_HZ), tuple(self._starts_s))

    def _take(self, samples: Any, count: int, events: Any) -> int:
        """The library's callback: some more samples, and what happens in them."""
        if samples and count > 0:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        index = 0
        while events and events[index].kind != _END:
            if events[index].kind == _WORD:
                self._starts_s.append(events[index].audio_position_ms / 1000)
            index += 1
        return 0
