"""The route of chat completions: each choice is one job of the model's thinker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from aiohttp import web

from ...models.stage import Stage
from ...orchestrator.orchestrator import Orchestrator
from ...protocol.conversation import MediaKind
from ...protocol.errors import InvalidRequest
from ...protocol.frames import Frame
from ...protocol.messages import JobEvent
from ...protocol.recipe import Blob, JobSpec, blob_digest
from ..body import read_body
from ..services import SERVICES, Services
from .answer import Answer, Completion
from .budget import Budget
from .errors import as_known, error_body
from .media import MediaReader
from .messages import read_messages
from .request import ChatRequest
from .stream import EventStream
from .transcript import Transcript
from .work import all_of, follow, submitted

_INPUTS: Mapping[MediaKind, str] = {"image": "images", "audio": "audio", "video": "video"}


async def complete(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    services = request.app[SERVICES]
    asked, specs = await _prepared(request, services)
    client = asked.user or request.remote or "openai"
    async with submitted(services, client, specs) as keys:
        if asked.stream:
            return await _streamed(request, asked, services.orchestrator, keys)
        answers = await all_of(_answer(services.orchestrator, key) for key in keys)
    return web.json_response(Completion(asked.model).whole(answers))


async def _prepared(request: web.Request, services: Services) -> tuple[ChatRequest, list[JobSpec]]:
    """The checked request, and the job of each choice; the conversation is in the store."""
    limit_bytes = services.config.max_body_mb << 20
    data = await read_body(request, limit_bytes)
    asked = await asyncio.to_thread(ChatRequest.parse, data)
    thinker = _thinker(asked.model, await services.shelf.stages(asked.model))
    choices = [thinker.check_params(params) for params in asked.thinker_params()]
    reader = MediaReader(_media_kinds(thinker), Budget(limit_bytes))
    digest, frame = await asyncio.to_thread(_history, asked, reader)
    services.orchestrator.put_blob(digest, frame)
    inputs = {"history": Blob(digest)}
    specs = [JobSpec.make(asked.model, thinker.name, params, inputs) for params in choices]
    # The messages can be large, and their place is in the store now, not in a request that waits.
    return asked.model_copy(update={"messages": []}), specs


def _thinker(model: str, stages: Mapping[str, Stage]) -> Stage:
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


async def _answer(orchestrator: Orchestrator, key: str) -> Answer:
    await follow(orchestrator, key)
    return Answer.of(orchestrator.output(key, "text"))


async def _streamed(
    request: web.Request, asked: ChatRequest, orchestrator: Orchestrator, keys: list[str]
) -> web.StreamResponse:
    """Stream all choices."""
    stream = EventStream(request)
    with contextlib.suppress(ConnectionError):  # the reader has gone
        await _send_all(stream, asked, orchestrator, keys)
    return stream.response


async def _send_all(
    stream: EventStream, asked: ChatRequest, orchestrator: Orchestrator, keys: list[str]
) -> None:
    """Send the stream; once it has begun, an error is an event, too."""
    completion = Completion(asked.model)
    try:
        answers = await all_of(
            _ChoiceStream(stream, completion, index).run(orchestrator, key)
            for index, key in enumerate(keys)
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


class _ChoiceStream:
    """One choice of a stream."""

    def __init__(self, stream: EventStream, completion: Completion, index: int) -> None:
        self._stream = stream
        self._completion = completion
        self._index = index
        self._transcript = Transcript()
        self._role = {"role": "assistant"}

    async def run(self, orchestrator: Orchestrator, key: str) -> Answer:
        await follow(orchestrator, key, self._on_event)
        answer = Answer.of(orchestrator.output(key, "text"))
        await self._say(self._transcript.finish(answer.text))
        await self._send(self._role, answer.finish_reason)
        return answer

    async def _on_event(self, event: JobEvent) -> None:
        await self._say(self._transcript.take(event))

    async def _say(self, text: str) -> None:
        if text:
            role, self._role = self._role, {}  # the first chunk says who speaks
            await self._send({**role, "content": text})

    async def _send(self, delta: Mapping[str, str], finish_reason: str | None = None) -> None:
        await self._stream.send(self._completion.chunk(self._index, delta, finish_reason))
