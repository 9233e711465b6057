"""Checkpoints of Flux 3."""

from diffusers import Flux3Transformer2DModel
from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

from . import encoders, tokens, vaes
from .modular import save_modular
from .weights import denoiser

LAYERS = 33
READ = 8
"""The blocks read the states after so many of them, the last but one among these."""


def flux3(folder, seed=0):
    """Text to picture, and edits one; guided by a second prediction."""
    save_modular(folder, "Flux3AutoBlocks", _components(seed, flow_map=False))


def flux3_distilled(folder, seed=0):
    """The same in few steps without guidance; it is told where each step leads."""
    save_modular(folder, "Flux3DistilledAutoBlocks", _components(seed, flow_map=True))


def _components(seed, flow_map):
    tokenizer = tokens.qwen(longest=8192)
    return {
        "text_encoder": encoders.qwen3_vl(tokenizer, seed + 1, LAYERS),
        "tokenizer": Qwen3VLProcessor(
            image_processor=Qwen2VLImageProcessor(),
            tokenizer=tokenizer,
            video_processor=Qwen3VLVideoProcessor(),
            chat_template=tokenizer.chat_template,
        ),
        "vae": vaes.flux2(seed),
        "transformer": denoiser(_transformer(flow_map), seed + 2),
    }


def _transformer(flow_map):
    return Flux3Transformer2DModel(
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=READ * encoders.WIDTH,
        axes_dims_rope=(4, 4, 4, 4),
        flow_map=flow_map,
    )
