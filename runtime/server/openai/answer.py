"""Replies and chunks in OpenAI's form."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...protocol.frames import Frame


@dataclass(frozen=True, slots=True)
class Answer:
    """What the thinker wrote for one choice.

    Attributes:
        finish_reason: `stop` or `length`.
        cached_tokens: those of the prompt that were known from an earlier one.
        sound: the answer as it is said, the bytes of a file; None: it is only written.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    sound: bytes | None = None

    @classmethod
    def of(cls, frame: Frame) -> Answer:
        """Read the thinker's output `text`."""
        head = frame.header
        return cls(**{name: head[name] for name in cls.__slots__ if name != "sound"})


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply, as a whole or in chunks."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created_s: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The reply to a request that does not stream."""
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "refusal": None, **_said(answer)},
                "finish_reason": answer.finish_reason,
                "logprobs": None,
            }
            for i, answer in enumerate(answers)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": _usage(answers)}

    def chunk(
        self, index: int, delta: Mapping[str, Any], finish_reason: str | None = None
    ) -> dict[str, Any]:
        """A piece of one choice."""
        choice = {
            "index": index,
            "delta": dict(delta),
            "finish_reason": finish_reason,
            "logprobs": None,
        }
        return {**self._head("chat.completion.chunk"), "choices": [choice], "usage": None}

    def usage_chunk(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The chunk that counts tokens."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(answers)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created_s, "model": self.model}


def sound_id() -> str:
    """A name for what is said in one choice."""
    return f"audio_{uuid.uuid4().hex}"


def _said(answer: Answer) -> dict[str, Any]:
    if answer.sound is None:
        return {"content": answer.text}
    audio = {
        "id": sound_id(),
        "data": base64.b64encode(answer.sound).decode(),
        "expires_at": int(time.time()),  # nothing is kept that the id could stand for
        "transcript": answer.text,
    }
    return {"content": None, "audio": audio}


def _usage(answers: Sequence[Answer]) -> dict[str, Any]:
    """Tokens: all choices have one prompt."""
    prompt, completion = answers[0].prompt_tokens, sum(a.completion_tokens for a in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": answers[0].cached_tokens},
    }
