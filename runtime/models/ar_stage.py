"""What a family tells the AR core about one of its stages.

Plain data in and out: prompts as vLLM takes them, results as vLLM gives them. A stage's
object lives in that stage's engine process and may hold a tokenizer or processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ..protocol.frames import Frame

Layer = int | str
"""Rows that are kept: of a layer's hidden states, or of what else has a name of its own."""

POSITIONS = "positions"
"""Rows of the positions `[n, 3]` of a model whose pictures have height and width there."""


@dataclass(frozen=True, slots=True)
class SubConfig:
    """A value of vLLM's `hf_overrides`: one part of a model's config instead of the whole.

    Attributes:
        name: of the part, e.g. `talker_config`.
        architecture: the class that runs it, by the name vLLM finds it by.
        counted: positions count tokens, in one dimension; what the part says of others is
            dropped.
    """

    name: str
    architecture: str
    counted: bool = False

    def __call__(self, config: Any) -> Any:
        """The part of a config, for vLLM; one without such a part is left as it is."""
        part = getattr(config, self.name, None)
        if part is None:
            return config
        part.architectures = [self.architecture]
        if self.counted:
            rope = dict(part.rope_parameters)
            rope.pop("mrope_section", None)
            part.rope_parameters = rope
        return part


class RowSource(Protocol):
    """Makes the conditioning rows of a sequence out of the input that it follows."""

    def push(self, part: Frame) -> torch.Tensor:
        """The rows `[n, width]`, or none, that come of the input's next part.

        Raises:
            InvalidRequest: the part is not what it should be.
        """

    def end(self) -> torch.Tensor:
        """The last rows; the very last of them stands for all further positions."""


@dataclass(frozen=True, slots=True)
class ARRequest:
    """One sequence for vLLM; a task may need several.

    Attributes:
        prompt: a vLLM prompt, e.g. `{"prompt_token_ids": [...], "multi_modal_data": {...}}`.
        sampling: arguments of vLLM's `SamplingParams`; None: a pooling request, which returns
            hidden states of the prompt and generates nothing.
        hidden_layers: layers whose hidden states are wanted for every token (0: embeddings,
            -1: the last layer after the final norm), or other rows by name; generation only.
        streamed: whether its text goes out as it is written.
        rows: makes the rows that condition it, where the model is a conditioned one.
        follows: the input from whose parts, or whole, it makes them.
        positions: those of the prompt `[3, n]`, if they do not just count its tokens.
        part: makes the next part of the stage's streamed outputs, or nothing, out of what has
            come since the last one; None: they go out whole. Of what a part is made from, the
            prompt's share comes first and alone, if hidden layers are wanted.
    """

    prompt: Mapping[str, Any]
    sampling: Mapping[str, Any] | None = None
    hidden_layers: tuple[Layer, ...] = ()
    streamed: bool = False
    rows: RowSource | None = None
    follows: str = ""
    positions: torch.Tensor | None = None
    part: Callable[[ARResult], dict[str, Frame]] | None = None


@dataclass(frozen=True, slots=True)
class ARResult:
    """What became of one sequence, or the next share of it.

    Attributes:
        prompt_ids: tokens of the prompt, media placeholders expanded.
        finish_reason: `stop` or `length` (generation).
        cached_tokens: tokens of the prompt that the prefix cache held.
        pooled: hidden states `[tokens, width]` (pooling).
        frames: codes of all groups `[groups]` for each code that was an input (models with a code
            predictor).
        hidden: hidden states `[tokens, width]` by layer: of the prompt and of all generated
            tokens but the last, which was never an input.
    """

    text: str = ""
    token_ids: Sequence[int] = ()
    prompt_ids: Sequence[int] = ()
    finish_reason: str | None = None
    cached_tokens: int = 0
    pooled: torch.Tensor | None = None
    frames: Sequence[torch.Tensor] = ()
    hidden: Mapping[Layer, torch.Tensor] = field(default_factory=dict)


class ARStage(Protocol):
    """One stage on the AR core."""

    def engine_args(self) -> dict[str, Any]:
        """Arguments of vLLM's `EngineArgs` that the stage needs; the configuration wins."""

    def prepare(self, params: Mapping[str, Any], inputs: Mapping[str, Frame]) -> list[ARRequest]:
        """The sequences that compute a task; of an input that it follows, the first part is there.

        Raises:
            InvalidRequest: names the field, its value, and what is allowed.
        """

    def outputs(
        self,
        params: Mapping[str, Any],
        inputs: Mapping[str, Frame],
        results: Sequence[ARResult],
    ) -> dict[str, Frame]:
        """The task's outputs, from the results of its sequences in order.

        An input that it followed is not among `inputs`.
        """
