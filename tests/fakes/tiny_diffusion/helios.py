"""Checkpoints of Helios, whose films are made chunk by chunk."""

from diffusers import (
    HeliosDMDScheduler,
    HeliosPipeline,
    HeliosPyramidPipeline,
    HeliosScheduler,
    HeliosTransformer3DModel,
)

from . import encoders, tokens, vaes
from .weights import denoiser

GAMMA = 0.3
"""How noise of neighbours goes together; a third, diffusers' own, is too much for some CPUs."""


def helios(folder, seed=0):
    """Each chunk at one size."""
    scheduler = HeliosScheduler(stages=1, stage_range=[0, 1], use_dynamic_shifting=True)
    HeliosPipeline(**_components(seed), scheduler=scheduler).save_pretrained(folder)


def helios_pyramid(folder, seed=0):
    """Each chunk at a quarter of the size, at half of it and at all of it."""
    scheduler = HeliosScheduler(gamma=GAMMA)
    HeliosPyramidPipeline(**_components(seed), scheduler=scheduler).save_pretrained(folder)


def helios_pyramid_distilled(folder, seed=0):
    """The same in few steps, without guidance."""
    scheduler = HeliosDMDScheduler(gamma=GAMMA)
    HeliosPyramidPipeline(
        **_components(seed), scheduler=scheduler, is_distilled=True
    ).save_pretrained(folder)


def _components(seed):
    tokenizer = tokens.t5()
    return {
        "tokenizer": tokenizer,
        "text_encoder": encoders.umt5(tokenizer, seed),
        "vae": vaes.wan(seed + 1, base_dim=4),  # films are long
        "transformer": denoiser(_transformer(), seed + 2),
    }


def _transformer():
    return HeliosTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        text_dim=encoders.WIDTH,
        freq_dim=32,
        ffn_dim=32,
        num_layers=2,
        rope_dim=(4, 4, 4),
    )
