"""Qwen-Image's transformer over rows of any size at once: tokens concatenated, none padded.

`QwenImageTransformer2DModel` takes one picture size per batch, because its rotary positions
come from the first row only. Here every row brings its own positions and its own modulation,
and only attention goes row by row; the layers are the model's own submodules.

Source: `QwenImageTransformer2DModel.forward`, `QwenImageTransformerBlock.forward` and
`QwenDoubleStreamAttnProcessor2_0` in diffusers 0.42.1, for a model without `zero_cond_t`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from diffusers.models.transformers.transformer_qwenimage import apply_rotary_emb_qwen
from torch.nn import functional

_USED = {
    "hidden_states",
    "encoder_hidden_states",
    "encoder_hidden_states_mask",
    "timestep",
    "img_shapes",
    "return_dict",
}


_BY_ROW = re.compile(r"^time_text_embed\.|\.(img|txt)_mod\.|^norm_out\.")
_BY_TEXT = re.compile(r"^txt_|\.txt_mlp\.|\.add_[qkv]_proj$|\.to_add_out$")
"""Layers by what is on their dim 0; the others have tokens of pictures there."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring rows of equal lengths."""

    rows: int
    image: int
    text: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where each row's tokens are, and what belongs to them.

    Attributes:
        image, text: number of tokens of each row.
        runs: the rows in runs of equal lengths.
        image_row, text_row: `[tokens]`, the row each token belongs to.
        image_rope, text_rope: `[tokens, head_dim / 2]` complex rotations.
    """

    image: list[int]
    text: list[int]
    runs: list[_Run]
    image_row: torch.Tensor
    text_row: torch.Tensor
    image_rope: torch.Tensor
    text_rope: torch.Tensor


class QwenImagePacked:
    """See `PackedForward`."""

    def accepts(self, module: Any, arguments: Mapping[str, Any]) -> bool:
        """Plain text to image: no ControlNet, no guidance embedding, no reference frames."""
        used = {name for name, value in arguments.items() if not _absent(value)}
        plain = not module.zero_cond_t and not module.config.guidance_embeds
        one_picture = all(len(shapes) == 1 for shapes in arguments["img_shapes"])
        return used <= _USED and plain and one_picture and arguments.get("return_dict") is False

    def run(self, module: Any, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
        """One forward; each call gets its `(noise_pred [rows, tokens, channels],)`."""
        images, texts = _images_and_texts(calls)
        shapes = [shape for call in calls for shape in _shapes_by_row(call)]
        timestep = torch.cat([call["timestep"] for call in calls])
        order = _order(images, texts)
        out = packed_forward(
            module,
            [images[i] for i in order],
            [texts[i] for i in order],
            timestep[torch.tensor(order, device=timestep.device)],
            [shapes[i] for i in order],
        )
        by_row = dict(zip(order, out, strict=True))
        return [(torch.stack(rows),) for rows in _rows_by_call(by_row, calls)]

    def row_map(
        self, module: Any, calls: Sequence[Mapping[str, Any]]
    ) -> Callable[[str], torch.Tensor]:
        """See `RowMap`: tokens of pictures, tokens of texts, or rows themselves."""
        images, texts = _images_and_texts(calls)
        order = _order(images, texts)
        rows = torch.tensor(order)
        by_image = rows.repeat_interleave(torch.tensor([len(images[i]) for i in order]))
        by_text = rows.repeat_interleave(torch.tensor([len(texts[i]) for i in order]))

        def owners(layer: str) -> torch.Tensor:
            if _BY_ROW.search(layer):
                return rows
            return by_text if _BY_TEXT.search(layer) else by_image

        return owners


def _images_and_texts(
    calls: Sequence[Mapping[str, Any]],
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    images = [row for call in calls for row in call["hidden_states"]]
    return images, [row for call in calls for row in _unpadded_texts(call)]


def _order(images: Sequence[torch.Tensor], texts: Sequence[torch.Tensor]) -> list[int]:
    """Rows of equal lengths side by side, so that they share an attention call."""
    return sorted(range(len(images)), key=lambda i: (len(images[i]), len(texts[i])))


def packed_forward(
    module: Any,
    images: Sequence[torch.Tensor],
    texts: Sequence[torch.Tensor],
    timestep: torch.Tensor,
    shapes: Sequence[tuple[int, int, int]],
) -> list[torch.Tensor]:
    """The transformer over rows of any size.

    Args:
        module: a `QwenImageTransformer2DModel`.
        images: each row's latent tokens `[n_i, channels]`; rows of equal lengths are faster
            side by side.
        texts: each row's prompt tokens `[t_i, features]`.
        timestep: `[rows]`, in 0..1.
        shapes: each row's (frames, height, width) in tokens.

    Returns:
        Each row's prediction `[n_i, channels]`.
    """
    rows = _rows(module, images, texts, shapes)
    image = module.img_in(torch.cat(list(images)))
    text = module.txt_in(module.txt_norm(torch.cat(list(texts))))
    temb = module.time_text_embed(timestep.to(image.dtype), image)
    for block in module.transformer_blocks:
        image, text = _block(block, image, text, temb, rows)
    scale, shift = module.norm_out.linear(module.norm_out.silu(temb).to(image.dtype)).chunk(2, -1)
    image = _shift_scale(module.norm_out.norm(image), shift, scale, rows.image_row)
    return list(module.proj_out(image).split(rows.image))


def _rows(
    module: Any,
    images: Sequence[torch.Tensor],
    texts: Sequence[torch.Tensor],
    shapes: Sequence[tuple[int, int, int]],
) -> _Rows:
    device = images[0].device
    ropes = [
        module.pos_embed([[shape]], max_txt_seq_len=len(text), device=device)
        for shape, text in zip(shapes, texts, strict=True)
    ]
    image, text = [len(x) for x in images], [len(x) for x in texts]
    index = torch.arange(len(images), device=device)
    runs = [_Run(len(list(same)), *key) for key, same in groupby(zip(image, text, strict=True))]
    return _Rows(
        image,
        text,
        runs,
        index.repeat_interleave(torch.tensor(image, device=device)),
        index.repeat_interleave(torch.tensor(text, device=device)),
        torch.cat([rope[0] for rope in ropes]),
        torch.cat([rope[1] for rope in ropes]),
    )


def _block(
    block: Any, image: torch.Tensor, text: torch.Tensor, temb: torch.Tensor, rows: _Rows
) -> tuple[torch.Tensor, torch.Tensor]:
    """One double-stream block: joint attention, then an MLP per stream."""
    image_mod1, image_mod2 = block.img_mod(temb).chunk(2, dim=-1)
    text_mod1, text_mod2 = block.txt_mod(temb).chunk(2, dim=-1)
    image_in, image_gate = _modulate(block.img_norm1(image), image_mod1, rows.image_row)
    text_in, text_gate = _modulate(block.txt_norm1(text), text_mod1, rows.text_row)
    image_out, text_out = _attention(block.attn, image_in, text_in, rows)
    image = torch.addcmul(image, image_gate, image_out)
    text = torch.addcmul(text, text_gate, text_out)
    image_in, image_gate = _modulate(block.img_norm2(image), image_mod2, rows.image_row)
    image = torch.addcmul(image, image_gate, block.img_mlp(image_in))
    text_in, text_gate = _modulate(block.txt_norm2(text), text_mod2, rows.text_row)
    text = torch.addcmul(text, text_gate, block.txt_mlp(text_in))
    return _clip(image), _clip(text)


def _modulate(
    x: torch.Tensor, parameters: torch.Tensor, row: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    shift, scale, gate = parameters.chunk(3, dim=-1)
    return _shift_scale(x, shift, scale, row), gate.index_select(0, row)


def _shift_scale(
    x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor, row: torch.Tensor
) -> torch.Tensor:
    """x * (1 + scale) + shift, with each token taking the values of its row."""
    shift, scale = shift.index_select(0, row), (1 + scale).index_select(0, row)
    return torch.addcmul(shift, x, scale)


def _attention(
    attn: Any, image: torch.Tensor, text: torch.Tensor, rows: _Rows
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's text and image tokens attend to each other, and to no other row's."""
    head_dim = attn.inner_dim // attn.heads
    image_q, image_k, image_v = (
        f(image).unflatten(-1, (-1, head_dim)) for f in (attn.to_q, attn.to_k, attn.to_v)
    )
    text_q, text_k, text_v = (
        f(text).unflatten(-1, (-1, head_dim))
        for f in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
    )
    image_q = _rotate(attn.norm_q(image_q), rows.image_rope)
    image_k = _rotate(attn.norm_k(image_k), rows.image_rope)
    text_q = _rotate(attn.norm_added_q(text_q), rows.text_rope)
    text_k = _rotate(attn.norm_added_k(text_k), rows.text_rope)

    images = [x.split([r.rows * r.image for r in rows.runs]) for x in (image_q, image_k, image_v)]
    texts = [x.split([r.rows * r.text for r in rows.runs]) for x in (text_q, text_k, text_v)]
    outs = [
        _joint(run, [x[i] for x in texts], [x[i] for x in images])
        for i, run in enumerate(rows.runs)
    ]
    image_outs, text_outs = zip(*outs, strict=True)
    return attn.to_out[0](torch.cat(image_outs)), attn.to_add_out(torch.cat(text_outs))


def _joint(
    run: _Run, text: list[torch.Tensor], image: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention within each row of a run; q, k and v are `[rows * tokens, heads, head_dim]`.

    Returns:
        Image and text outputs `[rows * tokens, channels]`.
    """

    def by_row(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(run.rows, -1, *x.shape[1:])

    q, k, v = (
        torch.cat([by_row(t), by_row(i)], dim=1).transpose(1, 2)
        for t, i in zip(text, image, strict=True)
    )
    out = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    return out[:, run.text :].flatten(0, 1), out[:, : run.text].flatten(0, 1)


def _rotate(x: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of `[tokens, heads, head_dim]`."""
    return apply_rotary_emb_qwen(x[None], rope, use_real=False)[0]


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and not value)


def _clip(x: torch.Tensor) -> torch.Tensor:
    return x.clip(-65504, 65504) if x.dtype is torch.float16 else x


def _unpadded_texts(call: Mapping[str, Any]) -> list[torch.Tensor]:
    mask = call.get("encoder_hidden_states_mask")
    texts = call["encoder_hidden_states"]
    if mask is None:
        return list(texts)
    return [text[own.bool()] for text, own in zip(texts, mask, strict=True)]


def _rows_by_call(
    by_row: Mapping[int, torch.Tensor], calls: Sequence[Mapping[str, Any]]
) -> Iterator[list[torch.Tensor]]:
    """The rows of each call in turn."""
    start = 0
    for call in calls:
        end = start + len(call["hidden_states"])
        yield [by_row[i] for i in range(start, end)]
        start = end


def _shapes_by_row(call: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """diffusers gives one shape entry per prompt: it holds for all pictures of the call."""
    return [call["img_shapes"][0][0]] * len(call["hidden_states"])
