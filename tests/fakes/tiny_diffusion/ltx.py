"""Checkpoints of the LTX film families; those of LTX-2 have sound."""

import torch
from diffusers import (
    AutoencoderKLLTX2Audio,
    AutoencoderKLLTX2Video,
    AutoencoderKLLTXVideo,
    FlowMatchEulerDiscreteScheduler,
    LTX2Pipeline,
    LTX2VideoDiffusionDecoderModel,
    LTX2VideoTransformer3DModel,
    LTXImageToVideoPipeline,
    LTXPipeline,
    LTXVideoTransformer3DModel,
)
from diffusers.pipelines.ltx2 import LTX2TextConnectors, LTX2Vocoder

from . import encoders, tokens
from .modular import save_modular
from .weights import denoiser, effective

LATENT = 8
"""Channels of a film's latent; 128 in the real one."""
MELS = 16
AUDIO_LATENT = 4
AUDIO_TOKEN = AUDIO_LATENT * MELS // 4
"""What a moment of sound is to the transformer: a quarter of the mel bins remain.

The audio VAE keeps its latents' statistics by the width of its first layer, which must be this.
"""
SCHEDULER = {
    "base_image_seq_len": 1024,
    "base_shift": 0.95,
    "max_image_seq_len": 4096,
    "max_shift": 2.05,
    "shift_terminal": 0.1,
    "use_dynamic_shifting": True,
}


def ltx(folder, seed=0):
    """Text to film; decoding draws noise and is told how much (0.9.1 and later)."""
    LTXPipeline(**_old_components(seed)).save_pretrained(folder)


def ltx_i2v(folder, seed=0):
    """First picture to film."""
    LTXImageToVideoPipeline(**_old_components(seed)).save_pretrained(folder)


def ltx2(folder, seed=0):
    """Text to film with sound; a film is 32x and 8x in time compressed."""
    LTX2Pipeline(
        **_components(seed), scheduler=FlowMatchEulerDiscreteScheduler(**SCHEDULER)
    ).save_pretrained(folder)


def ltx25(folder, seed=0):
    """Text and first picture to film with sound; pixels are denoised, too."""
    components = {
        **_components(seed),
        "scheduler": FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        "diffusion_decoder": _normalised(_diffusion_decoder(), seed + 6),
    }
    save_modular(folder, "LTX25AutoBlocks", components)


def echo(folder, seed=0):
    """Text and first picture to film with sound, in eight steps without guidance."""
    save_modular(folder, "EchoBlocks", _components(seed))


def _components(seed):
    tokenizer = tokens.gemma()
    return {
        "vae": _normalised(_film_vae(), seed),
        "audio_vae": _normalised(_audio_vae(), seed + 1),
        "text_encoder": encoders.gemma3(tokenizer, seed + 2),
        "tokenizer": tokenizer,
        "connectors": effective(_connectors(), seed + 3),
        "transformer": denoiser(_transformer(), seed + 4),
        "vocoder": effective(_vocoder(), seed + 5),
    }


def _old_components(seed):
    tokenizer = tokens.t5()
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        "vae": _normalised(_old_film_vae(), seed),
        "text_encoder": encoders.t5(tokenizer, seed + 1),
        "tokenizer": tokenizer,
        "transformer": denoiser(_old_transformer(), seed + 2),
    }


def _old_film_vae():
    return AutoencoderKLLTXVideo(
        latent_channels=LATENT,
        block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1,) * 5,
        decoder_layers_per_block=(1,) * 5,
        timestep_conditioning=True,
    )


def _old_transformer():
    return LTXVideoTransformer3DModel(
        in_channels=LATENT,
        out_channels=LATENT,
        num_attention_heads=2,
        attention_head_dim=16,
        cross_attention_dim=32,
        num_layers=2,
        caption_channels=encoders.WIDTH,
    )


def _film_vae():
    return AutoencoderKLLTX2Video(
        latent_channels=LATENT,
        block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 16, 32),
        layers_per_block=(1,) * 5,
        decoder_layers_per_block=(1,) * 4,
        spatial_compression_ratio=32,  # of itself it would say 64
        temporal_compression_ratio=8,
    )


def _diffusion_decoder():
    small, kernel = (1, 2, 2), (1, 3, 3)
    return LTX2VideoDiffusionDecoderModel(
        latent_channels=LATENT,
        decoder_head_dim=8,
        decoder_stage_channels=(8,) * 5,
        decoder_stage_depths=(1,) * 5,
        decoder_stage_kernels=(small, kernel, kernel, kernel),
        decoder_upsample_channel_reductions=(1,) * 4,
        decoder_stage5_kernel=kernel,
        decoder_t_emb_dim=8,
    )


def _audio_vae():
    return AutoencoderKLLTX2Audio(
        base_channels=AUDIO_TOKEN,
        ch_mult=(1, 1, 1),
        num_res_blocks=1,
        latent_channels=AUDIO_LATENT,
        mel_bins=MELS,
    )


def _normalised(vae, seed):
    """`vae` with other statistics of its latents than those of noise."""
    effective(vae, seed)
    generator = torch.Generator().manual_seed(seed)
    vae.latents_mean.normal_(0, 0.3, generator=generator)
    vae.latents_std.uniform_(0.5, 1.5, generator=generator)
    return vae


def _connectors():
    sizes = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1}
    return LTX2TextConnectors(
        caption_channels=encoders.WIDTH,
        text_proj_in_factor=encoders.SIZES["num_hidden_layers"] + 1,
        rope_double_precision=False,
        **{f"video_connector_{name}": size for name, size in sizes.items()},
        **{f"audio_connector_{name}": size for name, size in sizes.items()},
    )


def _transformer():
    return LTX2VideoTransformer3DModel(
        in_channels=LATENT,
        out_channels=LATENT,
        num_attention_heads=2,
        attention_head_dim=16,
        cross_attention_dim=32,
        audio_in_channels=AUDIO_TOKEN,
        audio_out_channels=AUDIO_TOKEN,
        audio_num_attention_heads=2,
        audio_attention_head_dim=8,
        audio_cross_attention_dim=16,
        num_layers=2,
        caption_channels=encoders.WIDTH,
        rope_double_precision=False,
    )


def _vocoder():
    return LTX2Vocoder(
        in_channels=2 * MELS,
        hidden_channels=32,
        upsample_kernel_sizes=[16, 15, 8, 4],
        upsample_factors=[6, 5, 4, 2],
        resnet_kernel_sizes=[3],
        resnet_dilations=[[1, 3]],
    )
