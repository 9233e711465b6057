"""A checkpoint of Anima: Cosmos' transformer, told by Qwen's states and T5's words."""

from diffusers import (
    AnimaTextConditioner,
    CosmosTransformer3DModel,
    FlowMatchEulerDiscreteScheduler,
)

from . import encoders, tokens, vaes
from .modular import save_modular
from .weights import denoiser, effective


def anima(folder, seed=0):
    """Text to picture, and picture to picture."""
    tokenizer, words = tokens.qwen(), tokens.t5()
    components = {
        "text_encoder": encoders.qwen3(tokenizer, seed + 1).model,
        "tokenizer": tokenizer,
        "t5_tokenizer": words,
        "text_conditioner": effective(_conditioner(words), seed + 2),
        "vae": vaes.qwen_image(seed),
        "transformer": denoiser(_transformer(), seed + 3),
        "scheduler": FlowMatchEulerDiscreteScheduler(shift=3.0),
    }
    save_modular(folder, "AnimaAutoBlocks", components)


def _conditioner(words):
    return AnimaTextConditioner(
        source_dim=encoders.WIDTH,
        target_dim=encoders.WIDTH,
        model_dim=encoders.WIDTH,
        num_layers=1,
        num_attention_heads=2,
        target_vocab_size=len(words),
        min_sequence_length=64,
    )


def _transformer():
    return CosmosTransformer3DModel(
        in_channels=16,
        out_channels=16,
        num_attention_heads=2,
        attention_head_dim=12,
        num_layers=2,
        mlp_ratio=2,
        text_embed_dim=encoders.WIDTH,
        adaln_lora_dim=4,
        max_size=(4, 32, 32),
        patch_size=(1, 2, 2),
        rope_scale=(1.0, 1.0, 1.0),
        concat_padding_mask=True,
        extra_pos_embed_type=None,
    )
