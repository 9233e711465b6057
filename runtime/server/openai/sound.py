"""Sound as the bytes of a file, made piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...protocol.pcm import pcm16
from .library import library

Samples = npt.NDArray[np.float32]
"""One channel `[T]`, -1..1."""


@dataclass(frozen=True, slots=True)
class SoundFormat:
    """A kind of file.

    Attributes:
        container, codec: as FFmpeg calls them; no container: bare samples.
        whole: its head says how long it is, so that it can only be written at the end.
    """

    media_type: str
    container: str = ""
    codec: str = ""
    whole: bool = False


FORMATS: Final = {
    "mp3": SoundFormat("audio/mpeg", "mp3", "libmp3lame"),
    "opus": SoundFormat("audio/ogg", "ogg", "libopus"),
    "aac": SoundFormat("audio/aac", "adts", "aac"),
    "flac": SoundFormat("audio/flac", whole=True),
    "wav": SoundFormat("audio/wav", "wav", "pcm_s16le"),
    "pcm": SoundFormat("audio/pcm"),
}
"""OpenAI's names. `pcm` is 16-bit little-endian samples, as they are."""

_OPTIONS: Final = {"ogg": {"page_duration": "100000"}}  # microseconds: else a second waits


class SoundFile:
    """Encodes sound as it comes.

    Args:
        kind: a name from `FORMATS`.
        rate_hz: samples in a second.
    """

    def __init__(self, kind: str, rate_hz: int) -> None:
        self.format = FORMATS[kind]
        self._rate_hz = rate_hz
        self._samples = 0
        self._kept: list[Samples] = []
        self._sink = _Sink()
        if self.format.container:
            self._open()

    def write(self, samples: Samples) -> bytes:
        """Put in samples; returns the bytes that are ready."""
        if self.format.whole:
            self._kept.append(samples)
            return b""
        if not self.format.container:
            return pcm16(samples)
        av = library("av", "sound")
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate, frame.pts = self._rate_hz, self._samples
        frame.time_base = Fraction(1, self._rate_hz)
        self._samples += len(samples)
        return self._encode(frame) if len(samples) else b""

    def end(self) -> bytes:
        """The rest of the file."""
        if self.format.whole:
            file = BytesIO()
            sound = np.concatenate([np.empty(0, np.float32), *self._kept])
            library("soundfile", "sound").write(file, sound, self._rate_hz, format="FLAC")
            return file.getvalue()
        if not self.format.container:
            return b""
        self._encode(None)
        self._file.close()
        return self._sink.take()

    def _open(self) -> None:
        container = self.format.container
        av = library("av", "sound")
        self._file = av.open(self._sink, "w", format=container, options=_OPTIONS.get(container, {}))
        self._stream: Any = self._file.add_stream(self.format.codec, rate=self._rate_hz)
        self._stream.layout = "mono"

    def _encode(self, frame: Any) -> bytes:
        for packet in self._stream.encode(frame):
            self._file.mux(packet)
        return self._sink.take() if frame is not None else b""


class _Sink:
    """A file that can only be written to, at its end."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        data, self._bytes = bytes(self._bytes), bytearray()
        return data
