"""What a page is sent of a sound while it is made; `web/play.js` plays it.

Pure: news of a job in, messages out. A message is a piece of the sound, in order: `number` counts
them, and 0 has the page begin anew; `pcm` is base64 of 16-bit little-endian samples, one channel,
`rate` of them a second; after the message with `last` nothing follows. `run` adds whose it is:
`prompt_id` and `node`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..runtime.protocol.frames import Frame
from ..runtime.protocol.messages import JobEvent
from . import media
from .display import News

EVENT = "omnistage.sound"
"""The messages' name on ComfyUI's WebSocket."""

_PIECE_S = 5
"""A sound that is there at once is sent in pieces of this length."""


class Playback:
    """Follows one sound."""

    def __init__(self) -> None:
        self._job = ""
        self._begin_anew()

    def after(self, news: Iterable[News]) -> Iterator[dict[str, Any]]:
        """The messages to send after the latest news."""
        for item in news:
            if isinstance(item, JobEvent):
                yield from self._of_event(item)
            elif isinstance(item, Frame) and item.header["kind"] == "audio":
                yield from self._rest(item)

    def _begin_anew(self) -> None:
        self._number = 0
        self._samples = 0

    def _of_event(self, event: JobEvent) -> Iterator[dict[str, Any]]:
        sounds = [part for part in event.parts if part.header["kind"] == "audio"]
        if sounds:
            self._job = event.key
        elif event.kind in ("queued", "running") and event.key == self._job:
            self._begin_anew()  # another attempt makes it again
        for sound in sounds:
            yield from self._pieces(sound.tensors["waveform"].array, sound.header["rate"])

    def _rest(self, whole: Frame) -> Iterator[dict[str, Any]]:
        """What was not sent in parts: all of it, if the job was done before anyone listened."""
        rest = whole.tensors["waveform"].array[..., self._samples :]
        yield from self._pieces(rest, whole.header["rate"])
        yield self._message(b"", whole.header["rate"], last=True)

    def _pieces(self, waveform: np.ndarray[Any, Any], rate: int) -> Iterator[dict[str, Any]]:
        pcm = media.pcm16(waveform)
        self._samples += waveform.shape[-1]
        size = 2 * _PIECE_S * rate
        for start in range(0, len(pcm), size):
            yield self._message(pcm[start : start + size], rate, last=False)

    def _message(self, pcm: bytes, rate: int, *, last: bool) -> dict[str, Any]:
        number, self._number = self._number, self._number + 1
        text = base64.b64encode(pcm).decode()
        return {"number": number, "rate": rate, "pcm": text, "last": last}
