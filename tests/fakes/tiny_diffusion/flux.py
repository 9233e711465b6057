"""Checkpoints of the Flux families."""

from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Pipeline,
    Flux2Transformer2DModel,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
)
from transformers import PixtralImageProcessor, PixtralProcessor, PreTrainedTokenizerFast

from . import encoders, tokens, vaes
from .weights import denoiser

SHIFTING = {
    "base_image_seq_len": 256,
    "base_shift": 0.5,
    "max_image_seq_len": 4096,
    "max_shift": 1.15,
    "shift": 3.0,
    "use_dynamic_shifting": True,
}
FLUX = {
    "patch_size": 1,
    "in_channels": 64,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": encoders.WIDTH,
    "pooled_projection_dim": encoders.WIDTH,
    "guidance_embeds": True,
    "axes_dims_rope": (4, 6, 6),
}
FLUX2 = {
    "patch_size": 1,
    "in_channels": 128,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 3 * encoders.WIDTH,
    "axes_dims_rope": (4, 4, 4, 4),
}
FLUX2_LAYERS = 31
"""The pipeline reads the states after layers 10, 20 and 30 unless told otherwise."""
KLEIN_LAYERS = 28
"""As above: 9, 18 and 27."""
PICTURE = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]


def flux(folder, seed=0):
    """Text to image with embedded guidance (Flux.1 dev)."""
    FluxPipeline(**_flux(seed)).save_pretrained(folder)


def flux_kontext(folder, seed=0):
    """Edits a picture."""
    FluxKontextPipeline(**_flux(seed)).save_pretrained(folder)


def flux2(folder, seed=0):
    """Flux.2 dev: guidance is embedded, the text encoder sees pictures."""
    processor = _pixtral()
    Flux2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**SHIFTING),
        vae=vaes.flux2(seed),
        text_encoder=encoders.mistral3(processor.tokenizer, seed + 1, FLUX2_LAYERS),
        tokenizer=processor,
        transformer=denoiser(Flux2Transformer2DModel(**FLUX2, guidance_embeds=True), seed + 2),
    ).save_pretrained(folder)


def flux2_klein(folder, seed=0):
    """Distilled to few steps, without guidance."""
    _klein(seed, is_distilled=True).save_pretrained(folder)


def flux2_klein_base(folder, seed=0):
    """Not distilled: guided by a second prediction."""
    _klein(seed, is_distilled=False).save_pretrained(folder)


def _flux(seed):
    tokenizer, tokenizer_2 = tokens.clip(), tokens.t5()
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(**SHIFTING),
        "vae": vaes.kl16(seed, scaling_factor=0.3611, shift_factor=0.1159),
        "text_encoder": encoders.clip_text(tokenizer, seed + 1),
        "tokenizer": tokenizer,
        "text_encoder_2": encoders.t5(tokenizer_2, seed + 2),
        "tokenizer_2": tokenizer_2,
        "transformer": denoiser(FluxTransformer2DModel(**FLUX), seed + 3),
    }


def _klein(seed, is_distilled):
    tokenizer = tokens.qwen()
    return Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**SHIFTING),
        vae=vaes.flux2(seed),
        text_encoder=encoders.qwen3(tokenizer, seed + 1, KLEIN_LAYERS),
        tokenizer=tokenizer,
        transformer=denoiser(Flux2Transformer2DModel(**FLUX2, guidance_embeds=False), seed + 2),
        is_distilled=is_distilled,
    )


def _pixtral():
    special = ["<unk>", "<s>", "</s>", "<pad>", *PICTURE]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens.qwen(special).backend_tokenizer,
        additional_special_tokens=special,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side="left",
        model_max_length=4096,
    )
    tokenizer.chat_template = tokens.chat_template({"image": "[IMG]"})
    return PixtralProcessor(
        image_processor=PixtralImageProcessor(
            size={"longest_edge": 56}, patch_size={"height": 14, "width": 14}
        ),
        tokenizer=tokenizer,
        patch_size=14,
        chat_template=tokenizer.chat_template,
    )
