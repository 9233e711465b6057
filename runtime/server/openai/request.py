"""A chat completion request, checked; what this runtime does not do is refused by name."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ...protocol.conversation import MAX_MESSAGES
from ...protocol.errors import InvalidRequest, ProtocolError
from .errors import refusal

MAX_CHOICES: Final = 8

_SEEDS: Final = 2**63
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_IGNORED: Final = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
    }
)
_ONLY: Final[Mapping[str, tuple[Any, ...]]] = {
    "chat_template_kwargs": ({},),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "prediction": (),
    "presence_penalty": (0,),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}
"""Fields of OpenAI's that this runtime does nothing with, and the values that ask for nothing."""


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class StreamOptions(_Checked):
    """How to stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchema(_Checked):
    """A schema with its name, which nothing depends on."""

    name: str = ""
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(_Checked):
    """What form the answer must have."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_where_it_belongs(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("`json_schema` goes with type json_schema, and with no other")
        return self

    def schema_text(self) -> str:
        """The schema as the thinker takes it; empty: free text."""
        if self.json_schema is not None:
            return json.dumps(self.json_schema.schema_)
        return '{"type": "object"}' if self.type == "json_object" else ""


class SpokenAnswer(_Checked):
    """How an answer is to be said."""

    voice: str = Field(max_length=200)
    format: Literal["wav", "aac", "mp3", "flac", "opus", "pcm16"]


class ChatRequest(_Checked):
    """The fields of `POST /v1/chat/completions` that mean something here.

    `messages` are checked where they are read, see `messages`; ranges of numbers by the model's
    own stage. What is left out, or null, is as the model has it by default. `audio` says how the
    answer is to be said; without the modality it is only written.
    """

    model: str = Field(max_length=1000)
    messages: list[Any] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = Field(None, ge=-_SEEDS, lt=_SEEDS)
    stop: list[str] | None = None
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    modalities: list[Literal["text", "audio"]] | None = Field(None, min_length=1)
    audio: SpokenAnswer | None = Field(None, validate_default=True)
    user: str | None = Field(None, max_length=200)

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else stop

    @field_validator("top_k")
    @classmethod
    def _minus_one_is_all(cls, top_k: int | None) -> int | None:
        return 0 if top_k == -1 else top_k

    @field_validator("max_completion_tokens")
    @classmethod
    def _one_limit(cls, limit: int | None, info: ValidationInfo) -> int | None:
        if limit is not None and info.data.get("max_tokens") not in (None, limit):
            raise ValueError("max_tokens says something else")
        return limit

    @field_validator("stream_options")
    @classmethod
    def _only_when_streaming(
        cls, options: StreamOptions | None, info: ValidationInfo
    ) -> StreamOptions | None:
        if options is not None and not info.data.get("stream"):
            raise ValueError("it goes with stream = true only")
        return options

    @field_validator("audio")
    @classmethod
    def _as_the_modalities_say(
        cls, audio: SpokenAnswer | None, info: ValidationInfo
    ) -> SpokenAnswer | None:
        if "audio" not in (info.data.get("modalities") or ()):
            return None
        if audio is None:
            raise ValueError("the modality audio needs it, with voice and format")
        if info.data.get("stream") and audio.format != "pcm16":
            raise ValueError("its format must be pcm16 in a stream")
        return audio

    @classmethod
    def parse(cls, data: bytes) -> ChatRequest:
        """Read a request's body.

        Raises:
            ProtocolError: it is no JSON object.
            InvalidRequest: names the first field that is wrong, by its path.
        """
        given = _without_what_asks_for_nothing(json_object(data))
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise refused(error) from error

    @property
    def include_usage(self) -> bool:
        """Whether a stream is to end with a chunk that counts tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def thinker_params(self) -> list[dict[str, Any]]:
        """The parameters of each choice's job; they differ in their seeds."""
        params: dict[str, Any] = {
            name: value for name in _SAMPLING if (value := getattr(self, name)) is not None
        }
        limits = [n for n in (self.max_tokens, self.max_completion_tokens) if n is not None]
        if limits:
            params["max_tokens"] = limits[0]
        if self.stop is not None:
            params["stop"] = self.stop
        if self.response_format is not None:
            params["json_schema"] = self.response_format.schema_text()
        first = self._first_seed()
        return [{**params, "seed": (first + i) % _SEEDS} for i in range(self.n or 1)]

    def _first_seed(self) -> int:
        """The given seed, or one that nobody shares: equal jobs have one result."""
        if self.seed is not None:
            return self.seed
        return 0 if self.temperature == 0 else secrets.randbelow(_SEEDS)


def _without_what_asks_for_nothing(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields to be checked.

    Raises:
        InvalidRequest: one asks for what this runtime does not do.
    """
    kept = {}
    for name, value in body.items():
        if name in ChatRequest.model_fields:
            kept[name] = value
        elif value is not None and name not in _IGNORED:
            _check_asks_for_nothing(name, value)
    return kept


def _check_asks_for_nothing(name: str, value: Any) -> None:
    if name not in _ONLY:
        raise InvalidRequest(f"This runtime knows no field {name[:80]!r}.", field=name[:80])
    if value not in _ONLY[name]:
        allowed = " or ".join(["nothing", *(json.dumps(only) for only in _ONLY[name])])
        raise refusal(name, "asks for what this runtime does not do", allowed)


def json_object(data: bytes) -> dict[str, Any]:
    """A request's body.

    Raises:
        ProtocolError: it is no JSON object.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"The body is not JSON: {error}", field="body") from error
    if not isinstance(body, dict):
        raise ProtocolError("The body must be a JSON object.", field="body")
    return body


def refused(error: ValidationError) -> InvalidRequest:
    """The first field that is wrong, by its path."""
    first = error.errors()[0]
    path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])[1:]
    words = first["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{path or 'The request'}: {words}.", field=path or None)
