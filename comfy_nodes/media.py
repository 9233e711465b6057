"""Frames of the runtime to and from ComfyUI's IMAGE, LATENT and CONDITIONING.

Layouts: IMAGE is float32 `[B, H, W, C]` in 0..1; LATENT is `{"samples": [B, C, (1,) h, w]}` in
the VAE's own space; CONDITIONING is `[[embeddings, facts], ...]`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image

from ..runtime.protocol.errors import InvalidRequest
from ..runtime.protocol.frames import Frame, Tensor

Conditionings = list[list[Any]]
"""`[[embeddings [1, L, D], facts], ...]`."""


def images_to_frame(image: torch.Tensor) -> Frame:
    """An IMAGE, of any batch size, as a frame of kind `images`.

    Grey pictures become three equal channels; transparency is composited on white.

    Args:
        image: `[B, H, W, C]` or `[B, H, W]`, 0..1, with 1, 3 or 4 channels.

    Raises:
        InvalidRequest: it has another shape.
    """
    pixels = image.detach().to("cpu", torch.float32)
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(-1)
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3, 4) or 0 in pixels.shape:
        raise InvalidRequest(
            f"image has the shape {tuple(image.shape)}.",
            field="image",
            value=str(tuple(image.shape)),
            allowed="pictures [B, H, W, C] with 1, 3 or 4 channels",
        )
    if pixels.shape[-1] == 1:
        pixels = pixels.expand(-1, -1, -1, 3)
    elif pixels.shape[-1] == 4:
        alpha = pixels[..., 3:]
        pixels = pixels[..., :3] * alpha + (1 - alpha)
    return Frame({"kind": "images"}, {"images": Tensor.of(pixels.contiguous().numpy())})


def frame_to_images(frame: Frame) -> torch.Tensor:
    """A frame of kind `images` as an IMAGE `[B, H, W, 3]`."""
    return _tensor(frame.tensors["images"]).float()


def latent_to_frame(latent: Mapping[str, Any]) -> Frame:
    """A LATENT as a frame of kind `latent`.

    Raises:
        InvalidRequest: it has another shape than `[B, C, h, w]` or `[B, C, 1, h, w]`.
    """
    samples = latent["samples"].detach().to("cpu", torch.float32)
    if samples.ndim == 4:
        samples = samples.unsqueeze(2)
    if samples.ndim != 5 or 0 in samples.shape:
        raise InvalidRequest(
            f"samples has the shape {tuple(samples.shape)}.",
            field="samples",
            value=str(tuple(samples.shape)),
            allowed="latents [B, C, h, w] or [B, C, frames, h, w]",
        )
    header = {"kind": "latent", "space": "vae"}
    return Frame(header, {"samples": Tensor.of(samples.contiguous().numpy())})


def frame_to_latent(frame: Frame) -> dict[str, torch.Tensor]:
    """A frame of kind `latent` as a LATENT, `[B, C, 1, h, w]`.

    Models normalise latents; ComfyUI's are as the VAE makes them, so that is undone here.
    """
    samples = _tensor(frame.tensors["samples"]).float()
    if "mean" in frame.header:
        shape = (1, -1, 1, 1, 1)
        mean = torch.tensor(frame.header["mean"]).view(shape)
        samples = samples * torch.tensor(frame.header["std"]).view(shape) + mean
    return {"samples": samples}


def frame_to_conditioning(frame: Frame) -> tuple[Conditionings, Conditionings]:
    """A frame of kind `conditioning` as CONDITIONING: what to draw, and what to avoid.

    Without a negative prompt the second is zeros, as ComfyUI's `ConditioningZeroOut` makes it.
    """
    tensors = {name: _tensor(tensor) for name, tensor in frame.tensors.items()}
    positive = _conditioning(tensors, "")
    if "negative_prompt_embeds" in tensors:
        return positive, _conditioning(tensors, "negative_")
    embeddings, facts = positive[0]
    zeros = {
        name: torch.zeros_like(value) if name == "pooled_output" else value
        for name, value in facts.items()
    }
    return positive, [[torch.zeros_like(embeddings), zeros]]


def preview_image(data: bytes) -> Image.Image:
    """A preview's JPEG or PNG as a picture."""
    return Image.open(io.BytesIO(data)).convert("RGB")


def _conditioning(tensors: Mapping[str, torch.Tensor], prefix: str) -> Conditionings:
    facts: dict[str, Any] = {}
    if f"{prefix}prompt_embeds_mask" in tensors:
        facts["attention_mask"] = tensors[f"{prefix}prompt_embeds_mask"]
    if f"{prefix}pooled_prompt_embeds" in tensors:
        facts["pooled_output"] = tensors[f"{prefix}pooled_prompt_embeds"]
    return [[tensors[f"{prefix}prompt_embeds"], facts]]


def _tensor(wire: Tensor) -> torch.Tensor:
    """A wire tensor as a torch tensor that owns its memory."""
    array = np.array(wire.array)
    if wire.tag == "BF16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
