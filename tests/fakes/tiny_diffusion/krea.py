"""Checkpoints of Krea 2."""

from diffusers import FlowMatchEulerDiscreteScheduler, Krea2Pipeline, Krea2Transformer2DModel

from . import encoders, tokens, vaes
from .weights import effective

LAYERS = 36
"""The pipeline reads the states after twelve of them, the last but one among these."""


def krea2(folder, seed=0):
    """Guided by a second prediction."""
    _krea2(seed, is_distilled=False).save_pretrained(folder)


def krea2_turbo(folder, seed=0):
    """Distilled to few steps, without guidance."""
    _krea2(seed, is_distilled=True).save_pretrained(folder)


def _krea2(seed, is_distilled):
    tokenizer = tokens.qwen()
    return Krea2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vaes.qwen_image(seed),
        text_encoder=encoders.qwen3_vl(tokenizer, seed + 1, LAYERS).model,
        tokenizer=tokenizer,
        # its blocks make more of a rounding error than those of others
        transformer=effective(_transformer(), seed + 2, gain=0.9),
        is_distilled=is_distilled,
    )


def _transformer():
    return Krea2Transformer2DModel(
        in_channels=64,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        timestep_embed_dim=8,
        text_hidden_dim=encoders.WIDTH,
        num_text_layers=12,
        text_num_attention_heads=2,
        text_num_key_value_heads=1,
        text_intermediate_size=16,
        num_layerwise_text_blocks=1,
        num_refiner_text_blocks=1,
        axes_dims_rope=(4, 2, 2),
    )
