"""Flux.1's transformer over rows of any size at once: tokens concatenated, none padded.

`FluxTransformer2DModel` has one set of positions for all rows of a batch. Here every row brings its
own, and its own modulation; only attention goes row by row, and the layers are the model's own
submodules. What Kontext refers to are further tokens of a row, with positions of their own.

Source: `FluxTransformer2DModel.forward`, `FluxTransformerBlock.forward`,
`FluxSingleTransformerBlock.forward` and `FluxAttnProcessor` in diffusers 0.42.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers.transformer_flux import (
    FluxAttnProcessor,
    FluxTransformer2DModel,
)

from .packed_blocks import (
    Rotate,
    Stream,
    clip,
    double_stream,
    has_processors,
    modulate,
    norm_out,
    self_attention,
)
from .packed_rows import PackedRows, PackedTransformer, given

_USED = {
    "hidden_states",
    "encoder_hidden_states",
    "pooled_projections",
    "timestep",
    "guidance",
    "img_ids",
    "txt_ids",
    "return_dict",
}

_BY_ROW = re.compile(r"^time_text_embed\.|\.norm(1|1_context)?\.linear$|^norm_out\.")
_JOINT = re.compile(r"^single_")
_BY_TEXT = re.compile(r"^context_embedder$|\.ff_context\.|\.add_[qkv]_proj$|\.to_add_out$")
"""Layers by what is on their dim 0; the others have tokens of pictures there."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a call.

    Attributes:
        image: tokens of its pictures `[n, channels]`.
        text: tokens of its prompt `[t, features]`.
        ids: positions of the text's tokens and of the pictures' `[t + n, axes]`.
        pooled: the prompt as a whole `[features]`.
        timestep: a scalar in 0..1.
        guidance: a scalar; None: the model has none.
    """

    image: torch.Tensor
    text: torch.Tensor
    ids: torch.Tensor
    pooled: torch.Tensor
    timestep: torch.Tensor
    guidance: torch.Tensor | None


class FluxPacked(PackedTransformer[_Row]):
    """See `PackedForward`."""

    def accepts(self, module: Any, arguments: Mapping[str, Any]) -> bool:
        """Text and pictures to picture: no ControlNet, no IP-Adapter, attention as it comes."""
        return (
            type(module) is FluxTransformer2DModel
            and given(arguments) <= _USED
            and arguments.get("return_dict") is False
            and (arguments.get("guidance") is not None) == module.config.guidance_embeds
            and _ids_fit(arguments.get("txt_ids"), arguments["encoder_hidden_states"])
            and _ids_fit(arguments.get("img_ids"), arguments["hidden_states"])
            and has_processors((block.attn for block in _blocks(module)), FluxAttnProcessor)
        )

    def rows_of(self, call: Mapping[str, Any]) -> Iterator[_Row]:
        """See `PackedTransformer.rows_of`."""
        images = call["hidden_states"]
        guidance, count = call.get("guidance"), len(images)
        ids = torch.cat([call["txt_ids"], call["img_ids"]])
        parts = zip(
            images,
            call["encoder_hidden_states"],
            call["pooled_projections"],
            call["timestep"].expand(count),
            [None] * count if guidance is None else guidance.expand(count),
            strict=True,
        )
        for image, text, pooled, timestep, scale in parts:
            yield _Row(image, text, ids, pooled, timestep, scale)

    def forward(self, module: Any, own: Sequence[_Row], rows: PackedRows) -> torch.Tensor:
        """See `PackedTransformer.forward`."""
        image = module.x_embedder(torch.cat([row.image for row in own]))
        temb = _time(module, own, image.dtype)
        text = module.context_embedder(torch.cat([row.text for row in own]))
        rotate = _rotary(module, own)
        for block in module.transformer_blocks:
            image, text = _double(block, image, text, temb, rows, rotate)
        joint = rows.join(text, image)
        joint_row = rows.join(rows.text_row, rows.image_row)
        for block in module.single_transformer_blocks:
            joint = _single(block, joint, temb, joint_row, rows, rotate)
        image = norm_out(module.norm_out, rows.image_of(rows.by_run(joint)), temb, rows.image_row)
        return module.proj_out(image)

    def row_map(
        self, module: Any, calls: Sequence[Mapping[str, Any]]
    ) -> Callable[[str], torch.Tensor]:
        """See `RowMap`: tokens of pictures, of texts or of both, or rows themselves."""
        rows = self.layout(calls)
        by_row = torch.tensor(rows.order)
        by_text, by_image = by_row[rows.text_row], by_row[rows.image_row]
        joint = rows.join(by_text, by_image)

        def owners(layer: str) -> torch.Tensor:
            if _BY_ROW.search(layer):
                return by_row
            if _JOINT.search(layer):
                return joint
            return by_text if _BY_TEXT.search(layer) else by_image

        return owners


def _blocks(module: Any) -> Iterator[Any]:
    yield from module.transformer_blocks
    yield from module.single_transformer_blocks


def _ids_fit(ids: Any, tokens: torch.Tensor) -> bool:
    """Whether there is a position `[tokens, axes]` for each token of a row."""
    return isinstance(ids, torch.Tensor) and ids.ndim == 2 and len(ids) == tokens.shape[1]


def _time(module: Any, own: Sequence[_Row], dtype: torch.dtype) -> torch.Tensor:
    """The embedding of time, guidance and whole prompts `[rows, channels]`."""
    scales = [torch.stack([row.timestep for row in own])]
    if module.config.guidance_embeds:
        scales.append(torch.stack([row.guidance for row in own if row.guidance is not None]))
    pooled = torch.stack([row.pooled for row in own])
    return module.time_text_embed(*(scale.to(dtype) * 1000 for scale in scales), pooled)


def _rotary(module: Any, own: Sequence[_Row]) -> Rotate:
    rope = module.pos_embed(torch.cat([row.ids for row in own]))

    def rotate(x: torch.Tensor) -> torch.Tensor:
        return apply_rotary_emb(x[None], rope, sequence_dim=1)[0]

    return rotate


def _double(
    block: Any,
    image: torch.Tensor,
    text: torch.Tensor,
    temb: torch.Tensor,
    rows: PackedRows,
    rotate: Rotate,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of pictures and of texts after a block that has a stream for each."""
    text, image = double_stream(
        block.attn,
        Stream(
            text,
            _modulation(block.norm1_context, temb),
            rows.text_row,
            block.norm1_context.norm,
            block.norm2_context,
            block.ff_context,
        ),
        Stream(
            image,
            _modulation(block.norm1, temb),
            rows.image_row,
            block.norm1.norm,
            block.norm2,
            block.ff,
        ),
        rows,
        rotate,
    )
    return image, clip(text)


def _single(
    block: Any,
    joint: torch.Tensor,
    temb: torch.Tensor,
    joint_row: torch.Tensor,
    rows: PackedRows,
    rotate: Rotate,
) -> torch.Tensor:
    """Joint tokens after a block with one stream: attention and MLP side by side."""
    inner, gate = modulate(block.norm.norm(joint), _modulation(block.norm, temb), joint_row)
    mlp = block.act_mlp(block.proj_mlp(inner))
    out = torch.cat([self_attention(block.attn, inner, rows, rotate), mlp], dim=-1)
    return clip(torch.addcmul(joint, gate, block.proj_out(out)))


def _modulation(norm: Any, temb: torch.Tensor) -> torch.Tensor:
    """Shifts, scales and gates of each row, by an `AdaLayerNormZero`."""
    return norm.linear(norm.silu(temb))
