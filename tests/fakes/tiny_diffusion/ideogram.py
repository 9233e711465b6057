"""A checkpoint of Ideogram 4."""

from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    Ideogram4Pipeline,
    Ideogram4Transformer2DModel,
)

from . import encoders, tokens, vaes
from .weights import denoiser

LAYERS = 36
READ = 13
"""The pipeline reads the states after so many of them, the last among these."""


def ideogram4(folder, seed=0):
    """Text to picture; what a picture without words is like, another transformer says."""
    tokenizer = tokens.qwen()
    Ideogram4Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vaes.flux2(seed),
        text_encoder=encoders.qwen3_vl(tokenizer, seed + 1, LAYERS).model,
        tokenizer=tokenizer,
        transformer=denoiser(_transformer(), seed + 2),
        unconditional_transformer=denoiser(_transformer(), seed + 3),
    ).save_pretrained(folder)


def _transformer():
    return Ideogram4Transformer2DModel(
        in_channels=128,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=1,
        intermediate_size=32,
        adaln_dim=16,
        llm_features_dim=READ * encoders.WIDTH,
        rope_theta=10000,
        mrope_section=(2, 1, 1),
    )
