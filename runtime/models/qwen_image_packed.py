"""Qwen-Image's transformer over rows of any size at once: tokens concatenated, none padded.

`QwenImageTransformer2DModel` takes one layout of pictures per batch, because its rotary positions
come from the first row only. Here every row brings its own positions and its own modulation, and
only attention goes row by row; the layers are the model's own submodules. A row has one picture or
several: what is to be made, and what it refers to.

Source: `QwenImageTransformer2DModel.forward`, `QwenImageTransformerBlock.forward` and
`QwenDoubleStreamAttnProcessor2_0` in diffusers 0.42.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from diffusers.models.transformers.transformer_qwenimage import (
    QwenDoubleStreamAttnProcessor2_0,
    QwenImageTransformer2DModel,
    apply_rotary_emb_qwen,
)

from .packed_blocks import Rotate, Stream, clip, double_stream, has_processors, norm_out
from .packed_rows import PackedRows, PackedTransformer, given

_USED = {
    "hidden_states",
    "encoder_hidden_states",
    "encoder_hidden_states_mask",
    "timestep",
    "img_shapes",
    "return_dict",
}

_BY_TIME = re.compile(r"^time_text_embed\.|\.img_mod\.")
_BY_ROW = re.compile(r"\.txt_mod\.|^norm_out\.")
_BY_TEXT = re.compile(r"^txt_|\.txt_mlp\.|\.add_[qkv]_proj$|\.to_add_out$")
"""Layers by what is on their dim 0; the others have tokens of pictures there."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a call.

    Attributes:
        image: tokens of its pictures `[n, channels]`.
        text: tokens of its prompt that are not hidden `[t, features]`.
        places: where in the prompt these are, `[t]`; None: from the first on.
        length: of the prompt with the hidden ones.
        timestep: a scalar in 0..1.
        shapes: (frames, height, width) of each picture in tokens; the first is to be made.
    """

    image: torch.Tensor
    text: torch.Tensor
    places: torch.Tensor | None
    length: int
    timestep: torch.Tensor
    shapes: list[tuple[int, int, int]]


class QwenImagePacked(PackedTransformer[_Row]):
    """See `PackedForward`."""

    def accepts(self, module: Any, arguments: Mapping[str, Any]) -> bool:
        """Text and pictures to picture: no ControlNet, no layers, attention as it comes."""
        return (
            type(module) is QwenImageTransformer2DModel
            and given(arguments) <= _USED
            and arguments.get("return_dict") is False
            and _shapes_fit(arguments.get("img_shapes"), arguments["hidden_states"])
            and has_processors(
                (block.attn for block in module.transformer_blocks),
                QwenDoubleStreamAttnProcessor2_0,
            )
        )

    def rows_of(self, call: Mapping[str, Any]) -> Iterator[_Row]:
        """See `PackedTransformer.rows_of`."""
        images, shapes = call["hidden_states"], call["img_shapes"][0]
        mask = call.get("encoder_hidden_states_mask")
        times = call["timestep"].expand(len(images))
        for i, (image, text) in enumerate(zip(images, call["encoder_hidden_states"], strict=True)):
            places = None if mask is None else mask[i].nonzero()[:, 0]
            shown = text if places is None else text[places]
            yield _Row(image, shown, places, len(text), times[i], shapes)

    def forward(self, module: Any, own: Sequence[_Row], rows: PackedRows) -> torch.Tensor:
        """See `PackedTransformer.forward`."""
        image = module.img_in(torch.cat([row.image for row in own]))
        text = module.txt_in(module.txt_norm(torch.cat([row.text for row in own])))
        timestep = torch.stack([row.timestep for row in own]).to(image.dtype)
        modulation = rows.image_row
        if module.zero_cond_t:
            timestep = torch.cat([timestep, timestep * 0])
            modulation = modulation + len(own) * _is_reference(own, image.device)
        temb = module.time_text_embed(timestep, image)
        rotate = _rotary(module, own, image.device)
        for block in module.transformer_blocks:
            image, text = _block(block, image, text, temb, modulation, rows, rotate)
        image = norm_out(module.norm_out, image, temb[: len(own)], rows.image_row)
        return module.proj_out(image)

    def row_map(
        self, module: Any, calls: Sequence[Mapping[str, Any]]
    ) -> Callable[[str], torch.Tensor]:
        """See `RowMap`: tokens of pictures, tokens of texts, or rows themselves."""
        rows = self.layout(calls)
        by_row = torch.tensor(rows.order)
        by_time = by_row.repeat(2 if module.zero_cond_t else 1)
        by_text, by_image = by_row[rows.text_row], by_row[rows.image_row]

        def owners(layer: str) -> torch.Tensor:
            if _BY_TIME.search(layer):
                return by_time
            if _BY_ROW.search(layer):
                return by_row
            return by_text if _BY_TEXT.search(layer) else by_image

        return owners


def _shapes_fit(shapes: Any, images: torch.Tensor) -> bool:
    """Whether all rows of a call have the same pictures, and these are its tokens.

    diffusers gives an entry for each prompt: it holds for all pictures of the call.
    """
    return (
        isinstance(shapes, list)
        and isinstance(shapes[0], list)
        and all(own == shapes[0] for own in shapes)
        and sum(map(prod, shapes[0])) == images.shape[1]
    )


def _is_reference(own: Sequence[_Row], device: torch.device) -> torch.Tensor:
    """`[tokens]`: 1 for tokens of pictures that are only referred to, else 0."""
    made = [prod(row.shapes[0]) for row in own]
    parts = [n for row, size in zip(own, made, strict=True) for n in (size, len(row.image) - size)]
    kinds = torch.tensor([0, 1] * len(own), device=device)
    counts = torch.tensor(parts, device=device)
    return kinds.repeat_interleave(counts, output_size=sum(parts))


def _rotary(module: Any, own: Sequence[_Row], device: torch.device) -> Rotate:
    rope = torch.cat([part for row in own for part in _rope(module, row, device)])

    def rotate(x: torch.Tensor) -> torch.Tensor:
        return apply_rotary_emb_qwen(x[None], rope, use_real=False)[0]

    return rotate


def _rope(module: Any, row: _Row, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Complex rotations `[tokens, head_dim / 2]` of a row's text and of its pictures."""
    image, text = module.pos_embed([row.shapes], max_txt_seq_len=row.length, device=device)
    return text if row.places is None else text[row.places], image


def _block(
    block: Any,
    image: torch.Tensor,
    text: torch.Tensor,
    temb: torch.Tensor,
    modulation: torch.Tensor,
    rows: PackedRows,
    rotate: Rotate,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of pictures and of texts after one block."""
    text, image = double_stream(
        block.attn,
        Stream(
            text,
            block.txt_mod(temb[: len(rows.order)]),
            rows.text_row,
            block.txt_norm1,
            block.txt_norm2,
            block.txt_mlp,
        ),
        Stream(
            image,
            block.img_mod(temb),
            modulation,
            block.img_norm1,
            block.img_norm2,
            block.img_mlp,
        ),
        rows,
        rotate,
    )
    return clip(image), clip(text)
