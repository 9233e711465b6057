"""Checkpoints of Hunyuan Video 1.5."""

from diffusers import (
    AutoencoderKLHunyuanVideo15,
    ClassifierFreeGuidance,
    FlowMatchEulerDiscreteScheduler,
    HunyuanVideo15ImageToVideoPipeline,
    HunyuanVideo15Transformer3DModel,
)
from transformers import ByT5Tokenizer, SiglipImageProcessor

from . import encoders, tokens
from .weights import denoiser, effective

LATENT = 8
"""Channels of a film's latent; 32 in the real one."""


def hunyuan15(folder, seed=0):
    """First picture to film, and text to film.

    Words in quotes are also read letter by letter; the transformer sees Siglip's view of the
    picture.
    """
    side = encoders.PICTURE
    HunyuanVideo15ImageToVideoPipeline(
        **_components(seed),
        image_encoder=encoders.siglip_vision(seed + 4),
        feature_extractor=SiglipImageProcessor(size={"height": side, "width": side}),
    ).save_pretrained(folder)


def _components(seed):
    tokenizer, letters = tokens.qwen(), ByT5Tokenizer()
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(shift=5.0),
        "vae": effective(_vae(), seed),
        "text_encoder": encoders.qwen25_vl(tokenizer, seed + 1).model.language_model,
        "tokenizer": tokenizer,
        "text_encoder_2": encoders.t5(letters, seed + 2),
        "tokenizer_2": letters,
        "transformer": denoiser(_transformer(), seed + 3),
        "guider": ClassifierFreeGuidance(guidance_scale=6.0),
    }


def _vae():
    """16x, and 4x in time."""
    return AutoencoderKLHunyuanVideo15(
        latent_channels=LATENT, block_out_channels=(8, 8, 8, 8, 2 * LATENT), layers_per_block=1
    )


def _transformer():
    """It is given noise, the latents of a picture, and which frames these are for."""
    return HunyuanVideo15Transformer3DModel(
        in_channels=2 * LATENT + 1,
        out_channels=LATENT,
        num_attention_heads=1,
        attention_head_dim=8,
        num_layers=1,
        num_refiner_layers=1,
        mlp_ratio=2.0,
        text_embed_dim=encoders.WIDTH,
        text_embed_2_dim=encoders.WIDTH,
        image_embed_dim=encoders.WIDTH,
        rope_axes_dim=(2, 2, 4),
        target_size=64,
        task_type="i2v",
    )
