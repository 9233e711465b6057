"""What of a sound is still to be sent, when attempts may begin it anew."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from ...orchestrator.orchestrator import Orchestrator
from ...protocol.errors import EngineLost
from ...protocol.messages import JobEvent
from .sound import Samples


async def sound_of(orchestrator: Orchestrator, key: str) -> AsyncIterator[Samples]:
    """The sound of a codec's job, piece by piece as it is made.

    Raises:
        OmniStageError: the job failed or was stopped.
    """
    track = Soundtrack()
    subscription = orchestrator.subscribe(key)
    try:
        async for event in subscription:
            if event.error is not None:
                raise event.error
            new = track.take(event)
            if len(new):
                yield new
    finally:
        orchestrator.unsubscribe(key, subscription)
    yield track.finish(orchestrator.output(key, "audio").tensors["waveform"].array[0, 0])


class Soundtrack:
    """How much of the sound was sent, which cannot be unsent, and how far the attempt is."""

    def __init__(self) -> None:
        self._sent = 0
        self._at = 0

    def take(self, event: JobEvent) -> Samples:
        """What an event of the job adds to the sound that was sent."""
        if event.kind in ("queued", "running"):
            self._at = 0
        pieces = [part.tensors["waveform"].array[0, 0] for part in event.parts]
        return self._new_of(np.concatenate([np.empty(0, np.float32), *pieces]))

    def finish(self, sound: Samples) -> Samples:
        """What the whole sound adds.

        Raises:
            EngineLost: it is shorter than what was sent.
        """
        if len(sound) < self._sent:
            raise EngineLost(
                "The engine was lost in the middle of this speech, and saying it again gave "
                "another one than was sent so far. Ask again."
            )
        self._at = 0
        return self._new_of(sound)

    def _new_of(self, sound: Samples) -> Samples:
        new = sound[max(0, self._sent - self._at) :]
        self._at += len(sound)
        self._sent = max(self._sent, self._at)
        return new
