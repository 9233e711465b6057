"""What the blocks of packed transformers compute: modulation by row, and attention within rows.

Layers are the model's own submodules; only what lies between them is here.

Source: `FluxTransformerBlock`, `QwenImageTransformerBlock`, their attention processors and
`AdaLayerNormContinuous` in diffusers 0.42.1. Names of attention's layers are the same in both and,
but for the rotary embedding, so is the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .packed_rows import PackedRows

Rotate = Callable[[torch.Tensor], torch.Tensor]
"""The rotary embedding of joint tokens `[tokens, heads, head_dim]`."""

Layer = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Stream:
    """One of the two streams of a block, and what the block has for it.

    Attributes:
        x: its tokens `[tokens, channels]`.
        parameters: shift, scale and gate of attention and then of the MLP, for each row
            `[rows, 6 * channels]`.
        row: `[tokens]`, which row of the parameters is for a token.
    """

    x: torch.Tensor
    parameters: torch.Tensor
    row: torch.Tensor
    norm1: Layer
    norm2: Layer
    mlp: Layer


def double_stream(
    attn: Any, text: Stream, image: Stream, rows: PackedRows, rotate: Rotate
) -> tuple[torch.Tensor, torch.Tensor]:
    """A block of two streams: joint attention, and an MLP for each.

    Returns:
        Tokens of texts and of pictures `[tokens, channels]`.
    """
    halves = [stream.parameters.chunk(2, dim=-1) for stream in (text, image)]
    (text_1, text_2), (image_1, image_2) = halves
    text_in, text_gate = modulate(text.norm1(text.x), text_1, text.row)
    image_in, image_gate = modulate(image.norm1(image.x), image_1, image.row)
    text_out, image_out = _joint_attention(attn, text_in, image_in, rows, rotate)
    return (
        _mlp(text, torch.addcmul(text.x, text_gate, text_out), text_2),
        _mlp(image, torch.addcmul(image.x, image_gate, image_out), image_2),
    )


def _mlp(stream: Stream, x: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    inner, gate = modulate(stream.norm2(x), parameters, stream.row)
    return torch.addcmul(x, gate, stream.mlp(inner))


def _joint_attention(
    attn: Any, text: torch.Tensor, image: torch.Tensor, rows: PackedRows, rotate: Rotate
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of texts and of pictures, `[tokens, channels]`, attend to those of their row.

    Returns:
        What to add to the texts' and to the pictures'.
    """
    q = rows.join(
        attn.norm_added_q(_heads(attn, attn.add_q_proj(text))),
        attn.norm_q(_heads(attn, attn.to_q(image))),
    )
    k = rows.join(
        attn.norm_added_k(_heads(attn, attn.add_k_proj(text))),
        attn.norm_k(_heads(attn, attn.to_k(image))),
    )
    v = rows.join(_heads(attn, attn.add_v_proj(text)), _heads(attn, attn.to_v(image)))
    out = rows.attend(rotate(q), rotate(k), v)
    return attn.to_add_out(rows.text_of(out)), attn.to_out[0](rows.image_of(out))


def self_attention(attn: Any, x: torch.Tensor, rows: PackedRows, rotate: Rotate) -> torch.Tensor:
    """Joint tokens `[tokens, channels]` attend to those of their row."""
    q = rotate(attn.norm_q(_heads(attn, attn.to_q(x))))
    k = rotate(attn.norm_k(_heads(attn, attn.to_k(x))))
    out = rows.attend(q, k, _heads(attn, attn.to_v(x)))
    return torch.cat([run.flatten(0, 1) for run in out])


def _heads(attn: Any, x: torch.Tensor) -> torch.Tensor:
    return x.reshape(len(x), -1, attn.inner_dim // attn.heads)


def modulate(
    x: torch.Tensor, parameters: torch.Tensor, row: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Shift and scale tokens by what is their row's.

    Args:
        x: `[tokens, channels]`.
        parameters: shift, scale and gate of each row, `[rows, 3 * channels]`.
        row: `[tokens]`.

    Returns:
        The tokens, and the gate of each.
    """
    shift, scale, gate = parameters.chunk(3, dim=-1)
    return _shift_scale(x, shift, scale, row), gate.index_select(0, row)


def norm_out(norm: Any, x: torch.Tensor, temb: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """An `AdaLayerNormContinuous` of tokens `[tokens, channels]`, by the embedding of their row."""
    scale, shift = norm.linear(norm.silu(temb).to(x.dtype)).chunk(2, dim=-1)
    return _shift_scale(norm.norm(x), shift, scale, row)


def _shift_scale(
    x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor, row: torch.Tensor
) -> torch.Tensor:
    shift, scale = shift.index_select(0, row), (1 + scale).index_select(0, row)
    return torch.addcmul(shift, x, scale)


def clip(x: torch.Tensor) -> torch.Tensor:
    """Keep half precision from overflowing."""
    return x.clip(-65504, 65504) if x.dtype is torch.float16 else x


def has_processors(attentions: Iterable[Any], processor: type[Any]) -> bool:
    """Whether attention is what is computed here, on the device's own kernels."""
    return all(
        type(attn.processor) is processor
        and attn.processor._attention_backend is None
        and attn.processor._parallel_config is None
        and not attn.fused_projections
        for attn in attentions
    )
