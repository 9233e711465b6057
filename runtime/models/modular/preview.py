"""Previews: estimated clean latents of a denoiser call, and their colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..latent_rgb import fit_latent_to_rgb
from ..latent_space import LatentSpace

_PATCH_PX = 64


def flow_preview(arguments: Mapping[str, Any], result: Any) -> torch.Tensor:
    """Estimated clean latents `[rows, C, h, w]` of a flow matching model on `[B, C, (T,) h, w]`.

    x_t = (1 - t) x_0 + t noise and v = noise - x_0, so x_0 = x_t - t v; t counts to 1000. Of a
    film it is the frame in the middle.
    """
    velocity = result[0]
    noisy = arguments["hidden_states"][:, : velocity.shape[1]]  # conditions follow
    time = (arguments["timestep"].flatten() / 1000).view(-1, *(1,) * (noisy.ndim - 1))
    clean = noisy - time * velocity
    return clean[:, :, clean.shape[2] // 2] if clean.ndim == 5 else clean


def latent_to_rgb(vae: Any, space: LatentSpace) -> torch.Tensor:
    """Fit the preview's colours to a VAE: encode patches of plain colours and compare."""
    parameter = next(vae.parameters())
    colours = torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    pictures = torch.nn.functional.interpolate(colours, size=_PATCH_PX) * 2 - 1
    if space.films:
        pictures = pictures.unsqueeze(2)
    with torch.inference_mode():
        encoded = vae.encode(pictures.to(parameter)).latent_dist.mode().float().cpu()
    latents = space.normalised(encoded).movedim(1, -1).flatten(0, -2)
    small = torch.nn.functional.interpolate(colours, size=encoded.shape[-2:])
    return fit_latent_to_rgb(latents, small.movedim(1, -1).flatten(0, -2)).to(parameter.device)
