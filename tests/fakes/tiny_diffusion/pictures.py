"""Checkpoints of further picture families: Z-Image, SD3, SDXL and ERNIE-Image."""

from diffusers import (
    ControlNetModel,
    ErnieImagePipeline,
    ErnieImageTransformer2DModel,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)

from . import encoders, tokens, vaes
from .weights import denoiser


def z_image(folder, seed=0):
    """Z-Image: prompts and pictures of any size in one list."""
    tokenizer = tokens.qwen()
    transformer = ZImageTransformer2DModel(
        in_channels=16,
        dim=48,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=encoders.WIDTH,
        axes_dims=[8, 8, 8],
        axes_lens=[1024, 64, 64],
    )
    ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vaes.kl16(seed, scaling_factor=0.3611, shift_factor=0.1159),
        text_encoder=encoders.qwen3(tokenizer, seed + 1),
        tokenizer=tokenizer,
        transformer=denoiser(transformer, seed + 2),
    ).save_pretrained(folder)


def sd3(folder, seed=0):
    """Stable Diffusion 3: two CLIPs side by side, and T5 as wide as both."""
    clip, t5 = tokens.clip(), tokens.t5()
    both = 2 * encoders.WIDTH
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=2,
        in_channels=16,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        caption_projection_dim=32,
        joint_attention_dim=both,
        pooled_projection_dim=both,
        out_channels=16,
        pos_embed_max_size=32,
    )
    StableDiffusion3Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vaes.kl16(seed, scaling_factor=1.5305, shift_factor=0.0609),
        text_encoder=encoders.clip_text(clip, seed + 1, projected=True),
        tokenizer=clip,
        text_encoder_2=encoders.clip_text(clip, seed + 2, projected=True),
        tokenizer_2=tokens.clip(),
        text_encoder_3=encoders.t5(t5, seed + 3, width=both),
        tokenizer_3=t5,
        transformer=denoiser(transformer, seed + 4),
    ).save_pretrained(folder)


def sdxl_controlnet(folder, seed=0):
    """`sdxl` with a ControlNet in the folder `controlnet` beside its components."""
    sdxl(folder, seed)
    unet = UNet2DConditionModel.from_pretrained(folder / "unet")
    controlnet = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(8, 8, 8, 8))
    denoiser(controlnet, seed + 10).save_pretrained(folder / "controlnet")


def sdxl(folder, seed=0):
    """Stable Diffusion XL: a UNet that is told sizes and crops."""
    clip = tokens.clip()
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 2, 2),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 1, 1),
        projection_class_embeddings_input_dim=6 * 8 + encoders.WIDTH,
        cross_attention_dim=2 * encoders.WIDTH,
        norm_num_groups=4,
    )
    StableDiffusionXLPipeline(
        scheduler=EulerDiscreteScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            steps_offset=1,
            timestep_spacing="leading",
        ),
        vae=vaes.kl(seed, latent_channels=4, scaling_factor=0.13025),
        text_encoder=encoders.clip_text(clip, seed + 1),
        tokenizer=clip,
        text_encoder_2=encoders.clip_text(clip, seed + 2, projected=True),
        tokenizer_2=tokens.clip(),
        unet=denoiser(unet, seed + 3),
        add_watermarker=False,
    ).save_pretrained(folder)


def ernie_image(folder, seed=0):
    """ERNIE-Image: prompts of any length side by side, and Flux 2's VAE."""
    tokenizer = tokens.qwen(special=["[IMG]"])
    transformer = ErnieImageTransformer2DModel(
        hidden_size=48,
        num_attention_heads=2,
        num_layers=2,
        ffn_hidden_size=48,
        text_in_dim=encoders.WIDTH,
        rope_axes_dim=(8, 8, 8),
    )
    ErnieImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vaes.flux2(seed),
        text_encoder=encoders.mistral3(tokenizer, seed + 1, layers=2).model,
        tokenizer=tokenizer,
        transformer=denoiser(transformer, seed + 2),
    ).save_pretrained(folder)
