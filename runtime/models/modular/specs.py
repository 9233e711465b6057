"""How calls of diffusers' and transformers' modules merge, by the module's class.

Each spec is proved by the contract test in `tests/contracts`: a row of it there, a spec here. A
class or an argument that is not here runs alone, which is always right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..call_spec import CallSpec, PackedForward, SpecTable


def _spec(primary: str, *others: str, **more: Any) -> CallSpec:
    """A spec whose primary argument and `others` are per row."""
    return CallSpec(primary=primary, rows=frozenset({primary, *others}), **more)


def _all_zero(value: Any) -> bool:
    return not bool(value.any())


_VAE: Mapping[str, CallSpec] = MappingProxyType({"encode": _spec("x"), "decode": _spec("z")})

_TEXT = CallSpec(primary="input_ids", pad={"input_ids": "attention_mask"}, trim="input_ids")

_LANGUAGE_MODEL = CallSpec(
    primary="input_ids",
    pad={"input_ids": "attention_mask"},
    fixed={"use_cache": False},
    trim="input_ids",
)

_VISION_LANGUAGE_MODEL = CallSpec(
    primary="input_ids",
    joined=frozenset({"pixel_values", "image_grid_thw"}),
    pad={"input_ids": "attention_mask"},
    fixed={"use_cache": False},
    trim="input_ids",
)

_DENOISERS: Mapping[str, CallSpec] = {
    "AnimaTextConditioner": _spec(
        "source_hidden_states",
        "source_attention_mask",
        "target_input_ids",
        "target_attention_mask",
    ),
    "ControlNetModel": _spec(
        "sample", "timestep", "encoder_hidden_states", "controlnet_cond", "added_cond_kwargs"
    ),
    "CosmosTransformer3DModel": _spec(
        "hidden_states",
        "timestep",
        "encoder_hidden_states",
        shared=frozenset({"padding_mask"}),
        deferred=True,
    ),
    "ErnieImageTransformer2DModel": _spec(
        "hidden_states", "timestep", "text_lens", pad={"text_bth": None}, deferred=True
    ),
    "FluxTransformer2DModel": _spec(
        "hidden_states",
        "encoder_hidden_states",
        "pooled_projections",
        "timestep",
        "guidance",
        shared=frozenset({"img_ids", "txt_ids"}),
        deferred=True,
    ),
    # takes the ids of the first row for all rows
    "Flux2Transformer2DModel": _spec(
        "hidden_states",
        "encoder_hidden_states",
        "timestep",
        "guidance",
        shared=frozenset({"img_ids", "txt_ids"}),
        deferred=True,
    ),
    "HeliosTransformer3DModel": _spec(
        "hidden_states",
        "timestep",
        "encoder_hidden_states",
        "indices_hidden_states",
        "indices_latents_history_short",
        "indices_latents_history_mid",
        "indices_latents_history_long",
        "latents_history_short",
        "latents_history_mid",
        "latents_history_long",
        deferred=True,
    ),
    # without any picture, it hides the picture tokens of all rows
    "HunyuanVideo15Transformer3DModel": _spec(
        "hidden_states",
        "timestep",
        "encoder_hidden_states",
        "encoder_attention_mask",
        "encoder_hidden_states_2",
        "encoder_attention_mask_2",
        "image_embeds",
        flags={"image_embeds": _all_zero},
        deferred=True,
    ),
    "Ideogram4Transformer2DModel": _spec(
        "hidden_states",
        "timestep",
        "encoder_hidden_states",
        "position_ids",
        "segment_ids",
        "indicator",
        deferred=True,
    ),
    "Krea2Transformer2DModel": _spec(
        "hidden_states",
        "encoder_hidden_states",
        "encoder_attention_mask",
        "timestep",
        shared=frozenset({"position_ids"}),
        deferred=True,
    ),
    "LTXVideoTransformer3DModel": _spec(
        "hidden_states",
        "timestep",
        "encoder_hidden_states",
        "encoder_attention_mask",
        deferred=True,
    ),
    "LTX2VideoTransformer3DModel": _spec(
        "hidden_states",
        "audio_hidden_states",
        "encoder_hidden_states",
        "audio_encoder_hidden_states",
        "timestep",
        "audio_timestep",
        "sigma",
        "audio_sigma",
        "encoder_attention_mask",
        "audio_encoder_attention_mask",
        "video_coords",
        "audio_coords",
    ),
    # one timestep per noise level and one packed layout for all rows
    "MiniMaxH3Transformer3DModel": _spec(
        "hidden_states",
        "audio_hidden_states",
        "encoder_hidden_states",
        shared=frozenset(
            {
                "timestep",
                "timestep_indices",
                "token_tags",
                "position_ids",
                "video_indices",
                "audio_indices",
                "text_indices",
            }
        ),
    ),
    "MiniMaxMusic3ConditionEncoder": _spec("hidden_states"),
    "MiniMaxMusic3Transformer1DModel": _spec(
        "hidden_states", "timestep", "encoder_hidden_states", deferred=True
    ),
    "QwenImageControlNetModel": _spec(
        "hidden_states",
        "controlnet_cond",
        "timestep",
        lists=frozenset({"img_shapes"}),
        pad={"encoder_hidden_states": "encoder_hidden_states_mask"},
    ),
    "QwenImageTransformer2DModel": _spec(
        "hidden_states",
        "timestep",
        "additional_t_cond",
        "controlnet_block_samples",
        lists=frozenset({"img_shapes"}),
        pad={"encoder_hidden_states": "encoder_hidden_states_mask"},
        deferred=True,
    ),
    # the layout of text and picture tokens is that of the first row
    "QwenImage21Transformer2DModel": _spec(
        "hidden_states",
        "encoder_hidden_states",
        "encoder_hidden_states_mask",
        "timestep",
        lists=frozenset({"img_shapes"}),
        shared=frozenset({"img_mask"}),
        deferred=True,
    ),
    "SD3Transformer2DModel": _spec(
        "hidden_states",
        "encoder_hidden_states",
        "pooled_projections",
        "timestep",
        deferred=True,
    ),
    "UNet2DConditionModel": _spec(
        "sample",
        "timestep",
        "encoder_hidden_states",
        "added_cond_kwargs",
        "down_block_additional_residuals",
        "mid_block_additional_residual",
        deferred=True,
    ),
    "WanTransformer3DModel": _spec(
        "hidden_states",
        "timestep",
        "encoder_hidden_states",
        "encoder_hidden_states_image",
        deferred=True,
    ),
    "WanVACETransformer3DModel": _spec(
        "hidden_states",
        "timestep",
        "encoder_hidden_states",
        "control_hidden_states",
        shared=frozenset({"control_hidden_states_scale"}),
        deferred=True,
    ),
    "ZImageTransformer2DModel": CallSpec(
        primary="x",
        rows=frozenset({"t"}),
        ragged_lists=frozenset({"x", "cap_feats"}),
    ),
}

_ENCODERS: Mapping[str, CallSpec] = {
    "CLIPTextModel": _spec("input_ids"),
    "CLIPTextModelWithProjection": _spec("input_ids"),
    "CLIPVisionModel": _spec("pixel_values"),
    "CLIPVisionModelWithProjection": _spec("pixel_values"),
    "Mistral3ForConditionalGeneration": _LANGUAGE_MODEL,
    "Mistral3Model": _LANGUAGE_MODEL,
    "Qwen2_5_VLForConditionalGeneration": _VISION_LANGUAGE_MODEL,
    "Qwen2_5_VLTextModel": _LANGUAGE_MODEL,
    "Qwen3ForCausalLM": _LANGUAGE_MODEL,
    "Qwen3Model": _LANGUAGE_MODEL,
    "T5EncoderModel": _TEXT,
    "UMT5EncoderModel": _TEXT,
}

_VAES: Mapping[str, Mapping[str, CallSpec]] = {
    "AutoencoderKL": _VAE,
    "AutoencoderKLFlux2": _VAE,
    "AutoencoderKLLTX2Audio": {"decode": _spec("z")},
    "AutoencoderKLLTX2Video": {"encode": _spec("x"), "decode": _spec("z", "temb")},
    "AutoencoderKLQwenImage": _VAE,
    "AutoencoderKLWan": _VAE,
    "LTX2Vocoder": {"__call__": _spec("hidden_states")},
}

SPECS: Mapping[str, Mapping[str, CallSpec]] = MappingProxyType(
    {name: {"__call__": spec} for name, spec in {**_DENOISERS, **_ENCODERS}.items()} | dict(_VAES)
)
"""Specs by class name, then by method."""


def packed_specs(cls: str, packed: PackedForward) -> SpecTable:
    """How calls of a family's `transformer` merge that is of this class and can be packed."""
    return {
        ("transformer", method): replace(spec, packed=packed) for method, spec in SPECS[cls].items()
    }
