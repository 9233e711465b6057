"""Builds, saves and loads the demo model in Qwen-Image's real classes.

Owns the architecture and its initialisation. Knows nothing of data or training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch
from diffusers import (
    AutoencoderKLQwenImage,
    FlowMatchEulerDiscreteScheduler,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
)
from diffusers.models.autoencoders.autoencoder_kl_qwenimage import (
    QwenImageCausalConv3d,
    QwenImageResidualBlock,
)
from torch import nn
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from .tokenizer import build_tokenizer

CHECKPOINT: Final = Path(__file__).parent / "checkpoints" / "qwen-image-shapes"
MAX_CHECKPOINT_BYTES: Final = 12_000_000
LATENT_CHANNELS: Final = 16
LATENT_STRIDE_PX: Final = 8
PATCH: Final = 2
TEXT_WIDTH: Final = 96
STEPS: Final = 20
GUIDANCE: Final = 2.0


def build_text_encoder(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLForConditionalGeneration:
    """A three-layer Qwen2.5-VL with a vestigial vision tower, 0.3 M parameters."""
    ids = tokenizer.get_vocab()
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": TEXT_WIDTH,
            "intermediate_size": 2 * TEXT_WIDTH,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 4096,
            "initializer_range": 0.08,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [4, 4, 4],
            },
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": TEXT_WIDTH,
            "fullatt_block_indexes": [0],
            "patch_size": 14,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    return Qwen2_5_VLForConditionalGeneration(config).eval()


def build_vae() -> AutoencoderKLQwenImage:
    """Qwen-Image's VAE at base width 12, 1.5 M parameters, initialised for still images.

    A still image meets only the last of three temporal taps, so the stock initialisation
    loses signal at every layer; the weights are scaled up to keep it.
    """
    vae = AutoencoderKLQwenImage(
        base_dim=12, z_dim=LATENT_CHANNELS, dim_mult=[1, 2, 4, 4], num_res_blocks=1
    )
    with torch.no_grad():
        for module in vae.modules():
            if isinstance(module, QwenImageCausalConv3d):
                module.weight.mul_(3.0 if module.weight.shape[2] == 3 else 3**0.5)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                module.weight.mul_(3**0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in vae.modules():
            if isinstance(module, QwenImageResidualBlock):
                module.conv2.weight.mul_(0.3)
    return vae


def build_transformer() -> QwenImageTransformer2DModel:
    """Qwen-Image's MMDiT at width 128 and five layers, 3.1 M parameters.

    Modulation and output start at zero (adaLN-zero), everything else at Xavier.
    """
    transformer = QwenImageTransformer2DModel(
        patch_size=PATCH,
        in_channels=LATENT_CHANNELS * PATCH**2,
        out_channels=LATENT_CHANNELS,
        num_layers=5,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=TEXT_WIDTH,
        axes_dims_rope=(8, 12, 12),
    )
    for module in transformer.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    zeroed = [transformer.proj_out, transformer.norm_out.linear]
    for block in transformer.transformer_blocks:
        zeroed += [block.img_mod[1], block.txt_mod[1]]
    for linear in zeroed:
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    return transformer


def build_pipeline() -> QwenImagePipeline:
    """The untrained model, complete."""
    tokenizer = build_tokenizer()
    return QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=False),
        vae=build_vae().eval(),
        text_encoder=build_text_encoder(tokenizer),
        tokenizer=tokenizer,
        transformer=build_transformer().eval(),
    )


def save_bf16(pipeline: QwenImagePipeline, directory: Path) -> None:
    """Writes the pipeline in diffusers layout with bfloat16 weights; converts it in place."""
    pipeline.to(torch.bfloat16)
    pipeline.save_pretrained(directory)


def load_pipeline(directory: Path = CHECKPOINT) -> QwenImagePipeline:
    """Loads a checkpoint for the CPU: the bfloat16 weights, computed in float32."""
    pipeline = QwenImagePipeline.from_pretrained(directory, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def checkpoint_bytes(directory: Path = CHECKPOINT) -> int:
    """Total size of a checkpoint's files."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
