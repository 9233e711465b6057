"""What the engine keeps of a task while vLLM has its sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm import PoolingParams, SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from ...models.ar_stage import ARRequest, ARResult, Layer
from ...protocol.frames import Frame
from ..core import StageTask
from .rows import KEY, LAYERS, Conditioning, conditioning_rows, hidden_rows


@dataclass(slots=True)
class Sequence:
    """One sequence of a task.

    Attributes:
        conditioning: its rows, where it has any.
        admitted: whether vLLM has it; a conditioned one waits for its prompt's rows before.
        prompt: its tokens, as vLLM expanded them.
    """

    name: str
    job: Job
    index: int
    request: ARRequest
    conditioning: Conditioning | None = None
    admitted: bool = False
    prompt: tuple[int, ...] = ()
    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    _told_tokens: int = 0
    _told_rows: int = 0
    _told_frames: int = 0

    @classmethod
    def of(cls, job: Job, index: int, request: ARRequest) -> Sequence:
        """A sequence that vLLM does not have yet."""
        name = f"{job.task.id}/{index}"
        conditioning = None
        if request.rows is not None:
            conditioning = conditioning_rows.open(name)
            conditioning.positions = request.positions
        return cls(name, job, index, request, conditioning)

    def feed(self, part: Frame | None) -> None:
        """Take the next part of the input that it follows; None: that was all."""
        source = self.request.rows
        assert source is not None
        assert self.conditioning is not None
        rows = source.end() if part is None else source.push(part)
        self.conditioning.push(rows, final=part is None)

    @property
    def ready(self) -> bool:
        """Whether all rows of its prompt are there."""
        if self.conditioning is None:
            return True
        return self.conditioning.ready(len(self.request.prompt["prompt_token_ids"]) - 1)

    @property
    def computed(self) -> int:
        """Tokens that were an input of the model."""
        return len(self.prompt) + len(self.tokens) - 1

    def params(self) -> SamplingParams | PoolingParams:
        """How vLLM is to run it."""
        request = self.request
        if request.sampling is None:
            return PoolingParams(task="token_embed", use_activation=False)
        sampling: dict[str, Any] = dict(request.sampling)
        schema = sampling.pop("json_schema", "")
        if schema:
            sampling["structured_outputs"] = StructuredOutputsParams(json=schema)
        if request.hidden_layers or request.rows is not None:
            # A hit in the prefix cache would leave the rows of its tokens uncomputed.
            keys = {KEY: self.name, LAYERS: request.hidden_layers}
            sampling |= {"extra_args": keys, "skip_reading_prefix_cache": True}
        return SamplingParams(output_kind=RequestOutputKind.DELTA, **sampling)

    def news(self, *, last: bool) -> Iterator[ARResult]:
        """What has come since the last time; the prompt's rows first and alone."""
        layers, computed = self.request.hidden_layers, self.computed
        if layers and self._told_rows == 0:
            self._told_rows = len(self.prompt)
            yield ARResult(prompt_ids=self.prompt, hidden=self._rows(0, self._told_rows))
        if last or computed > self._told_rows:
            told, self._told_tokens = self._told_tokens, len(self.tokens)
            start, self._told_rows = self._told_rows, computed
            hidden = self._rows(start, computed) if layers else {}
            first, self._told_frames = self._told_frames, len(self._frames)
            frames = self._frames[first:]
            yield ARResult(token_ids=tuple(self.tokens[told:]), frames=frames, hidden=hidden)

    def result(self, output: Any, reason: str | None) -> ARResult:
        """What became of it, from vLLM's last output.

        Raises:
            ValueError: see `HiddenRows.between`.
        """
        return ARResult(
            text="".join(self.text),
            token_ids=tuple(self.tokens),
            prompt_ids=self.prompt,
            finish_reason=reason,
            cached_tokens=output.num_cached_tokens or 0,
            pooled=None if self.request.sampling is not None else output.outputs.data,
            frames=self._frames,
            hidden=self._rows(0, self.computed) if self.request.hidden_layers else {},
        )

    def close(self) -> None:
        """Free its rows."""
        hidden_rows.drop(self.name)
        conditioning_rows.drop(self.name)

    @property
    def _frames(self) -> list[torch.Tensor]:
        return [] if self.conditioning is None else self.conditioning.frames

    def _rows(self, start: int, end: int) -> dict[Layer, torch.Tensor]:
        rows = hidden_rows.between(self.name, start, end)
        return {layer: rows[layer] for layer in self.request.hidden_layers}


@dataclass(slots=True)
class Job:
    """A task that has begun.

    Attributes:
        open: its sequences that have not ended, by name.
    """

    task: StageTask
    open: dict[str, Sequence] = field(default_factory=dict)
    results: dict[int, ARResult] = field(default_factory=dict)
    unsent: list[str] = field(default_factory=list)
    due_s: float = 0.0

    @property
    def admitted(self) -> list[str]:
        """Those of its sequences that vLLM has."""
        return [name for name, sequence in self.open.items() if sequence.admitted]

    def close(self) -> None:
        """Free what is left of it."""
        for sequence in self.open.values():
            sequence.close()
