"""Stage one: trains the VAE to carry drawn pictures through 16 latent channels.

Owns the still-image shortcut, the loss and the latent statistics. The trained model is an
ordinary ``AutoencoderKLQwenImage``; nothing in diffusers is patched.
"""

from __future__ import annotations

import random
from typing import Final

import torch
from diffusers import AutoencoderKLQwenImage
from diffusers.models.autoencoders.autoencoder_kl_qwenimage import (
    QwenImageCausalConv3d,
    QwenImageRMS_norm,
)
from torch import nn
from torch.nn import functional

from .budget import Budget
from .checkpoint import LATENT_CHANNELS
from .data import SIZES_PX, draw_examples, random_crops

_PEAK_RATE: Final = 2e-3
_LATENT_NOISE: Final = 0.06
_EDGE_WEIGHT: Final = 1.5
_LATENT_PENALTY: Final = 5e-4
_POOL: Final = {64: 2000, 96: 400, 128: 800}
_ENCODED_AT_ONCE_PX: Final = 32 * 64 * 64
_LOG_VARIANCE: Final = -9.0


class StillConv(nn.Module):
    """A causal 3-D convolution on one frame: the last temporal tap as a 2-D convolution.

    Shares its parameters with the layer it stands for, under the same names.
    """

    def __init__(self, source: QwenImageCausalConv3d) -> None:
        """Takes over the parameters of ``source``."""
        super().__init__()
        self.weight = source.weight
        self.bias = source.bias
        self.stride = source.stride[1:]
        self.padding = (source._padding[2], source._padding[0])

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """[B, C, 1, H, W] to [B, C', 1, H', W']."""
        tap = self.weight[:, :, -1]
        out = functional.conv2d(frames.squeeze(2), tap, self.bias, self.stride, self.padding)
        return out.unsqueeze(2)


class StillNorm(nn.Module):
    """The VAE's channel RMS norm in fewer passes over memory; shares its parameter."""

    def __init__(self, source: QwenImageRMS_norm) -> None:
        """Takes over the parameter of ``source``."""
        super().__init__()
        self.gamma = source.gamma
        self.scale = source.scale

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Normalises [B, C, ...] over C."""
        inverse = features.square().sum(1, keepdim=True).clamp_min(1e-24).rsqrt()
        return features * inverse * (self.gamma * self.scale)


class StillCodec:
    """A fast view of a VAE for still pictures; trains the very same parameters."""

    def __init__(self, vae: AutoencoderKLQwenImage) -> None:
        """Copies the structure of ``vae`` and shares its parameters."""
        self._vae = AutoencoderKLQwenImage.from_config(vae.config)
        _share_parameters(self._vae, vae)
        _fold(self._vae)

    def encode(self, pictures: torch.Tensor) -> torch.Tensor:
        """[B, 3, H, W] in -1..1 to the latent means [B, 16, H/8, W/8]."""
        moments = self._vae.quant_conv(self._vae.encoder(pictures.unsqueeze(2)))
        return moments[:, :LATENT_CHANNELS].squeeze(2)

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """[B, 16, h, w] to unclamped pictures [B, 3, 8h, 8w]."""
        return self._vae.decoder(self._vae.post_quant_conv(latents.unsqueeze(2))).squeeze(2)

    @torch.no_grad()
    def encode_many(self, pictures: torch.Tensor) -> torch.Tensor:
        """As :meth:`encode`, without gradients and in bounded memory."""
        batch = max(1, _ENCODED_AT_ONCE_PX // pictures.shape[-1] ** 2)
        return torch.cat([self.encode(part) for part in torch.split(pictures, batch)])


def train_vae(vae: AutoencoderKLQwenImage, budget: Budget, rng: random.Random) -> None:
    """Trains ``vae`` in place until the budget is spent."""
    codec = StillCodec(vae)
    pools = {size: draw_examples(count, size, rng)[1] for size, count in _POOL.items()}
    optimiser = torch.optim.AdamW(
        vae.parameters(), lr=_PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.0
    )
    step, mean_loss = 0, 0.0
    while budget.fraction < 1:
        for group in optimiser.param_groups:
            group["lr"] = budget.learning_rate(_PEAK_RATE, step)
        pictures = _batch(pools, rng)
        latents = codec.encode(pictures)
        drawn = codec.decode(latents + _LATENT_NOISE * torch.randn_like(latents))
        power = latents.square().mean()
        loss = picture_loss(drawn, pictures) + _LATENT_PENALTY * power
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimiser.step()
        mean_loss += (loss.item() - mean_loss) * (0.02 if step else 1.0)
        step += 1
        if step % 100 == 0:
            shown = f"loss {mean_loss:.4f} z2 {power.item():.2f}"
            print(f"vae {step} {budget.spent_s:.0f}s {shown}", flush=True)


def picture_loss(drawn: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
    """Absolute and squared error, and the error of the differences between neighbours.

    The last keeps corners sharp: they are too few pixels to matter to the first two.
    """
    error = drawn - pictures
    edges = error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()
    return error.abs().mean() + error.square().mean() + _EDGE_WEIGHT * edges


def finish_vae(vae: AutoencoderKLQwenImage, rng: random.Random) -> None:
    """Fixes the latent variance and records the latents' mean and deviation in the config."""
    with torch.no_grad():
        vae.quant_conv.weight[LATENT_CHANNELS:] = 0.0
        vae.quant_conv.bias[LATENT_CHANNELS:] = _LOG_VARIANCE
    codec = StillCodec(vae)
    mean, deviation = torch.zeros(LATENT_CHANNELS), torch.zeros(LATENT_CHANNELS)
    for size_px in SIZES_PX:
        pictures = draw_examples(100, size_px, rng)[1]
        latents = codec.encode_many(pictures)
        mean += latents.mean((0, 2, 3)) / len(SIZES_PX)
        deviation += latents.std((0, 2, 3)) / len(SIZES_PX)
        with torch.no_grad():
            error = codec.decode(latents[:50]).clamp(-1, 1) - pictures[:50]
        decibels = 10 * torch.log10(4 / error.square().mean()).item()
        print(f"vae {size_px} px: PSNR {decibels:.1f} dB", flush=True)
    vae.register_to_config(latents_mean=mean.tolist(), latents_std=deviation.tolist())


def _batch(pools: dict[int, torch.Tensor], rng: random.Random) -> torch.Tensor:
    """Mostly 32 px crops (cheap, many edges), some whole pictures of every size."""
    size_px = rng.choices(SIZES_PX, (0.75, 0.1, 0.15))[0]
    whole = rng.random() < 0.25
    count = max(2, 6 * 64**2 // size_px**2) if whole else 16
    pool = pools[size_px]
    pictures = pool[[rng.randrange(len(pool)) for _ in range(count)]]
    return pictures if whole else random_crops(pictures, 32, rng)


def _share_parameters(copy: nn.Module, source: nn.Module) -> None:
    for name, module in source.named_modules():
        for key, parameter in module._parameters.items():
            copy.get_submodule(name)._parameters[key] = parameter


def _fold(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, QwenImageCausalConv3d):
            setattr(module, name, StillConv(child))
        elif isinstance(child, QwenImageRMS_norm):
            setattr(module, name, StillNorm(child))
        else:
            _fold(child)
