"""What a family tells the AR core about one of its stages.

Plain data in and out: prompts as vLLM takes them, results as vLLM gives them. A stage's
object lives in that stage's engine process and may hold a tokenizer or processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ..protocol.frames import Frame


@dataclass(frozen=True, slots=True)
class ARRequest:
    """One sequence for vLLM; a task may need several.

    Attributes:
        prompt: a vLLM prompt, e.g. `{"prompt_token_ids": [...], "multi_modal_data": {...}}`.
        sampling: arguments of vLLM's `SamplingParams`; None: a pooling request, which returns
            hidden states of the prompt and generates nothing.
        hidden_layers: layers whose hidden states are wanted for every token (0: embeddings,
            -1: the last layer after the final norm); generation only.
        streamed: whether its text goes out as it is written.
    """

    prompt: Mapping[str, Any]
    sampling: Mapping[str, Any] | None = None
    hidden_layers: tuple[int, ...] = ()
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class ARResult:
    """What became of one sequence.

    Attributes:
        prompt_ids: tokens of the prompt, media placeholders expanded.
        finish_reason: `stop` or `length` (generation).
        cached_tokens: tokens of the prompt that the prefix cache held.
        pooled: hidden states `[tokens, width]` (pooling).
        hidden: hidden states `[tokens, width]` by layer: of the prompt and of all generated
            tokens but the last, which was never an input.
    """

    text: str = ""
    token_ids: Sequence[int] = ()
    prompt_ids: Sequence[int] = ()
    finish_reason: str | None = None
    cached_tokens: int = 0
    pooled: torch.Tensor | None = None
    hidden: Mapping[int, torch.Tensor] = field(default_factory=dict)


class ARStage(Protocol):
    """One stage on the AR core."""

    def engine_args(self) -> dict[str, Any]:
        """Arguments of vLLM's `EngineArgs` that the stage needs; the configuration wins."""

    def prepare(self, params: Mapping[str, Any], inputs: Mapping[str, Frame]) -> list[ARRequest]:
        """The sequences that compute a task.

        Raises:
            InvalidRequest: names the field, its value, and what is allowed.
        """

    def outputs(
        self,
        params: Mapping[str, Any],
        inputs: Mapping[str, Frame],
        results: Sequence[ARResult],
    ) -> dict[str, Frame]:
        """The task's outputs, from the results of its sequences in order."""
