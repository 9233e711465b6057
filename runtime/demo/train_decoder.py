"""Stage four: polishes the VAE's decoder on what the transformer really makes.

Half of each batch are latents the finished model sampled for training prompts, with the
picture the prompt asks for as the target; the other half are drawings, new ones in each step,
so that the decoder stays a decoder. Shapes that are easily mistaken for others come more often.
The encoder and the latent space do not change.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import torch
from diffusers import QwenImagePipeline
from torch import nn

from .budget import Budget
from .captions import Request, training_request
from .checkpoint import GUIDANCE, PATCH, STEPS
from .data import to_tensor
from .drawing import draw
from .train_vae import StillCodec, picture_loss

_PEAK_RATE: Final = 1e-3
_SAMPLES: Final = {64: 1536, 96: 96, 128: 288}
_BATCH: Final = {64: 8, 96: 3, 128: 2}
_SIZE_WEIGHTS: Final = (0.7, 0.1, 0.2)
_SAMPLED_AT_ONCE: Final = 48
_LATENT_NOISE: Final = 0.03
_HARD_SHAPES: Final = frozenset({"star", "diamond", "triangle", "ring"})
_EASY_SHARE: Final = 0.45

Pairs = tuple[torch.Tensor, torch.Tensor]


def train_decoder(pipeline: QwenImagePipeline, budget: Budget, rng: random.Random) -> None:
    """Trains the decoder of ``pipeline.vae`` in place until the budget is spent."""
    vae = pipeline.vae.requires_grad_(False)
    codec = StillCodec(vae)
    sampled = {size: _sampled_pairs(pipeline, size, count, rng) for size, count in _SAMPLES.items()}
    print(f"decoder: samples ready at {budget.spent_s:.0f}s", flush=True)
    parameters = [*vae.decoder.parameters(), *vae.post_quant_conv.parameters()]
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimiser = torch.optim.AdamW(parameters, lr=_PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    step, mean_loss = 0, 0.0
    while budget.fraction < 1:
        for group in optimiser.param_groups:
            group["lr"] = budget.learning_rate(_PEAK_RATE, step)
        size_px = rng.choices(list(_BATCH), _SIZE_WEIGHTS)[0]
        latents, pictures = _batch(sampled[size_px], _drawn_pairs(codec, size_px, rng))
        drawn = codec.decode(latents + _LATENT_NOISE * torch.randn_like(latents))
        loss = picture_loss(drawn, pictures)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        mean_loss += (loss.item() - mean_loss) * (0.02 if step else 1.0)
        step += 1
        if step % 50 == 0:
            print(f"decoder {step} {budget.spent_s:.0f}s loss {mean_loss:.4f}", flush=True)


def unpack(tokens: torch.Tensor) -> torch.Tensor:
    """Transformer tokens [B, T, 4*C] of a square picture to latents [B, C, H, W]."""
    batch, count, width = tokens.shape
    side, channels = round(count**0.5), width // PATCH**2
    grid = tokens.view(batch, side, side, channels, PATCH, PATCH).permute(0, 3, 1, 4, 2, 5)
    return grid.reshape(batch, channels, side * PATCH, side * PATCH)


def _sampled_pairs(
    pipeline: QwenImagePipeline, size_px: int, count: int, rng: random.Random
) -> Pairs:
    """Latents the model samples for training prompts, and the pictures asked for."""
    requests = [_request(rng) for _ in range(count)]
    pictures = [to_tensor(draw(request.scene, size_px)) for request in requests]
    tokens = [
        _sample(pipeline, requests[start : start + _SAMPLED_AT_ONCE], size_px, start)
        for start in range(0, count, _SAMPLED_AT_ONCE)
    ]
    config = pipeline.vae.config
    mean = torch.tensor(config.latents_mean).view(1, -1, 1, 1)
    deviation = torch.tensor(config.latents_std).view(1, -1, 1, 1)
    return unpack(torch.cat(tokens)) * deviation + mean, torch.stack(pictures)


def _sample(
    pipeline: QwenImagePipeline, requests: Sequence[Request], size_px: int, seed: int
) -> torch.Tensor:
    return pipeline(
        prompt=[request.text for request in requests],
        negative_prompt=[""] * len(requests),
        true_cfg_scale=GUIDANCE,
        height=size_px,
        width=size_px,
        num_inference_steps=STEPS,
        generator=torch.Generator().manual_seed(seed),
        output_type="latent",
    ).images


def _request(rng: random.Random) -> Request:
    """A fully specified training request."""
    while True:
        request = training_request(rng)
        hard = request.scene.shape in _HARD_SHAPES
        if not request.unsaid and (hard or rng.random() < _EASY_SHARE):
            return request


def _drawn_pairs(codec: StillCodec, size_px: int, rng: random.Random) -> Pairs:
    """Encoded drawings, every other one a little out of place, and the drawings."""
    scenes = [_request(rng).scene for _ in range(_BATCH[size_px])]
    places = [rng if i % 2 else None for i in range(len(scenes))]
    drawn = [draw(scene, size_px, place) for scene, place in zip(scenes, places, strict=True)]
    pictures = torch.stack([to_tensor(picture) for picture in drawn])
    return codec.encode_many(pictures), pictures


def _batch(sampled: Pairs, drawn: Pairs) -> Pairs:
    """The drawn pairs, and as many random ones that were sampled."""
    index = torch.randint(len(sampled[0]), (len(drawn[0]),))
    return torch.cat([sampled[0][index], drawn[0]]), torch.cat([sampled[1][index], drawn[1]])
