"""The rest of a frame: where a model says one code of several, a predictor adds the others.

It runs when a code becomes an input, for all requests of the step together. Frames are kept, so
that what is computed again after a preemption is not chosen again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

_TOP_K = 50
_TOP_P = 0.8
"""How transformers' Talker lets its predictor choose, whatever it is told itself."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How one frame's codes are chosen; without a seed, they are the likeliest."""

    seed: int | None
    frame: int

    def __call__(self, logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """A code `[1]`, from logits `[codes]`."""
        if self.seed is None:
            return logits.argmax(-1, keepdim=True)
        return torch.multinomial(_likely(logits.float()), 1, generator=generator)

    def generator(self, device: torch.device) -> torch.Generator:
        """The same for the same frame of the same seed, in whatever company."""
        mixed = ((self.seed or 0) * 1_000_003 + self.frame) % (1 << 63)
        return torch.Generator(device).manual_seed(mixed)


def predict(
    predictor: Any, past: torch.Tensor, first: torch.Tensor, choices: Sequence[Choice]
) -> torch.Tensor:
    """The other codes of frames, int64 `[B, groups - 1]`.

    Args:
        predictor: transformers' code predictor with its heads.
        past: the hidden states `[B, width]` from which the first codes were chosen.
        first: the embeddings `[B, width]` of those.
        choices: how each frame's codes are chosen.
    """
    generators = [choice.generator(first.device) for choice in choices]
    cache = DynamicCache(config=predictor.config)
    inputs, codes = torch.stack([past, first], dim=1), []
    embeddings = predictor.get_input_embeddings()
    for head, embedding in zip(predictor.lm_head, embeddings, strict=True):
        states = predictor.model(inputs_embeds=inputs, past_key_values=cache, use_cache=True)
        logits = head(states.last_hidden_state[:, -1])
        chosen = [c(row, g) for c, row, g in zip(choices, logits, generators, strict=True)]
        codes.append(torch.cat(chosen))
        inputs = embedding(codes[-1])[:, None]
    return torch.stack(codes, dim=1)


def embedded(predictor: Any, codes: torch.Tensor) -> torch.Tensor:
    """The sums `[B, width]` of the embeddings of codes that were predicted `[B, groups - 1]`."""
    embeddings = predictor.get_input_embeddings()
    parts = [layer(group) for layer, group in zip(embeddings, codes.T, strict=True)]
    return torch.stack(parts).sum(0)


def _likely(logits: torch.Tensor) -> torch.Tensor:
    """Probabilities `[codes]` of the likeliest `_TOP_K`, and of those, of a share of `_TOP_P`."""
    order = logits.topk(min(_TOP_K, len(logits)))
    shares = order.values.softmax(-1)
    shares = shares.masked_fill(shares.cumsum(-1) - shares >= _TOP_P, 0)
    return torch.zeros_like(logits).scatter(-1, order.indices, shares)
