"""Film from files, by FFmpeg."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...protocol.conversation import Media
from ...protocol.errors import InvalidRequest, TooLarge
from ...protocol.frames import Tensor
from .budget import Budget
from .library import library

FORMATS: Final = "MP4, MOV, WebM, Matroska, AVI"
MAX_KEPT_FRAMES: Final = 256
MAX_FRAMES: Final = 18_000  # ten minutes at 30 per second

# By demuxer: a playlist, for instance, would have FFmpeg open what it names.
_DEMUXERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"


def decode_video(data: bytes, budget: Budget) -> Media:
    """A film's frames; every second, fourth ... one where all would be too many.

    Returns:
        uint8 `[T, H, W, 3]`, with frames per second.

    Raises:
        TooLarge: it is too long, or the budget has no room for one frame.
        InvalidRequest: it is broken, has no pictures, or is in another format.
    """
    av = library("av", "film")
    try:
        with av.open(BytesIO(data), options={"format_whitelist": _DEMUXERS}) as container:
            if not container.streams.video:
                raise _unreadable("it has no pictures")
            stream = container.streams.video[0]
            frames, stride = _thinned(_pictures(container.decode(stream)), budget)
            rate = float(stream.guessed_rate or 0)
    except av.FFmpegError as error:
        raise _unreadable(error.strerror) from error
    except (LookupError, UnicodeError) as error:  # PyAV, of what it did not expect in a file
        raise _unreadable("its streams make no sense") from error
    if not frames or not rate:
        raise _unreadable("it has no whole picture, or no frame rate")
    return Media("video", Tensor.of(np.stack(frames)), rate / stride)


def _pictures(frames: Iterator[Any]) -> Iterator[npt.NDArray[np.uint8]]:
    """All frames, uint8 `[H, W, 3]`, upright and of the first one's size."""
    first = None
    for frame in frames:
        first = first or frame
        pixels = frame.to_ndarray(format="rgb24", width=first.width, height=first.height)
        yield np.rot90(pixels, first.rotation // 90)


def _thinned(
    frames: Iterator[npt.NDArray[np.uint8]], budget: Budget
) -> tuple[list[npt.NDArray[np.uint8]], int]:
    """As many frames as there is room for, evenly spaced, and the space between them."""
    kept: list[npt.NDArray[np.uint8]] = []
    stride = room = 1
    for i, frame in enumerate(frames):
        if i == MAX_FRAMES:
            raise TooLarge(f"A film may have {MAX_FRAMES} frames.", allowed="a shorter film")
        if i == 0:
            room = min(MAX_KEPT_FRAMES, budget.left_bytes // frame.nbytes)
            budget.take(frame.nbytes)
        if i % stride == 0 and len(kept) == room:
            kept, stride = kept[::2], 2 * stride
        if i % stride == 0:
            kept.append(frame)
    if kept:
        budget.take(sum(frame.nbytes for frame in kept[1:]))
    return kept, stride


def _unreadable(why: str) -> InvalidRequest:
    return InvalidRequest(f"The film cannot be read: {why}.", allowed=FORMATS)
