"""The messages of a request as a conversation, each part checked and its media decoded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...models.chat import MAX_TEXT
from ...protocol.conversation import Conversation, Message, Part, Role
from ...protocol.errors import TooLarge
from .errors import refusal
from .media import PARTS, MediaReader

MAX_MEDIA: Final = 256

_SURROGATES = re.compile("[\ud800-\udfff]")

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


def read_messages(bodies: Sequence[Any], media: MediaReader) -> Conversation:
    """The conversation that a request's `messages` are.

    Raises:
        InvalidRequest: names the message or part that is wrong, and what is allowed.
    """
    count = 0
    messages = []
    for i, body in enumerate(bodies):
        messages.append(_message(body, f"messages[{i}]", media))
        count += sum(not isinstance(part, str) for part in messages[-1].parts)
        if count > MAX_MEDIA:
            raise refusal("messages", "hold too many media", f"{MAX_MEDIA} at most")
    if messages[-1].role != "user":
        raise refusal(f"messages[{len(messages) - 1}].role", "is the last one's", "user")
    if sum(len(message.text) for message in messages) > MAX_TEXT:
        words = f"messages have more than {MAX_TEXT} characters of text."
        raise TooLarge(words, field="messages", allowed=f"{MAX_TEXT} characters")
    return Conversation(tuple(messages))


def _message(body: Any, field: str, media: MediaReader) -> Message:
    if not isinstance(body, dict):
        raise refusal(field, "is no object", "an object with `role` and `content`")
    role = body.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise refusal(f"{field}.role", "is no role that is known here", ", ".join(_ROLES))
    _check_no_more(body, ("role", "content", "name"), field)
    content = body.get("content")
    if isinstance(content, str):
        return Message(_ROLES[role], (_text(content, f"{field}.content"),))
    if not isinstance(content, list) or not content:
        raise refusal(f"{field}.content", "is neither", "a text, or a list of parts")
    parts = [
        _part(part, f"{field}.content[{i}]", media, with_media=role == "user")
        for i, part in enumerate(content)
    ]
    return Message(_ROLES[role], tuple(_joined(parts)))


def _part(body: Any, field: str, media: MediaReader, *, with_media: bool) -> Part:
    kind = body.get("type") if isinstance(body, dict) else None
    known = ["text", *(PARTS if with_media else ())]
    if not isinstance(kind, str) or kind not in known:
        raise refusal(f"{field}.type", "is no part that this message can have", ", ".join(known))
    _check_no_more(body, ("type", kind), field)
    if kind != "text":
        return media.read(kind, body.get(kind), f"{field}.{kind}")
    return _text(body.get("text"), f"{field}.text")


def _text(text: Any, field: str) -> str:
    if not isinstance(text, str) or _SURROGATES.search(text):
        raise refusal(field, "is no text", "a text of whole Unicode characters")
    return text


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Texts that follow each other as one."""
    joined: list[Part] = []
    for part in parts:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def _check_no_more(body: Mapping[str, Any], known: tuple[str, ...], field: str) -> None:
    """What an answer of OpenAI's has beside its content is there, and empty, when sent back."""
    for name, value in body.items():
        if name not in known and value not in (None, [], {}):
            raise refusal(f"{field}.{name[:80]}", "is not known here", ", ".join(known))
