"""Texts to be said by a real runtime: each stage beside the one before it, or after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ..client import RuntimeClient
from ..models.qwen_omni import RATE_HZ
from ..protocol.messages import JobEvent
from ..protocol.recipe import Handle, JobSpec, handle_of

Made = TypeVar("Made")

Codes = npt.NDArray[np.int64]
"""What a talker makes: `[n]`, or `[n, groups]`."""


@dataclass(frozen=True, slots=True)
class Speech:
    """What came of a request.

    Attributes:
        sound: float32 `[T]`.
        first_s: seconds from asking to the first sound that can be played.
        last_s: seconds from asking to the last.
    """

    sound: npt.NDArray[np.float32]
    first_s: float
    last_s: float

    @property
    def length_s(self) -> float:
        """How long it plays."""
        return len(self.sound) / RATE_HZ


class Speeches:
    """Asks a runtime to speak; every sound is made anew.

    Args:
        url: of the runtime.
        model: a model that speaks.
    """

    def __init__(self, url: str, model: str) -> None:
        self._runner = asyncio.Runner()
        self._client = RuntimeClient(url)
        self._model = model
        self._owners = count()

    def __enter__(self) -> Self:
        """The client; its connections end with the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connections."""
        self._runner.run(self._client.close())
        self._runner.close()

    def together(self, texts: Sequence[str], **codec: Any) -> list[Speech]:
        """Ask all at once; `codec` are parameters of the codec."""

        async def ask(owner: str) -> list[Speech]:
            return list(await asyncio.gather(*(self._ask(owner, text, codec) for text in texts)))

        return self._run(ask)

    def one_by_one(self, texts: Sequence[str], **codec: Any) -> list[Speech]:
        """Ask each when the one before it has been said."""

        async def ask(owner: str) -> list[Speech]:
            return [await self._ask(owner, text, codec) for text in texts]

        return self._run(ask)

    def stage_by_stage(self, texts: Sequence[str]) -> list[Speech]:
        """Ask for all at once, but for a stage only when the one before it has ended."""

        async def ask(owner: str) -> list[Speech]:
            return list(await asyncio.gather(*(self._in_turn(owner, text) for text in texts)))

        return self._run(ask)

    def codes(self, texts: Sequence[str], *, together: bool) -> list[Codes]:
        """Have the talker make the codes of texts, and no sound: at once, or one by one."""

        async def ask(owner: str) -> list[Codes]:
            if together:
                return list(await asyncio.gather(*(self._codes(owner, text) for text in texts)))
            return [await self._codes(owner, text) for text in texts]

        return self._run(ask)

    def _run(self, ask: Callable[[str], Awaitable[list[Made]]]) -> list[Made]:
        owner = f"bench-{next(self._owners)}"

        async def asked() -> list[Made]:
            made = await ask(owner)
            await self._client.release(owner)
            return made

        return self._runner.run(asked())

    async def _codes(self, owner: str, text: str) -> Codes:
        _, codes, _ = self._handles(owner, text, {})
        frame = await self._client.run(codes, owner=owner, client="bench", previews=False)
        return frame.tensors["codes"].array

    async def _ask(self, owner: str, text: str, codec: dict[str, Any]) -> Speech:
        *_, sound = self._handles(owner, text, codec)
        heard_s: list[float] = []

        def listen(event: JobEvent) -> None:
            if event.kind == "part":
                heard_s.append(perf_counter() - start_s)

        start_s = perf_counter()
        frame = await self._client.run(
            sound, owner=owner, client="bench", on_event=listen, previews=False
        )
        last_s = perf_counter() - start_s
        wave = frame.tensors["waveform"].array[0, 0]
        return Speech(wave, heard_s[0] if heard_s else last_s, last_s)

    async def _in_turn(self, owner: str, text: str) -> Speech:
        start_s = perf_counter()
        for handle in self._handles(owner, text, {"whole": True}):
            frame = await self._client.run(handle, owner=owner, client="bench", previews=False)
        last_s = perf_counter() - start_s
        return Speech(frame.tensors["waveform"].array[0, 0], last_s, last_s)

    def _handles(self, owner: str, text: str, codec: dict[str, Any]) -> tuple[Handle, ...]:
        """Thinker, talker and codec of a text; greedy, so that a seed only makes them new."""
        seed = int(owner.rpartition("-")[2])
        thinker = {"prompt": text, "answer": text, "seed": seed}
        written = handle_of(JobSpec.make(self._model, "thinker", thinker, {}), "text")
        hidden = Handle(written.recipe, written.job, "hidden")
        talker = {"temperature": 0.0, "repetition_penalty": 1.0, "max_seconds": 20.0}
        made = JobSpec.make(self._model, "talker", talker, {"hidden": hidden.ref})
        codes = handle_of(made, "codes", [hidden])
        spec = JobSpec.make(self._model, "codec_decode", codec, {"codes": codes.ref})
        return written, codes, handle_of(spec, "audio", [codes])
