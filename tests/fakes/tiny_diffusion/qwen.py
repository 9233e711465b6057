"""Checkpoints of the Qwen-Image family."""

from diffusers import (
    AutoencoderKLQwenImage21,
    FlowMatchEulerDiscreteScheduler,
    QwenImage21Pipeline,
    QwenImage21Transformer2DModel,
    QwenImageControlNetModel,
    QwenImageEditPipeline,
    QwenImageEditPlusPipeline,
    QwenImageLayeredPipeline,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
)
from transformers import (
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from . import encoders, tokens, vaes
from .weights import denoiser, effective

TRANSFORMER = {
    "patch_size": 2,
    "in_channels": 64,
    "out_channels": 16,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": encoders.WIDTH,
    "axes_dims_rope": (4, 6, 6),
}
SCHEDULER = {
    "base_image_seq_len": 256,
    "base_shift": 0.5,
    "max_image_seq_len": 8192,
    "max_shift": 0.9,
    "shift_terminal": 0.02,
    "time_shift_type": "exponential",
    "use_dynamic_shifting": True,
}


def qwen_image(folder, seed=0):
    """Text to image."""
    QwenImagePipeline(**_components(seed)).save_pretrained(folder)


def qwen_image_controlnet(folder, seed=0):
    """`qwen_image` with a ControlNet in the folder `controlnet` beside its components."""
    qwen_image(folder, seed)
    controlnet = QwenImageControlNetModel(
        **{**TRANSFORMER, "num_layers": 1}, extra_condition_channels=0
    )
    denoiser(controlnet, seed + 10).save_pretrained(folder / "controlnet")


def qwen_image_edit(folder, seed=0):
    """Edits one picture."""
    components = _components(seed)
    QwenImageEditPipeline(
        **components, processor=_processor(components["tokenizer"])
    ).save_pretrained(folder)


def qwen_image_edit_plus(folder, seed=0, **transformer):
    """Edits by several pictures (the checkpoint that is known as 2509)."""
    components = _components(seed, **transformer)
    QwenImageEditPlusPipeline(
        **components, processor=_processor(components["tokenizer"])
    ).save_pretrained(folder)


def qwen_image_edit_2511(folder, seed=0):
    """As 2509, but for its transformer reference pictures are at time zero."""
    qwen_image_edit_plus(folder, seed, zero_cond_t=True)


def qwen_image_layered(folder, seed=0):
    """Takes a picture apart into layers with alpha."""
    components = _components(seed, channels=4, use_additional_t_cond=True, use_layer3d_rope=True)
    QwenImageLayeredPipeline(
        **components, processor=_processor(components["tokenizer"])
    ).save_pretrained(folder)


def qwen_image_21(folder, seed=0):
    """Text to picture, and edits one; pictures have alpha."""
    QwenImage21Pipeline(**_components_21(seed)).save_pretrained(folder)


def qwen_image_21_turbo(folder, seed=0):
    """The same, distilled to few steps at noise levels of its own."""
    sigmas = [1.0, 0.6, 0.2]
    QwenImage21Pipeline(**_components_21(seed), sample_sigmas=sigmas).save_pretrained(folder)


def _components_21(seed):
    tokenizer = tokens.qwen()
    vae = AutoencoderKLQwenImage21(
        base_dim=6,
        decoder_base_dim=6,
        dim_mult=[1, 1, 1, 1, 1],
        num_res_blocks=1,
    )
    transformer = QwenImage21Transformer2DModel(
        patch_size=1,
        in_channels=64,
        out_channels=64,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        context_in_dim=encoders.WIDTH,
        axes_dims_rope=(4, 6, 6),
    )
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        "vae": effective(vae, seed),
        "text_encoder": encoders.qwen3_vl(tokenizer, seed + 1, layers=2),
        "processor": Qwen3VLProcessor(
            # its patches are to be as many as the VAE's latents say
            image_processor=Qwen2VLImageProcessor(patch_size=16, min_pixels=32 * 32),
            tokenizer=tokenizer,
            video_processor=Qwen3VLVideoProcessor(),
            chat_template=tokenizer.chat_template,
        ),
        "transformer": denoiser(transformer, seed + 2),
    }


def _components(seed, channels=3, **transformer):
    tokenizer = tokens.qwen()
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        "vae": vaes.qwen_image(seed, channels),
        "text_encoder": encoders.qwen25_vl(tokenizer, seed + 1),
        "tokenizer": tokenizer,
        "transformer": denoiser(
            QwenImageTransformer2DModel(**TRANSFORMER, **transformer), seed + 2
        ),
    }


def _processor(tokenizer):
    """It shrinks pictures to few patches."""
    return Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(),
        chat_template=tokenizer.chat_template,
    )
