"""Latents as a model works on them, and as its VAE makes them.

A model works on normalised latents. Other programs (ComfyUI among them) pass latents around as
the VAE makes them; such ones say `space: "vae"` in their facts. What leaves here carries the
mean and deviation that lead back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..protocol.errors import InvalidRequest
from .program import Bundle


@dataclass(frozen=True, slots=True)
class LatentSpace:
    """The normalisation of one VAE: one mean and one deviation per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, config: Any) -> LatentSpace:
        """As a VAE's config says."""
        return cls(tuple(config.latents_mean), tuple(config.latents_std))

    def bundle(self, latents: torch.Tensor) -> Bundle:
        """Normalised latents `[B, C, frames, h, w]`, ready to travel."""
        facts = {"kind": "latent", "mean": list(self.mean), "std": list(self.std)}
        return Bundle({"samples": latents}, facts)

    def latents(self, bundle: Bundle) -> torch.Tensor:
        """Normalised latents `[B, C, frames, h, w]` from whichever space they came in.

        Raises:
            InvalidRequest: they are not latents of this VAE.
        """
        samples = bundle.tensors.get("samples")
        if samples is None or samples.ndim != 5 or samples.shape[1] != len(self.mean):
            shape = None if samples is None else tuple(samples.shape)
            raise InvalidRequest(
                f"These are no latents of this model: their shape is {shape}.",
                field="latent",
                value=str(shape),
                allowed=f"[B, {len(self.mean)}, frames, h, w]",
            )
        return self.normalised(samples) if bundle.facts.get("space") == "vae" else samples

    def normalised(self, samples: torch.Tensor) -> torch.Tensor:
        """The VAE's own latents as the model works on them."""
        return (samples - self._per_channel(self.mean, samples)) / self._per_channel(
            self.std, samples
        )

    @staticmethod
    def _per_channel(values: tuple[float, ...], like: torch.Tensor) -> torch.Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device).view(1, -1, 1, 1, 1)
