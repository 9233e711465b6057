"""Colours from latents: the linear map that previews use, fitted to the model's own VAE."""

from __future__ import annotations

import torch


def fit_latent_to_rgb(latents: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """The linear map from latents to colours that fits example pairs best (least squares).

    Args:
        latents: `[n, C]` clean latents.
        pixels: `[n, 3]` colours in 0..1 at the same places.

    Returns:
        `[C + 1, 3]`; the last row is the bias.
    """
    ones = torch.ones(len(latents), 1, dtype=torch.float64, device=latents.device)
    design = torch.cat([latents.double(), ones], dim=1)
    ridge = 1e-4 * torch.eye(design.shape[1], dtype=torch.float64, device=latents.device)
    solution = torch.linalg.solve(design.T @ design + ridge, design.T @ pixels.double())
    return solution.float()
