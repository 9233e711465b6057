"""Parts of a message that are pictures, sound or film: from a request's JSON to arrays."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from ...protocol.conversation import Media, MediaKind
from ...protocol.errors import InvalidRequest
from . import audio
from .audio import decode_audio
from .budget import Budget
from .errors import refusal
from .image import decode_image
from .video import decode_video

PARTS: Final[Mapping[str, MediaKind]] = {
    "image_url": "image",
    "input_audio": "audio",
    "video_url": "video",
}

_DECODERS: Mapping[MediaKind, Callable[[bytes, Budget], Media]] = {
    "image": decode_image,
    "audio": decode_audio,
    "video": decode_video,
}


class MediaReader:
    """Reads the media of one request.

    Args:
        takes: the kinds that the model takes.
        budget: what they may take up once they are decoded.
    """

    def __init__(self, takes: Collection[MediaKind], budget: Budget) -> None:
        self._takes = takes
        self._budget = budget

    def read(self, part: str, body: Any, field: str) -> Media:
        """Decode one part.

        Args:
            part: its type, one of `PARTS`.
            body: what it holds under the name of its type.
            field: the path to that.

        Raises:
            InvalidRequest: it is wrong, broken or too large, or the model does not take it.
        """
        kind = PARTS[part]
        if kind not in self._takes:
            taken = ", ".join(["text", *(name for name in PARTS if PARTS[name] in self._takes)])
            raise refusal(field, "is of a kind that this model does not take", taken)
        data = _sound_bytes(body, field) if part == "input_audio" else _url_bytes(body, field)
        try:
            return _DECODERS[kind](data, self._budget)
        except InvalidRequest as error:
            error.field = field
            raise


def _url_bytes(body: Any, field: str) -> bytes:
    url = body.get("url") if isinstance(body, dict) else None
    if not isinstance(url, str):
        raise refusal(field, "must be an object with a text `url`", '{"url": "data:..."}')
    head, comma, data = url.partition(",")
    if head[:5].lower() != "data:":
        problem = "is no data: URL, and this runtime fetches nothing from other places"
        raise refusal(f"{field}.url", problem, "data:<type>;base64,<data>")
    if not comma or not head.lower().endswith(";base64"):
        raise refusal(f"{field}.url", "is not in base64", "data:<type>;base64,<data>")
    return _decoded(data, f"{field}.url")


def _sound_bytes(body: Any, field: str) -> bytes:
    if not isinstance(body, dict) or not isinstance(body.get("data"), str):
        raise refusal(field, "must be an object", '{"data": "<base64>", "format": "wav"}')
    if body.get("format") not in audio.FORMATS:
        raise refusal(f"{field}.format", "is refused", ", ".join(audio.FORMATS))
    return _decoded(body["data"], f"{field}.data")


def _decoded(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: not ASCII
        raise refusal(field, f"is not base64 ({error})", "base64 with its padding") from error
