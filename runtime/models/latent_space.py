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

    films: bool = True
    """Whether latents have a dimension for frames: `[B, C, frames, h, w]`, else `[B, C, h, w]`."""

    @classmethod
    def of(cls, config: Any) -> LatentSpace | None:
        """As a VAE's config says; None if it normalises otherwise."""
        if getattr(config, "latents_mean", None) is not None:
            return cls(tuple(config.latents_mean), tuple(config.latents_std))
        scale = getattr(config, "scaling_factor", None)
        if scale is None:
            return None
        shift = getattr(config, "shift_factor", None) or 0.0
        channels = config.latent_channels
        return cls((shift,) * channels, (1 / scale,) * channels, films=False)

    def facts(self) -> dict[str, Any]:
        """What leads back to the VAE's own space."""
        return {"mean": list(self.mean), "std": list(self.std)}

    def bundle(self, latents: torch.Tensor) -> Bundle:
        """Normalised latents `[B, C, (frames,) h, w]`, ready to travel."""
        return Bundle({"samples": latents}, {"kind": "latent", **self.facts()})

    def latents(self, bundle: Bundle) -> torch.Tensor:
        """Normalised latents `[B, C, (frames,) h, w]` from whichever space they came in.

        Raises:
            InvalidRequest: they are not latents of this VAE.
        """
        samples = bundle.tensors.get("samples")
        if samples is not None and samples.ndim == 5 and not self.films and samples.shape[2] == 1:
            samples = samples.squeeze(2)
        dimensions = 5 if self.films else 4
        if samples is None or samples.ndim != dimensions or samples.shape[1] != len(self.mean):
            shape = None if samples is None else tuple(samples.shape)
            raise InvalidRequest(
                f"These are no latents of this model: their shape is {shape}.",
                field="latent",
                value=str(shape),
                allowed=f"[B, {len(self.mean)}, {'frames, ' if self.films else ''}h, w]",
            )
        return self.normalised(samples) if bundle.facts.get("space") == "vae" else samples

    def normalised(self, samples: torch.Tensor) -> torch.Tensor:
        """The VAE's own latents as the model works on them."""
        return (samples - self._per_channel(self.mean, samples)) / self._per_channel(
            self.std, samples
        )

    @staticmethod
    def _per_channel(values: tuple[float, ...], like: torch.Tensor) -> torch.Tensor:
        shape = (1, -1, *(1,) * (like.ndim - 2))
        return torch.tensor(values, dtype=like.dtype, device=like.device).view(shape)
