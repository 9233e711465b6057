"""Checkpoints of the Wan film family."""

from diffusers import (
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from transformers import CLIPImageProcessor

from . import encoders, tokens, vaes
from .weights import denoiser

TRANSFORMER = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "in_channels": 16,
    "out_channels": 16,
    "text_dim": encoders.WIDTH,
    "freq_dim": 32,
    "ffn_dim": 32,
    "num_layers": 2,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 64,
}
FROM_PICTURE = {"in_channels": 36}
"""Noise, the picture's latents, and four channels that say which frames are given."""


def wan(folder, seed=0):
    """Text to film (Wan 2.1)."""
    WanPipeline(**_components(seed), transformer=_transformer(seed)).save_pretrained(folder)


def wan22(folder, seed=0):
    """Text to film by two transformers, one for much and one for little noise (Wan 2.2)."""
    WanPipeline(
        **_components(seed),
        transformer=_transformer(seed),
        transformer_2=_transformer(seed + 1),
        boundary_ratio=0.875,
    ).save_pretrained(folder)


def wan_i2v(folder, seed=0):
    """Picture to film; the transformer also sees CLIP's view of the picture (Wan 2.1)."""
    side = encoders.PICTURE
    WanImageToVideoPipeline(
        **_components(seed),
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": side}, crop_size={"height": side, "width": side}
        ),
        image_encoder=encoders.clip_vision(seed + 4),
        transformer=_transformer(seed, **FROM_PICTURE, image_dim=encoders.WIDTH),
    ).save_pretrained(folder)


def wan22_i2v(folder, seed=0):
    """Picture to film by two transformers (Wan 2.2)."""
    WanImageToVideoPipeline(
        **_components(seed),
        transformer=_transformer(seed, **FROM_PICTURE),
        transformer_2=_transformer(seed + 1, **FROM_PICTURE),
        boundary_ratio=0.9,
    ).save_pretrained(folder)


def _components(seed):
    tokenizer = tokens.t5()
    return {
        "tokenizer": tokenizer,
        "text_encoder": encoders.umt5(tokenizer, seed),
        "vae": vaes.wan(seed + 1),
        "scheduler": UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    }


def _transformer(seed, **config):
    return denoiser(WanTransformer3DModel(**{**TRANSFORMER, **config}), seed + 2)
