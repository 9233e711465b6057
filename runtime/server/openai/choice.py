"""One choice of a chat completion: the jobs it is, and how it is streamed."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...orchestrator.orchestrator import Orchestrator
from ...protocol.messages import JobEvent
from ...protocol.pcm import pcm16
from .answer import Answer, Completion, sound_id
from .soundtrack import sound_of
from .stream import EventStream
from .transcript import Transcript
from .work import all_of, follow


@dataclass(frozen=True, slots=True)
class Choice:
    """Keys of a choice's jobs.

    Attributes:
        text: the thinker's.
        sound: the codec's; None: the answer is only written.
    """

    text: str
    sound: str | None = None

    def jobs(self) -> Iterator[str]:
        """Keys of the jobs whose results are the answer."""
        yield self.text
        if self.sound is not None:
            yield self.sound


class WrittenStream:
    """A choice as it is written."""

    def __init__(
        self, stream: EventStream, completion: Completion, index: int, choice: Choice
    ) -> None:
        self.choice = choice
        self._stream = stream
        self._completion = completion
        self._index = index
        self._transcript = Transcript()
        self._role = {"role": "assistant"}

    async def run(self, orchestrator: Orchestrator) -> Answer:
        """Stream the choice to its end.

        Raises:
            OmniStageError: a job failed or was stopped.
        """
        answer = await self._write(orchestrator)
        await self._send({}, answer.finish_reason)
        return answer

    async def _write(self, orchestrator: Orchestrator) -> Answer:
        await follow(orchestrator, self.choice.text, self._on_event)
        answer = Answer.of(orchestrator.output(self.choice.text, "text"))
        await self._say(self._transcript.finish(answer.text))
        return answer

    async def _on_event(self, event: JobEvent) -> None:
        await self._say(self._transcript.take(event))

    async def _say(self, text: str) -> None:
        if text:
            await self._send(self._delta(text))

    def _delta(self, text: str) -> dict[str, Any]:
        return {"content": text}

    async def _send(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> None:
        role, self._role = self._role, {}  # the first chunk says who speaks
        chunk = self._completion.chunk(self._index, {**role, **delta}, finish_reason)
        await self._stream.send(chunk)


class SpokenStream(WrittenStream):
    """A choice as it is written and said; what is written is the sound's transcript."""

    def __init__(
        self, stream: EventStream, completion: Completion, index: int, choice: Choice
    ) -> None:
        super().__init__(stream, completion, index, choice)
        self._id = sound_id()

    async def run(self, orchestrator: Orchestrator) -> Answer:
        """See `WrittenStream.run`."""
        answer, _ = await all_of([self._write(orchestrator), self._speak(orchestrator)])
        assert isinstance(answer, Answer)
        await self._send({}, answer.finish_reason)
        return answer

    async def _speak(self, orchestrator: Orchestrator) -> None:
        assert self.choice.sound is not None
        async for samples in sound_of(orchestrator, self.choice.sound):
            data = base64.b64encode(pcm16(samples)).decode()
            await self._send({"audio": {"id": self._id, "data": data}})

    def _delta(self, text: str) -> dict[str, Any]:
        return {"audio": {"id": self._id, "transcript": text}}


def choice_stream(
    stream: EventStream, completion: Completion, index: int, choice: Choice
) -> WrittenStream:
    """The stream of a choice."""
    kind = WrittenStream if choice.sound is None else SpokenStream
    return kind(stream, completion, index, choice)
