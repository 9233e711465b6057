"""The route of speech: a text said as it is, while it is still being said."""

from __future__ import annotations

import base64
import contextlib
from typing import Final, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...models.qwen_omni import RATE_HZ
from ...orchestrator.orchestrator import Orchestrator
from ...protocol.errors import DependencyFailed
from ...protocol.recipe import JobSpec
from ..body import read_body
from ..services import SERVICES, Services
from .chat import thinker_of
from .errors import SPEECH_FIELDS, as_known, error_body
from .request import json_object, refused
from .sound import SoundFile
from .soundtrack import sound_of
from .stream import EventStream
from .voice import spoken
from .work import cause_of, submitted

_MAX_BODY_BYTES: Final = 1 << 20


class SpeechRequest(BaseModel):
    """The fields of `POST /v1/audio/speech`; `instructions` become the system prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    model: str = Field(max_length=1000)
    input: str = Field(min_length=1, max_length=20_000)
    voice: str = Field("default", max_length=200)
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    stream_format: Literal["audio", "sse"] = "audio"
    speed: Literal[1] = 1
    instructions: str = Field("", max_length=20_000)

    @classmethod
    def parse(cls, data: bytes) -> SpeechRequest:
        """Read a request's body.

        Raises:
            ProtocolError: it is no JSON object.
            InvalidRequest: names the first field that is wrong.
        """
        given = {name: value for name, value in json_object(data).items() if value is not None}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise refused(error) from error


async def speak(request: web.Request) -> web.StreamResponse:
    """POST /v1/audio/speech."""
    services = request.app[SERVICES]
    asked = SpeechRequest.parse(await read_body(request, _MAX_BODY_BYTES))
    specs = await _specs(asked, services)
    async with submitted(services, request.remote or "openai", specs) as keys:
        answer = _as_events if asked.stream_format == "sse" else _as_file
        try:
            return await answer(request, asked, services.orchestrator, keys)
        except DependencyFailed as error:
            raise cause_of(services.orchestrator, keys, error) from error


async def _specs(asked: SpeechRequest, services: Services) -> list[JobSpec]:
    """Thinker, which reads the text instead of writing one, talker and codec."""
    stages = await services.shelf.stages(asked.model)
    thinker = thinker_of(asked.model, stages)
    params = {"prompt": asked.input, "answer": asked.input, "system": asked.instructions}
    answer = JobSpec.make(asked.model, thinker.name, thinker.check_params(params), {})
    return [answer, *spoken(answer, stages, asked.voice)]


async def _as_file(
    request: web.Request, asked: SpeechRequest, orchestrator: Orchestrator, keys: list[str]
) -> web.StreamResponse:
    """A response that begins with its first bytes: until then an error can have a status."""
    file = SoundFile(asked.response_format, RATE_HZ)
    response = web.StreamResponse(headers={"Content-Type": file.format.media_type})

    async def send(data: bytes) -> None:
        if data:
            if not response.prepared:
                await response.prepare(request)
            await response.write(data)

    with contextlib.suppress(ConnectionError):  # the reader has gone
        try:
            async for samples in sound_of(orchestrator, keys[-1]):
                await send(file.write(samples))
            await send(file.end())
        except ConnectionError:
            raise
        except Exception as error:
            if not response.prepared:
                raise
            as_known(error)
            if request.transport is not None:
                request.transport.abort()  # a file that just ended would pass for a whole one
    if not response.prepared:
        await response.prepare(request)
    return response


async def _as_events(
    request: web.Request, asked: SpeechRequest, orchestrator: Orchestrator, keys: list[str]
) -> web.StreamResponse:
    file = SoundFile(asked.response_format, RATE_HZ)
    stream = EventStream(request)

    async def send(data: bytes) -> None:
        if data:
            audio = base64.b64encode(data).decode()
            await stream.send({"type": "speech.audio.delta", "audio": audio})

    with contextlib.suppress(ConnectionError):
        try:
            async for samples in sound_of(orchestrator, keys[-1]):
                await send(file.write(samples))
            await send(file.end())
            usage = _usage(orchestrator, keys)
            await stream.send({"type": "speech.audio.done", "usage": usage})
        except ConnectionError:
            raise
        except Exception as error:
            if not stream.response.prepared:
                raise
            await stream.send(error_body(as_known(error), SPEECH_FIELDS))
    return stream.response


def _usage(orchestrator: Orchestrator, keys: list[str]) -> dict[str, int]:
    """Tokens of text that went in, and of sound that came out."""
    text, codes = orchestrator.output(keys[0], "text"), orchestrator.output(keys[1], "codes")
    tokens = {
        "input_tokens": int(text.header["prompt_tokens"]),
        "output_tokens": len(codes.tensors["codes"].array),
    }
    return {**tokens, "total_tokens": sum(tokens.values())}
