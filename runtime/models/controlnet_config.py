"""The config of a ControlNet whose file has none: its model's, and what its tensors say beyond.

A ControlNet begins as a copy of a part of its model's denoiser, so that most of its config is the
denoiser's. How deep it is, and how it takes its picture, shows in names and shapes.

Source: diffusers, `ControlNetModel.from_unet` and `QwenImageControlNetModel.from_transformer`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .tensor_file import TensorInfo

Tensors = Mapping[str, TensorInfo]
"""By name, without the prefix that a file has for all of them."""

Config = dict[str, Any]

DENOISERS: Final = {"ControlNetModel": "unet", "QwenImageControlNetModel": "transformer"}
"""By the class of a ControlNet, the component that it begins as a copy of."""

_OF_UNET: Final = (
    "in_channels",
    "flip_sin_to_cos",
    "freq_shift",
    "only_cross_attention",
    "block_out_channels",
    "layers_per_block",
    "downsample_padding",
    "mid_block_scale_factor",
    "act_fn",
    "norm_num_groups",
    "norm_eps",
    "cross_attention_dim",
    "encoder_hid_dim",
    "encoder_hid_dim_type",
    "attention_head_dim",
    "num_attention_heads",
    "use_linear_projection",
    "class_embed_type",
    "addition_embed_type",
    "addition_time_embed_dim",
    "num_class_embeds",
    "upcast_attention",
    "resnet_time_scale_shift",
    "projection_class_embeddings_input_dim",
)
_OF_TRANSFORMER: Final = (
    "patch_size",
    "in_channels",
    "out_channels",
    "attention_head_dim",
    "num_attention_heads",
    "joint_attention_dim",
    "axes_dims_rope",
)

_ATTENTIVE, _PLAIN = "CrossAttnDownBlock2D", "DownBlock2D"

_DOWN: Final = re.compile(
    r"down_blocks\.(?P<block>\d+)\.attentions\.\d+\.(transformer_blocks\.(?P<layer>\d+)\.)?"
    r"|input_blocks\.(?P<input>\d+)\.1\.(transformer_blocks\.(?P<old_layer>\d+)\.)?"
)
_MIDDLE: Final = re.compile(
    r"(mid_block\.attentions\.0|middle_block\.1)\.(norm|transformer_blocks\.(?P<layer>\d+))\."
)
_LAYER: Final = re.compile(r"transformer_blocks\.(?P<layer>\d+)\.")


def controlnet_config(made_for: str, tensors: Tensors, denoiser: Mapping[str, Any]) -> Config:
    """The config of a ControlNet.

    Args:
        made_for: its class, one of `DENOISERS`.
        tensors: in diffusers' names or in those it was published with.
        denoiser: config of the model's own.

    Raises:
        ValueError: it is for a denoiser of other sizes; names a tensor and both shapes.
        KeyError: the denoiser's config lacks a size.
    """
    make = _for_unet if made_for == "ControlNetModel" else _for_transformer
    return {"_class_name": made_for, **make(tensors, denoiser)}


def _for_unet(tensors: Tensors, unet: Mapping[str, Any]) -> Config:
    first, *_, last = unet["block_out_channels"]
    sizes = unet["projection_class_embeddings_input_dim"]
    _check(
        tensors,
        {
            ("conv_in.weight", "input_blocks.0.0.weight"): (first, unet["in_channels"], 3, 3),
            ("add_embedding.linear_1.weight", "label_emb.0.0.weight"): (4 * first, sizes),
            ("controlnet_mid_block.weight", "middle_block_out.0.weight"): (last, last, 1, 1),
        },
    )
    down = _depths(tensors, unet["layers_per_block"])
    middle = [match["layer"] for name in tensors if (match := _MIDDLE.match(name))]
    blocks = range(len(unet["block_out_channels"]))
    depths = [down.get(block, 1) for block in blocks]
    if middle:  # it is as deep as the last block: that one has no attention, or the same
        depths[-1] = _depth(middle)
    picture = _picture_layers(tensors)
    return {
        **_shared(unet, _OF_UNET),
        "down_block_types": [_ATTENTIVE if block in down else _PLAIN for block in blocks],
        "mid_block_type": "UNetMidBlock2DCrossAttn" if middle else "UNetMidBlock2D",
        "transformer_layers_per_block": depths,
        "conditioning_channels": picture[0].shape[1],
        "conditioning_embedding_out_channels": [layer.shape[0] for layer in picture[::2]],
    }


def _for_transformer(tensors: Tensors, transformer: Mapping[str, Any]) -> Config:
    width = transformer["num_attention_heads"] * transformer["attention_head_dim"]
    channels = transformer["in_channels"]
    text = transformer["joint_attention_dim"]
    names = ("img_in.weight", "txt_in.weight", "controlnet_x_embedder.weight")
    shapes = ((width, channels), (width, text), (width, channels))
    _check(tensors, {(n, n): shape for n, shape in zip(names, shapes, strict=True)})
    layers = [match["layer"] for name in tensors if (match := _LAYER.match(name))]
    return {
        **_shared(transformer, _OF_TRANSFORMER),
        "num_layers": _depth(layers),
        "extra_condition_channels": 0,
    }


def _depths(tensors: Tensors, layers_per_block: int) -> dict[int, int]:
    """Transformer layers in a row, by block on the way down; blocks without attention lack."""
    found: dict[int, list[str | None]] = {}
    for name in tensors:
        match = _DOWN.match(name)
        if match is None:
            continue
        if match["input"] is None:
            block = int(match["block"])
        else:  # the first is the one before all blocks; each block ends by halving the sides
            block = (int(match["input"]) - 1) // (layers_per_block + 1)
        found.setdefault(block, []).append(match["layer"] or match["old_layer"])
    return {block: _depth(layers) for block, layers in found.items()}


def _depth(layers: Sequence[str | None]) -> int:
    return max((int(layer) + 1 for layer in layers if layer is not None), default=0)


def _picture_layers(tensors: Tensors) -> list[TensorInfo]:
    """The convolutions that take the picture, but for the last: every second one is wider."""
    new = ["controlnet_cond_embedding.conv_in.weight"]
    new += [f"controlnet_cond_embedding.blocks.{i}.weight" for i in range(len(tensors))]
    old = [f"input_hint_block.{2 * i}.weight" for i in range(7)]
    names = new if new[0] in tensors else old
    return [tensors[name] for name in names if name in tensors]


def _shared(config: Mapping[str, Any], names: Sequence[str]) -> Config:
    return {name: config[name] for name in names if name in config}


def _check(tensors: Tensors, expected: Mapping[tuple[str, str], tuple[int, ...]]) -> None:
    for names, shape in expected.items():
        name = next((name for name in names if name in tensors), names[0])
        have = tensors[name].shape if name in tensors else None
        if have != shape:
            shown = "missing" if have is None else f"of shape {list(have)}"
            raise ValueError(
                f"is for another model or size: {name} is {shown}, and this model's has "
                f"{list(shape)}"
            )
