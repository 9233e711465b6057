"""Rows by request and position: hidden states that come out, conditioning that goes in.

Position is the only key, so prefill in chunks, decoding, and the recomputation after a
preemption all read and write the same rows by one rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ...models.ar_stage import Layer

KEY = "omnistage_rows"
"""The sampling parameter (`extra_args`) that carries a request's key."""
LAYERS = "omnistage_layers"
"""The one that carries the layers whose rows are kept."""


class HiddenRows:
    """Hidden states of every computed token of the requests that want them."""

    def __init__(self) -> None:
        self._chunks: dict[str, dict[Layer, list[tuple[int, torch.Tensor]]]] = {}

    def put(self, key: str, layer: Layer, position: int, rows: torch.Tensor) -> None:
        """Keep rows `[n, width]` of positions `position`, `position + 1`, ..."""
        layers = self._chunks.setdefault(key, defaultdict(list))
        layers[layer].append((position, rows))

    def between(self, key: str, start: int, end: int) -> dict[Layer, torch.Tensor]:
        """A request's rows of positions `start` to `end - 1`: `[end - start, width]` by layer.

        Raises:
            ValueError: some position was never computed (a prefix cache hit).
        """
        layers = self._chunks.get(key, {})
        return {layer: _joined(chunks, start, end) for layer, chunks in layers.items()}

    def drop(self, key: str) -> None:
        """Forget a request."""
        self._chunks.pop(key, None)

    def __len__(self) -> int:
        """Requests with rows."""
        return len(self._chunks)


def _joined(chunks: list[tuple[int, torch.Tensor]], start: int, end: int) -> torch.Tensor:
    first = chunks[0][1]
    joined = first.new_empty((end - start, first.shape[1]))
    seen = torch.zeros(end - start, dtype=torch.bool)
    for position, rows in chunks:  # what was computed again replaces what it equals
        here, stop = max(position, start), min(position + len(rows), end)
        if here < stop:
            joined[here - start : stop - start] = rows[here - position : stop - position]
            seen[here - start : stop - start] = True
    if not seen.all():
        missing = int((~seen).sum())
        raise ValueError(f"{missing} of {end - start} hidden states were never computed")
    return joined


@dataclass(slots=True)
class Conditioning:
    """Rows `[n, width]` for the first n positions of a request; grows while it runs.

    Attributes:
        final: whether the last row stands for all further positions.
        positions: those of the prompt `[3, n]`, if they do not just count its tokens.
        frames: codes `[groups]` of each position after the prompt that was an input, where a code
            predictor completes them.
        past: the last layer's hidden state `[1, width]` of position `past_at`, on the device.
    """

    rows: torch.Tensor | None = None
    final: bool = False
    positions: torch.Tensor | None = None
    frames: list[torch.Tensor] = field(default_factory=list)
    past: torch.Tensor | None = None
    past_at: int = -1

    def push(self, rows: torch.Tensor, *, final: bool = False) -> None:
        """Add rows; after the final ones, the last row stands for all further positions."""
        self.rows = rows if self.rows is None else torch.cat([self.rows, rows])
        self.final = final

    def ready(self, position: int) -> bool:
        """Whether the row of a position is there."""
        return self.final or (self.rows is not None and position < len(self.rows))

    def remember(self, position: int, state: torch.Tensor) -> None:
        """Keep the last hidden state; one that is computed again, after a preemption, is older."""
        if position > self.past_at:
            self.past, self.past_at = state.clone(), position

    def between(self, start: int, end: int) -> torch.Tensor:
        """The rows of positions `start` to `end - 1`."""
        assert self.rows is not None
        return self.rows[torch.arange(start, end).clamp_(max=len(self.rows) - 1)]


class ConditioningRows:
    """Conditioning of the requests of one process, by key."""

    def __init__(self) -> None:
        self._requests: dict[str, Conditioning] = {}

    def open(self, key: str) -> Conditioning:
        """Begin a request's conditioning."""
        conditioning = self._requests[key] = Conditioning()
        return conditioning

    def get(self, key: str) -> Conditioning | None:
        """A request's conditioning, if it has any."""
        return self._requests.get(key)

    def drop(self, key: str) -> None:
        """Forget a request."""
        self._requests.pop(key, None)

    def __len__(self) -> int:
        """Requests with conditioning."""
        return len(self._requests)


hidden_rows = HiddenRows()
"""Of this process. vLLM builds worker and scheduler itself, so what they share with the engine
core cannot be handed to them; keys are unique in the process."""

conditioning_rows = ConditioningRows()
"""Of this process; see `hidden_rows`."""


def key_of(extra_args: Mapping[str, object] | None) -> str | None:
    """The key in a request's `extra_args`, if it has one."""
    key = (extra_args or {}).get(KEY)
    return key if isinstance(key, str) else None
