"""Names and shapes that tell what a file of tensors holds.

Names come in two spellings: the one the model was published with, which ComfyUI keeps, and
diffusers' own. Shapes of the published models are facts; `tests/runtime/models/test_configs.py`
compares them with the configs in `configs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Shape = tuple[int, ...] | None
"""None: there is no such tensor."""


class _HasShape(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Variant:
    """A published model.

    Attributes:
        config: its folder in `configs`.
        shapes: of the signature's probes, in their order.
    """

    config: str
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """How to tell one kind of component.

    Attributes:
        words: what it is.
        component: `transformer`, `unet`, `vae`, `text_encoder` or `controlnet`.
        classes: that load it; none: this runtime does not serve it.
        marks: alternatives; a file with all names of one is of this kind.
        probes: names of tensors whose shapes tell the variants apart, in both spellings.
        variants: the published models; of one shape, the first is meant.
    """

    words: str
    component: str
    classes: tuple[str, ...]
    marks: tuple[tuple[str, ...], ...]
    probes: tuple[tuple[str, str], ...] = ()
    variants: tuple[Variant, ...] = ()

    def fits(self, tensors: Mapping[str, object]) -> bool:
        """Whether tensors of these names are of this kind."""
        return any(all(name in tensors for name in names) for names in self.marks)

    def variant(self, tensors: Mapping[str, _HasShape]) -> Variant | None:
        """The published model with these shapes."""
        shapes = tuple(_shape(tensors, names) for names in self.probes)
        return next((known for known in self.variants if known.shapes == shapes), None)


def _shape(tensors: Mapping[str, _HasShape], names: tuple[str, str]) -> Shape:
    found = next((tensors[name] for name in names if name in tensors), None)
    return None if found is None else tuple(found.shape)


_DENOISERS = (
    Signature(
        "the transformer of FLUX.2",
        "transformer",
        ("Flux2Transformer2DModel",),
        (
            ("double_stream_modulation_img.lin.weight",),
            ("double_stream_modulation_img.linear.weight",),
        ),
        (("img_in.weight", "x_embedder.weight"), ("txt_in.weight", "context_embedder.weight")),
        (
            Variant("flux2-klein-4b", ((3072, 128), (3072, 7680))),
            Variant("flux2-klein-9b", ((4096, 128), (4096, 12288))),
        ),
    ),
    Signature(
        "the transformer of Chroma",
        "transformer",
        (),
        (("distilled_guidance_layer.norms.0.scale",),),
    ),
    Signature(
        "the transformer of FLUX.1",
        "transformer",
        ("FluxTransformer2DModel",),
        (
            ("double_blocks.0.img_attn.norm.query_norm.scale", "vector_in.in_layer.weight"),
            (
                "transformer_blocks.0.attn.norm_added_q.weight",
                "single_transformer_blocks.0.proj_mlp.weight",
                "time_text_embed.text_embedder.linear_1.weight",
            ),
        ),
        (
            ("img_in.weight", "x_embedder.weight"),
            (
                "guidance_in.in_layer.weight",
                "time_text_embed.guidance_embedder.linear_1.weight",
            ),
            ("double_blocks.18.img_mlp.0.weight", "transformer_blocks.18.ff.net.0.proj.weight"),
        ),
        (
            Variant("flux-dev", ((3072, 64), (3072, 256), (12288, 3072))),
            Variant("flux-schnell", ((3072, 64), None, (12288, 3072))),
        ),
    ),
    Signature(
        "the transformer of Qwen-Image",
        "transformer",
        ("QwenImageTransformer2DModel",),
        (("transformer_blocks.0.img_mod.1.weight", "txt_norm.weight"),),
        (
            ("img_in.weight", "img_in.weight"),
            ("txt_in.weight", "txt_in.weight"),
            ("transformer_blocks.59.attn.to_q.weight",) * 2,
        ),
        (Variant("qwen-image", ((3072, 64), (3072, 3584), (3072, 3072))),),
    ),
    Signature(
        "the transformer of Z-Image",
        "transformer",
        ("ZImageTransformer2DModel",),
        (
            ("x_pad_token", "noise_refiner.0.attention.qkv.weight"),
            ("x_pad_token", "all_x_embedder.2-1.weight"),
        ),
        (
            ("x_embedder.weight", "all_x_embedder.2-1.weight"),
            ("cap_embedder.1.weight",) * 2,
            ("layers.29.feed_forward.w1.weight",) * 2,
        ),
        (Variant("z-image-turbo", ((3840, 64), (3840, 2560), (10240, 3840))),),
    ),
    Signature(
        "the transformer of Stable Diffusion 3",
        "transformer",
        ("SD3Transformer2DModel",),
        (
            ("joint_blocks.0.x_block.attn.qkv.weight", "y_embedder.mlp.0.weight"),
            ("pos_embed.pos_embed", "transformer_blocks.0.attn.add_q_proj.weight"),
        ),
        (
            ("x_embedder.proj.weight", "pos_embed.proj.weight"),
            ("pos_embed", "pos_embed.pos_embed"),
        ),
        (
            Variant("sd3-medium", ((1536, 16, 2, 2), (1, 36864, 1536))),
            Variant("sd3.5-medium", ((1536, 16, 2, 2), (1, 147456, 1536))),
            Variant("sd3.5-large", ((2432, 16, 2, 2), (1, 36864, 2432))),
        ),
    ),
    Signature(
        "the UNet of Stable Diffusion XL",
        "unet",
        ("UNet2DConditionModel",),
        (
            ("label_emb.0.0.weight", "input_blocks.8.1.transformer_blocks.0.attn2.to_k.weight"),
            ("add_embedding.linear_1.weight", "conv_in.weight", "conv_norm_out.weight"),
        ),
        (
            ("input_blocks.0.0.weight", "conv_in.weight"),
            ("label_emb.0.0.weight", "add_embedding.linear_1.weight"),
            (
                "input_blocks.8.1.transformer_blocks.9.attn2.to_k.weight",
                "down_blocks.2.attentions.1.transformer_blocks.9.attn2.to_k.weight",
            ),
        ),
        (Variant("sdxl", ((320, 4, 3, 3), (1280, 2816), (1280, 2048))),),
    ),
    Signature(
        "the UNet of Stable Diffusion 1 or 2",
        "unet",
        (),
        (("input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", "out.2.weight"),),
    ),
    Signature(
        "the UNet of the refiner of Stable Diffusion XL",
        "unet",
        (),
        (("label_emb.0.0.weight", "input_blocks.0.0.weight"),),
    ),
    Signature(
        "the transformer of Wan VACE",
        "transformer",
        ("WanVACETransformer3DModel",),
        (("vace_blocks.0.after_proj.weight",), ("vace_blocks.0.proj_out.weight",)),
    ),
    Signature(
        "the transformer of Wan",
        "transformer",
        ("WanTransformer3DModel",),
        (
            ("head.modulation", "text_embedding.0.weight"),
            ("condition_embedder.time_proj.weight", "blocks.0.attn2.norm_q.weight"),
        ),
        (
            ("patch_embedding.weight",) * 2,
            ("blocks.29.ffn.0.weight", "blocks.29.ffn.net.0.proj.weight"),
            ("blocks.39.ffn.0.weight", "blocks.39.ffn.net.0.proj.weight"),
            ("img_emb.proj.1.weight", "condition_embedder.image_embedder.ff.net.0.proj.weight"),
        ),
        (
            Variant("wan2.1-t2v-1.3b", ((1536, 16, 1, 2, 2), (8960, 1536), None, None)),
            Variant("wan2.1-t2v-14b", ((5120, 16, 1, 2, 2), (13824, 5120), (13824, 5120), None)),
        ),
    ),
    Signature(
        "the transformer of LTX-2",
        "transformer",
        ("LTX2VideoTransformer3DModel",),
        (("audio_patchify_proj.weight",), ("audio_proj_in.weight",)),
    ),
    Signature(
        "the transformer of LTX-Video",
        "transformer",
        ("LTXVideoTransformer3DModel",),
        (("patchify_proj.weight", "adaln_single.linear.weight"),),
    ),
)

_VAES = (
    Signature(
        "the VAE of FLUX.2",
        "vae",
        ("AutoencoderKLFlux2",),
        (("bn.running_mean", "decoder.conv_in.weight"),),
    ),
    Signature(
        "the VAE of Wan 2.2 (5B)",
        "vae",
        ("AutoencoderKLWan",),
        (("decoder.upsamples.0.upsamples.0.residual.2.weight",),),
    ),
    Signature(
        "the VAE of Wan 2.1 and Qwen-Image",
        "vae",
        ("AutoencoderKLWan", "AutoencoderKLQwenImage"),
        (("decoder.middle.0.residual.0.gamma",), ("decoder.mid_block.resnets.0.norm1.gamma",)),
    ),
    Signature(
        "the VAE of LTX-Video",
        "vae",
        ("AutoencoderKLLTXVideo", "AutoencoderKLLTX2Video"),
        (("decoder.up_blocks.0.res_blocks.0.conv1.conv.weight",),),
    ),
    Signature(
        "a VAE of Stable Diffusion, FLUX.1 or Z-Image",
        "vae",
        ("AutoencoderKL",),
        (
            ("decoder.conv_in.weight", "decoder.up.0.block.0.conv1.weight"),
            ("decoder.conv_in.weight", "decoder.up_blocks.0.resnets.0.conv1.weight"),
        ),
    ),
)

_CLIP = "encoder.layers.{}.mlp.fc1.weight"
_OPEN_CLIP = "transformer.resblocks.{}.mlp.c_fc.weight"
_T5_BIAS = "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight"
_LAYER = "model.layers.0.self_attn.{}"

_TEXT_ENCODERS = (
    Signature(
        "the text encoder CLIP-G",
        "text_encoder",
        ("CLIPTextModelWithProjection",),
        (
            (f"text_model.{_CLIP.format(31)}",),
            (_OPEN_CLIP.format(31),),
        ),
    ),
    Signature(
        "the text encoder CLIP-L",
        "text_encoder",
        ("CLIPTextModel", "CLIPTextModelWithProjection"),
        (
            (f"text_model.{_CLIP.format(0)}",),
            (_CLIP.format(0), "embeddings.token_embedding.weight"),
        ),
    ),
    Signature(
        "the text encoder UMT5",
        "text_encoder",
        ("UMT5EncoderModel",),
        ((_T5_BIAS.format(0), _T5_BIAS.format(1)),),
    ),
    Signature("the text encoder T5", "text_encoder", ("T5EncoderModel",), ((_T5_BIAS.format(0),),)),
    Signature(
        "a text encoder of Gemma's kind",
        "text_encoder",
        ("Gemma2Model", "Gemma3ForConditionalGeneration"),
        (("model.layers.0.post_feedforward_layernorm.weight",),),
    ),
    Signature(
        "the text encoder Qwen2.5-VL",
        "text_encoder",
        ("Qwen2_5_VLForConditionalGeneration",),
        (
            (_LAYER.format("k_proj.bias"),),
            ("model.language_model.layers.0.self_attn.k_proj.bias",),
        ),
    ),
    Signature(
        "a text encoder of Qwen3's kind",
        "text_encoder",
        ("Qwen3Model", "Qwen3ForCausalLM"),
        ((_LAYER.format("q_norm.weight"),), ("layers.0.self_attn.q_norm.weight", "norm.weight")),
    ),
    Signature(
        "a text encoder of Mistral's kind",
        "text_encoder",
        ("Mistral3ForConditionalGeneration", "MistralModel"),
        ((_LAYER.format("k_proj.weight"),),),
    ),
    Signature(
        "a text encoder in the names of llama.cpp",
        "text_encoder",
        (),
        (("blk.0.attn_k.weight",), ("enc.blk.0.attn_k.weight",)),
    ),
)

PARTS: tuple[Signature, ...] = (*_DENOISERS, *_VAES, *_TEXT_ENCODERS)
"""Tried in this order."""

CONTROLNETS: tuple[Signature, ...] = (
    Signature("a Control-LoRA", "controlnet", (), (("lora_controlnet",),)),
    Signature(
        "a ControlNet Union of Stable Diffusion XL",
        "controlnet",
        (),
        (("task_embedding", "control_add_embedding.linear_1.weight"),),
    ),
    Signature(
        "a ControlNet of Stable Diffusion XL",
        "controlnet",
        ("ControlNetModel",),
        (
            ("controlnet_cond_embedding.conv_in.weight", "add_embedding.linear_1.weight"),
            ("input_hint_block.0.weight", "label_emb.0.0.weight"),
        ),
    ),
    Signature(
        "a ControlNet of Stable Diffusion 1 or 2",
        "controlnet",
        (),
        (
            ("controlnet_cond_embedding.conv_in.weight", "controlnet_mid_block.weight"),
            ("input_hint_block.0.weight", "middle_block_out.0.weight"),
        ),
    ),
    Signature(
        "a ControlNet of Qwen-Image",
        "controlnet",
        ("QwenImageControlNetModel",),
        (("controlnet_x_embedder.weight", "transformer_blocks.0.img_mod.1.weight"),),
    ),
    Signature(
        "a ControlNet of FLUX.1",
        "controlnet",
        (),
        (
            ("controlnet_x_embedder.weight", "context_embedder.weight"),
            ("controlnet_blocks.0.weight", "double_blocks.0.img_attn.norm.key_norm.scale"),
        ),
    ),
    Signature(
        "a ControlNet of Stable Diffusion 3",
        "controlnet",
        (),
        (("controlnet_blocks.0.weight", "pos_embed_input.proj.weight"),),
    ),
    Signature(
        "a ControlNet of Z-Image", "controlnet", (), (("control_all_x_embedder.2-1.weight",),)
    ),
)
"""Beside a model's components, so not among `PARTS`; tried in this order."""

CONTROLNET = "a ControlNet"
"""What they are called among `STRANGERS`."""

STRANGERS = tuple(
    (words, re.compile(pattern))
    for words, pattern in (
        (
            "a LoRA",
            r"\.lora_[AB]\.|\.lora_(up|down)\.|\.lora\.(up|down)\.|\.(lokr|hada)_w\d|\.dora_scale",
        ),
        (
            CONTROLNET,
            r"^(control_model|controlnet_|controlnet\.)|input_hint_block\.|^control_layers\.|"
            r"^controlnet_blocks\.",
        ),
        ("an embedding (textual inversion)", r"^(emb_params|string_to_param|clip_[lg]$)"),
        ("an upscaler", r"^(params_ema\.|body\.0\.rdb1|model\.0\.weight$|model\.1\.sub\.)"),
        ("a CLIP vision model", r"^vision_model\.encoder\.layers\.0\."),
    )
)
"""Kinds of files that are no component, by a name that only they have."""

UNLOADED_QUANTISATIONS = tuple(
    (words, re.compile(pattern))
    for words, pattern in (
        ("NVFP4", r"\.weight_scale_2$"),
        ("bitsandbytes", r"\.(quant_state\.bitsandbytes|absmax$|SCB$)"),
        ("SVDQuant", r"\.(qweight|wscales|smooth_factor)$"),
    )
)
"""Quantisations that no loader here reads, by a name that only they have."""
