"""A conversation so far, as it travels in a frame of kind `chat`.

The header holds the messages; pictures, sound and film are tensors that the parts name:

    {"kind": "chat", "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "tensor": "0"}]}]}

Layouts: image uint8 `[H, W, 3]`; audio float32 `[T]`, one channel, with `rate` in Hz;
video uint8 `[T, H, W, 3]`, with `fps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import numpy as np

from .errors import InvalidRequest
from .frames import Frame, Tensor

Role = Literal["system", "user", "assistant"]
MediaKind = Literal["image", "audio", "video"]

ROLES: Final = ("system", "user", "assistant")
MAX_MESSAGES: Final = 1000

_LAYOUTS: Final[Mapping[str, tuple[str, int, str]]] = {
    "image": ("U8", 3, "uint8 [H, W, 3]"),
    "audio": ("F32", 1, "float32 [T]"),
    "video": ("U8", 4, "uint8 [T, H, W, 3]"),
}
_RATES: Final[Mapping[str, str]] = {"audio": "rate", "video": "fps"}


@dataclass(frozen=True, slots=True)
class Media:
    """A picture, a sound or a film.

    Attributes:
        rate: samples (audio) or frames (video) per second; 0 for an image.
    """

    kind: MediaKind
    tensor: Tensor
    rate: float = 0.0


Part = str | Media


@dataclass(frozen=True, slots=True)
class Message:
    """What one side said."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Its words without the media."""
        return "".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, oldest first."""

    messages: tuple[Message, ...] = ()

    def then(self, *messages: Message) -> Conversation:
        """The conversation with more messages at its end."""
        return Conversation((*self.messages, *messages))

    def media(self) -> Iterator[Media]:
        """All media, in order."""
        for message in self.messages:
            yield from (part for part in message.parts if isinstance(part, Media))

    def to_frame(self) -> Frame:
        """Wire form."""
        tensors: dict[str, Tensor] = {}
        messages = [
            {"role": m.role, "content": [_part_to_json(part, tensors) for part in m.parts]}
            for m in self.messages
        ]
        return Frame({"kind": "chat", "messages": messages}, tensors)

    @classmethod
    def from_frame(cls, frame: Frame, field: str = "history") -> Conversation:
        """Read the wire form.

        Raises:
            InvalidRequest: names the message and part that is wrong, and what is allowed.
        """
        messages = frame.header.get("messages")
        if not isinstance(messages, list) or len(messages) > MAX_MESSAGES:
            raise InvalidRequest(
                f"{field} must be a list of at most {MAX_MESSAGES} messages.",
                field=field,
                allowed=f"a list of at most {MAX_MESSAGES} messages",
            )
        return cls(tuple(_message(body, frame, f"{field}[{i}]") for i, body in enumerate(messages)))


def check_role(role: Any, field: str) -> Role:
    """`role`, if it is one.

    Raises:
        InvalidRequest: it is none.
    """
    if role not in ROLES:
        raise InvalidRequest(
            f"{field} = {role!r} is no role. Allowed: {', '.join(ROLES)}.",
            field=field,
            value=role,
            allowed=", ".join(ROLES),
        )
    return cast(Role, role)


def _part_to_json(part: Part, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    name = str(len(tensors))
    tensors[name] = part.tensor
    body: dict[str, Any] = {"type": part.kind, "tensor": name}
    if part.kind in _RATES:
        body[_RATES[part.kind]] = part.rate
    return body


def _message(body: Any, frame: Frame, field: str) -> Message:
    if not isinstance(body, dict) or not isinstance(body.get("content"), list):
        raise InvalidRequest(
            f"{field} must be an object with `role` and a list `content`.",
            field=field,
            allowed='{"role": ..., "content": [...]}',
        )
    parts = [_part(part, frame, f"{field}.content[{i}]") for i, part in enumerate(body["content"])]
    return Message(check_role(body.get("role"), f"{field}.role"), tuple(parts))


def _part(body: Any, frame: Frame, field: str) -> Part:
    kind = body.get("type") if isinstance(body, dict) else None
    if kind == "text" and isinstance(body.get("text"), str):
        return cast(str, body["text"])
    if isinstance(kind, str) and kind in _LAYOUTS:
        return _media(body, kind, frame, field)
    raise InvalidRequest(
        f"{field} is no part of a message.",
        field=field,
        value=kind,
        allowed="text, image, audio, video",
    )


def _media(body: Mapping[str, Any], kind: str, frame: Frame, field: str) -> Media:
    tag, ndim, layout = _LAYOUTS[kind]
    tensor = frame.tensors.get(str(body.get("tensor")))
    if (
        tensor is None
        or tensor.tag != tag
        or tensor.array.ndim != ndim
        or 0 in tensor.array.shape
        or (kind != "audio" and tensor.array.shape[-1] != 3)
    ):
        raise InvalidRequest(f"{field} needs a tensor {layout}.", field=field, allowed=layout)
    rate = body.get(_RATES.get(kind, ""), 0)
    if kind in _RATES and not (
        isinstance(rate, int | float) and np.isfinite(rate) and 0 < rate <= 1e6
    ):
        raise InvalidRequest(
            f"{field}.{_RATES[kind]} = {rate!r} is refused.",
            field=f"{field}.{_RATES[kind]}",
            value=repr(rate),
            allowed="more than 0, at most 1000000",
        )
    return Media(cast(MediaKind, kind), tensor, float(rate))
