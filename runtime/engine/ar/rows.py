"""Rows by request and position: hidden states that come out, conditioning that goes in.

Position is the only key, so prefill in chunks, decoding, and the recomputation after a
preemption all read and write the same rows by one rule.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

KEY = "omnistage_rows"
"""The sampling parameter (`extra_args`) that carries a request's key."""


class HiddenRows:
    """Hidden states of every computed token of the requests that want them."""

    def __init__(self) -> None:
        self._chunks: dict[str, dict[int, list[tuple[int, torch.Tensor]]]] = {}

    def put(self, key: str, layer: int, position: int, rows: torch.Tensor) -> None:
        """Keep rows `[n, width]` of positions `position`, `position + 1`, ..."""
        layers = self._chunks.setdefault(key, defaultdict(list))
        layers[layer].append((position, rows))

    def take(self, key: str, count: int) -> dict[int, torch.Tensor]:
        """Remove a request's rows: `[count, width]` by layer.

        Raises:
            ValueError: some position was never computed (a prefix cache hit).
        """
        return {
            layer: _joined(chunks, count) for layer, chunks in self._chunks.pop(key, {}).items()
        }

    def drop(self, key: str) -> None:
        """Forget a request."""
        self._chunks.pop(key, None)

    def __len__(self) -> int:
        """Requests with rows."""
        return len(self._chunks)


def _joined(chunks: list[tuple[int, torch.Tensor]], count: int) -> torch.Tensor:
    first = chunks[0][1]
    joined = first.new_empty((count, first.shape[1]))
    seen = torch.zeros(count, dtype=torch.bool)
    for position, rows in chunks:  # what was computed again replaces what it equals
        end = min(position + len(rows), count)
        joined[position:end] = rows[: end - position]
        seen[position:end] = True
    if not seen.all():
        missing = int((~seen).sum())
        raise ValueError(f"{missing} of {count} hidden states were never computed")
    return joined


@dataclass
class Conditioning:
    """Rows `[n, width]` for the first n positions of a request; grows while it runs."""

    rows: torch.Tensor | None = None
    final: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def push(self, rows: torch.Tensor, *, final: bool = False) -> None:
        """Add rows; after the final ones, the last row stands for all further positions."""
        with self.lock:
            self.rows = rows if self.rows is None else torch.cat([self.rows, rows])
            self.final = final

    def ready(self, position: int) -> bool:
        """Whether the row of a position is there."""
        return self.final or (self.rows is not None and position < len(self.rows))

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


hidden_rows = HiddenRows()
"""Of this process. vLLM builds worker and scheduler itself, so what they share with the engine
core cannot be handed to them; keys are unique in the process."""

conditioning_rows = ConditioningRows()
"""Of this process; see `hidden_rows`."""


def key_of(extra_args: Mapping[str, object] | None) -> str | None:
    """The key in a request's `extra_args`, if it has one."""
    key = (extra_args or {}).get(KEY)
    return key if isinstance(key, str) else None
