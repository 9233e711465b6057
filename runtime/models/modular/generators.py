"""A request's own random numbers: one generator for each of its pictures."""

from __future__ import annotations

from typing import Any

import torch

from ..program import Bundle
from .params import MAX_SEED


def generators(seed: int, count: int) -> Any:
    """One generator per picture, so that picture i equals a request with seed + i alone."""
    seeds = [(seed + i) & MAX_SEED for i in range(count)]
    own = [torch.Generator().manual_seed(seed) for seed in seeds]
    return own if len(own) > 1 else own[0]


def last_state(own: Any) -> torch.Tensor | None:
    """The state of the generator that draws for all pictures; with several, decoding has none."""
    return own.get_state() if isinstance(own, torch.Generator) else None


def noise_source(latent: Bundle) -> torch.Generator:
    """The generator of a latent that was sampled, or else a fresh one."""
    generator = torch.Generator().manual_seed(0)
    state = latent.tensors.get("generator_state")
    return generator if state is None else generator.set_state(state.cpu())
