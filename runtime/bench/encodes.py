"""Prompts encoded by an engine core in a process of its own, or by diffusers' own pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self

import torch

from ..engine.core import EngineEvent, StageTask
from ..executor.core_spec import CoreSpec
from ..executor.process import ProcessExecutor
from ..models.catalogue import ModelEntry
from ..models.wire import to_bundle
from ..protocol.frames import Frame

STAGE = "text_encode"
_HOST = torch.device("cpu")


class HostedCore:
    """An engine core in a process of its own, with no server around it."""

    def __init__(self, spec: CoreSpec) -> None:
        self._executor = ProcessExecutor(spec)
        self._runner = asyncio.Runner()
        self._open: set[str] = set()
        self._outputs: dict[str, Mapping[str, Frame]] = {}

    def __enter__(self) -> Self:
        """Start the process; it ends with the block."""
        self._runner.run(self._executor.start(self))
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._runner.run(self._executor.stop())
        self._runner.close()

    def run(self, tasks: Sequence[StageTask]) -> list[Mapping[str, Frame]]:
        """Run tasks together; returns each one's outputs.

        Raises:
            OmniStageError: a task failed.
            RuntimeError: the process ended.
        """
        return self._runner.run(self._run(tasks))

    async def _run(self, tasks: Sequence[StageTask]) -> list[Mapping[str, Frame]]:
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = {task.id for task in tasks}
        for task in tasks:
            self._executor.submit(task)
        await self._ended
        return [self._outputs.pop(task.id) for task in tasks]

    def on_event(self, event: EngineEvent) -> None:
        """See `ExecutorListener.on_event`."""
        if event.kind == "done":
            self._outputs[event.task] = event.outputs
            self._open.remove(event.task)
            if not self._open:
                self._ended.set_result(None)
        elif event.error is not None:
            self._end_with(event.error)

    def on_lost(self, engine: str, reason: str, *, was_ready: bool) -> None:
        """See `ExecutorListener.on_lost`."""
        self._end_with(RuntimeError(f"engine {engine} is lost: {reason}"))

    def _end_with(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


class CoreEncodes:
    """Encodes prompts by a core's text encode stage."""

    def __init__(self, core: HostedCore, entry: ModelEntry) -> None:
        self._core = core
        self._entry = entry

    def together(self, prompts: Sequence[str]) -> list[torch.Tensor]:
        """Embeddings `[1, L, C]` of each prompt; all are submitted at once."""
        check = self._entry.graph[STAGE].check_params
        tasks = [
            StageTask(str(i), self._entry.id, STAGE, check({"prompt": p, "negative_prompt": ""}))
            for i, p in enumerate(prompts)
        ]
        outputs = self._core.run(tasks)
        return [to_bundle(o["conditioning"], _HOST).tensors["prompt_embeds"] for o in outputs]


class DiffusersEncodes:
    """diffusers' own `QwenImagePipeline.encode_prompt` over the same checkpoint: the reference."""

    def __init__(self, entry: ModelEntry) -> None:
        from diffusers import QwenImagePipeline

        self._pipeline = QwenImagePipeline.from_pretrained(
            entry.checkpoint.folder, transformer=None, vae=None, scheduler=None
        )

    @torch.inference_mode()
    def one_by_one(self, prompts: Sequence[str]) -> list[torch.Tensor]:
        """Embeddings `[1, L, C]` of each prompt, one call a prompt."""
        return [self._pipeline.encode_prompt(prompt)[0] for prompt in prompts]


def embeds_difference(
    ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]
) -> tuple[float, float]:
    """Largest difference between embeddings, and the largest value of the reference's."""
    diff = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    return diff, max(float(b.abs().max()) for b in theirs)
