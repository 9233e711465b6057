"""The route of chat completions: each choice is one job of the model's thinker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace

from aiohttp import web

from ...models.qwen_omni import RATE_HZ
from ...models.stage import Stage
from ...orchestrator.orchestrator import Orchestrator
from ...protocol.conversation import MediaKind
from ...protocol.errors import InvalidRequest
from ...protocol.frames import Frame
from ...protocol.recipe import Blob, JobSpec, blob_digest
from ..body import read_body
from ..services import SERVICES, Services
from .answer import Answer, Completion
from .budget import Budget
from .choice import Choice, choice_stream
from .errors import as_known, error_body
from .media import MediaReader
from .messages import read_messages
from .request import ChatRequest
from .sound import SoundFile
from .stream import EventStream
from .voice import spoken
from .work import all_of, follow, submitted

_INPUTS: Mapping[MediaKind, str] = {"image": "images", "audio": "audio", "video": "video"}


async def complete(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    services = request.app[SERVICES]
    asked, specs = await _prepared(request, services)
    client = asked.user or request.remote or "openai"
    async with submitted(services, client, specs) as keys:
        choices = _choices(asked, keys)
        if asked.stream:
            return await _streamed(request, asked, services.orchestrator, choices)
        orchestrator = services.orchestrator
        answers = await all_of(_answer(orchestrator, asked, choice) for choice in choices)
    return web.json_response(Completion(asked.model).whole(answers))


async def _prepared(request: web.Request, services: Services) -> tuple[ChatRequest, list[JobSpec]]:
    """The checked request, and the jobs of each choice; the conversation is in the store."""
    limit_bytes = services.config.max_body_mb << 20
    data = await read_body(request, limit_bytes)
    asked = await asyncio.to_thread(ChatRequest.parse, data)
    stages = await services.shelf.stages(asked.model)
    thinker = thinker_of(asked.model, stages)
    choices = [thinker.check_params(params) for params in asked.thinker_params()]
    reader = MediaReader(_media_kinds(thinker), Budget(limit_bytes))
    digest, frame = await asyncio.to_thread(_history, asked, reader)
    services.orchestrator.put_blob(digest, frame)
    inputs = {"history": Blob(digest)}
    specs = [JobSpec.make(asked.model, thinker.name, params, inputs) for params in choices]
    if asked.audio is not None:
        voice = asked.audio.voice
        specs = [job for spec in specs for job in (spec, *spoken(spec, stages, voice))]
    # The messages can be large, and their place is in the store now, not in a request that waits.
    return asked.model_copy(update={"messages": []}), specs


def _choices(asked: ChatRequest, keys: list[str]) -> list[Choice]:
    """The jobs of each choice, given the keys of all."""
    if asked.audio is None:
        return [Choice(key) for key in keys]
    return [Choice(keys[i], keys[i + 2]) for i in range(0, len(keys), 3)]


def thinker_of(model: str, stages: Mapping[str, Stage]) -> Stage:
    """The stage of a model that answers.

    Raises:
        InvalidRequest: the model has none.
    """
    if "thinker" not in stages:
        raise InvalidRequest(
            f"Model {model!r} does not chat: it has no stage thinker, only {', '.join(stages)}.",
            field="model",
            value=model,
        )
    return stages["thinker"]


def _media_kinds(thinker: Stage) -> frozenset[MediaKind]:
    """The kinds of media that it takes."""
    taken = thinker.inputs.values()
    return frozenset(kind for kind, name in _INPUTS.items() if name in taken)


def _history(asked: ChatRequest, reader: MediaReader) -> tuple[str, Frame]:
    """The whole conversation as an upload, with its digest."""
    frame = read_messages(asked.messages, reader).to_frame()
    return blob_digest(frame.encode()), frame


async def _answer(orchestrator: Orchestrator, asked: ChatRequest, choice: Choice) -> Answer:
    await all_of(follow(orchestrator, key) for key in choice.jobs())
    answer = Answer.of(orchestrator.output(choice.text, "text"))
    if choice.sound is None or asked.audio is None:
        return answer
    sound = orchestrator.output(choice.sound, "audio").tensors["waveform"].array[0, 0]
    file = SoundFile(asked.audio.format.removesuffix("16"), RATE_HZ)
    return replace(answer, sound=file.write(sound) + file.end())


async def _streamed(
    request: web.Request, asked: ChatRequest, orchestrator: Orchestrator, choices: list[Choice]
) -> web.StreamResponse:
    """Stream all choices."""
    stream = EventStream(request)
    with contextlib.suppress(ConnectionError):  # the reader has gone
        await _send_all(stream, asked, orchestrator, choices)
    return stream.response


async def _send_all(
    stream: EventStream, asked: ChatRequest, orchestrator: Orchestrator, choices: list[Choice]
) -> None:
    """Send the stream; once it has begun, an error is an event, too."""
    completion = Completion(asked.model)
    try:
        answers = await all_of(
            choice_stream(stream, completion, index, choice).run(orchestrator)
            for index, choice in enumerate(choices)
        )
        if asked.include_usage:
            await stream.send(completion.usage_chunk(answers))
        await stream.end()
    except ConnectionError:
        raise
    except Exception as error:
        if not stream.response.prepared:
            raise
        await stream.send(error_body(as_known(error)))
