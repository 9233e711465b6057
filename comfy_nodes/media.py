"""Frames of the runtime to and from ComfyUI's IMAGE, AUDIO, VIDEO, LATENT and CONDITIONING.

Layouts: IMAGE is float32 `[B, H, W, C]` in 0..1; AUDIO is `{"waveform": [B, C, T],
"sample_rate": Hz}`; VIDEO gives `images [T, H, W, C]` and a frame rate; LATENT is
`{"samples": [B, C, (1,) h, w]}` in the VAE's own space; CONDITIONING is
`[[embeddings, facts], ...]`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from ..runtime.protocol import pcm
from ..runtime.protocol.conversation import Media
from ..runtime.protocol.errors import InvalidRequest
from ..runtime.protocol.frames import Frame, Tensor

if TYPE_CHECKING:
    from comfy_api.input import VideoInput

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
    return Frame({"kind": "images"}, {"images": _wire(_rgb(image, "image"))})


def frame_to_images(frame: Frame) -> torch.Tensor:
    """A frame of kind `images` as an IMAGE `[B, H, W, 3]`."""
    return _tensor(frame.tensors["images"]).float()


def audio_to_frame(audio: Mapping[str, Any]) -> Frame:
    """An AUDIO, of any batch size and number of channels, as a frame of kind `audio`.

    Raises:
        InvalidRequest: it has another shape than `[B, C, T]`, or no sample rate.
    """
    waveform, rate_hz = _sound(audio)
    return Frame({"kind": "audio", "rate": rate_hz}, {"waveform": _wire(waveform)})


def frame_to_audio(frame: Frame) -> dict[str, Any]:
    """A frame of kind `audio` as an AUDIO."""
    waveform = _tensor(frame.tensors["waveform"]).float()
    return {"waveform": waveform, "sample_rate": int(frame.header["rate"])}


def pcm16(waveform: np.ndarray[Any, Any]) -> bytes:
    """The first of some waveforms `[B, C, T]`, mixed down: 16-bit little-endian samples."""
    return pcm.pcm16(waveform[0].mean(0))


def video_to_frame(video: VideoInput) -> Frame:
    """A VIDEO as a frame of kind `video`; its sound is left out.

    Raises:
        InvalidRequest: it has no pictures, or no frame rate.
    """
    frames, fps = _film(video)
    return Frame({"kind": "video", "fps": fps}, {"frames": _wire(frames)})


def message_media(
    image: torch.Tensor | None, audio: Mapping[str, Any] | None, video: VideoInput | None
) -> Iterator[Media]:
    """The media of one message, each picture and sound of a batch on its own.

    Sounds are mixed down to one channel.

    Raises:
        InvalidRequest: see `images_to_frame`, `audio_to_frame` and `video_to_frame`.
    """
    if image is not None:
        for picture in _to_uint8(_rgb(image, "image")):
            yield Media("image", _wire(picture))
    if video is not None:
        frames, fps = _film(video)
        yield Media("video", _wire(frames), fps)
    if audio is not None:
        waveform, rate_hz = _sound(audio)
        for sound in waveform.mean(1):
            yield Media("audio", _wire(sound), rate_hz)


def latent_to_frame(latent: Mapping[str, Any]) -> Frame:
    """A LATENT as a frame of kind `latent`.

    Raises:
        InvalidRequest: it has another shape than `[B, C, h, w]` or `[B, C, 1, h, w]`.
    """
    samples = latent["samples"].detach().to("cpu", torch.float32)
    if samples.ndim == 4:
        samples = samples.unsqueeze(2)
    if samples.ndim != 5 or 0 in samples.shape:
        raise _odd_shape("samples", samples, "latents [B, C, h, w] or [B, C, frames, h, w]")
    return Frame({"kind": "latent", "space": "vae"}, {"samples": _wire(samples)})


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


def _rgb(image: torch.Tensor, field: str) -> torch.Tensor:
    """Pictures `[B, H, W, 3]`, float32, 0..1, on white where they are transparent.

    Raises:
        InvalidRequest: they have another shape than `images_to_frame` says.
    """
    pixels = image.detach().to("cpu", torch.float32)
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(-1)
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3, 4) or 0 in pixels.shape:
        raise _odd_shape(field, image, "pictures [B, H, W, C] with 1, 3 or 4 channels")
    if pixels.shape[-1] == 1:
        return pixels.expand(-1, -1, -1, 3)
    if pixels.shape[-1] == 4:
        alpha = pixels[..., 3:]
        return pixels[..., :3] * alpha + (1 - alpha)
    return pixels


def _to_uint8(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels.clamp(0, 1) * 255).round().to(torch.uint8)


def _sound(audio: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
    """Waveforms `[B, C, T]`, float32, and their rate in Hz."""
    waveform = audio["waveform"].detach().to("cpu", torch.float32)
    if waveform.ndim != 3 or 0 in waveform.shape:
        raise _odd_shape("audio", waveform, "sounds [B, C, T]")
    return waveform, int(_positive("audio", "sample_rate", audio["sample_rate"]))


def _film(video: VideoInput) -> tuple[torch.Tensor, float]:
    """Pictures `[T, H, W, 3]`, uint8, and their rate per second."""
    parts = video.get_components()
    fps = float(_positive("video", "frame_rate", parts.frame_rate))
    return _to_uint8(_rgb(parts.images, "video")), fps


def _odd_shape(field: str, tensor: torch.Tensor, allowed: str) -> InvalidRequest:
    shape = tuple(tensor.shape)
    words = f"{field} has the shape {shape}."
    return InvalidRequest(words, field=field, value=str(shape), allowed=allowed)


def _positive(field: str, name: str, rate: Any) -> Any:
    if not rate > 0:
        raise InvalidRequest(
            f"{field} has the {name} {rate}.", field=field, value=str(rate), allowed="more than 0"
        )
    return rate


def _wire(tensor: torch.Tensor) -> Tensor:
    return Tensor.of(tensor.contiguous().numpy())


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
