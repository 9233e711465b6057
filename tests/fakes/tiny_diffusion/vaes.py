"""VAEs of the real classes: the compression and latent channels of the real ones, narrow inside."""

from diffusers import (
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    AutoencoderKLWan,
)

from .weights import effective

CAUSAL = {
    "base_dim": 6,
    "z_dim": 16,
    "dim_mult": [1, 1, 1, 1],
    "num_res_blocks": 1,
    "temperal_downsample": [False, True, True],
}
BLOCKS = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (8,) * 4,
    "norm_num_groups": 4,
    "layers_per_block": 1,
}


def kl(seed, **config):
    """The picture VAE of Flux, SD3, SDXL and Z-Image, 8x; `config` says what differs."""
    return effective(AutoencoderKL(**BLOCKS, **config), seed)


def kl16(seed, scaling_factor, shift_factor):
    """`kl` with 16 latent channels and no convolutions about the latent."""
    return kl(
        seed,
        latent_channels=16,
        scaling_factor=scaling_factor,
        shift_factor=shift_factor,
        use_quant_conv=False,
        use_post_quant_conv=False,
        force_upcast=False,
    )


def flux2(seed):
    """8x, and its latents are normalised by statistics of 2x2 patches."""
    return effective(AutoencoderKLFlux2(**BLOCKS), seed)


def qwen_image(seed, channels=3):
    """8x; `channels` is 4 where pictures have an alpha channel."""
    return effective(AutoencoderKLQwenImage(**CAUSAL, input_channels=channels), seed)


def wan(seed, **config):
    """8x, and 4x in time; `config` says what differs."""
    return effective(AutoencoderKLWan(**{**CAUSAL, **config}), seed)
