"""Frames of the runtime to and from ComfyUI's IMAGE, AUDIO, VIDEO, LATENT and CONDITIONING.

Layouts: IMAGE is float32 `[B, H, W, C]` in 0..1; MASK is float32 `[B, H, W]` in 0..1; AUDIO is
`{"waveform": [B, C, T], "sample_rate": Hz}`; VIDEO gives `images [T, H, W, C]` and a frame rate;
LATENT is `{"samples": [B, C, (frames,) h, w]}` in the VAE's own space, perhaps with a `noise_mask`
of any size; CONDITIONING is `[[embeddings, facts], ...]`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from fractions import Fraction
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


def mask_to_frame(mask: torch.Tensor, size: tuple[int, int]) -> Frame:
    """A MASK as a frame of kind `images` `[B, H, W, 1]`.

    Args:
        mask: `[B, H, W]` or `[H, W]`, 0..1.
        size: width and height of its pictures in pixels.

    Raises:
        InvalidRequest: it has another shape, or another size than its pictures.
    """
    values = mask.detach().to("cpu", torch.float32)
    if values.ndim == 2:
        values = values.unsqueeze(0)
    if values.ndim != 3 or 0 in values.shape:
        raise _odd_shape("mask", mask, "masks [B, H, W]")
    have, wanted = (f"{w} x {h} px" for w, h in ((values.shape[2], values.shape[1]), size))
    if have != wanted:
        raise InvalidRequest(
            f"mask is of {have}, but the picture is of {wanted}.",
            field="mask",
            value=have,
            allowed=wanted,
        )
    return Frame({"kind": "images"}, {"images": _wire(values.unsqueeze(-1))})


def frame_to_images(frame: Frame) -> torch.Tensor:
    """A frame of kind `images`, or all pictures of a `video`, as an IMAGE `[B, H, W, C]`.

    A model of transparent pictures gives four channels, the last of them alpha.
    """
    if frame.header["kind"] == "video":
        return _tensor(frame.tensors["frames"]).float() / 255
    return _tensor(frame.tensors["images"]).float()


def frame_rate(frame: Frame) -> Fraction:
    """Pictures per second of a frame of kind `video`: 23.976 and the like become exact."""
    return Fraction(frame.header["fps"]).limit_denominator(1001)


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

    The frame's `samples` always have a frame axis; its `mask` `[B, 1, H, W]` is the `noise_mask`,
    of whatever size it is.

    Raises:
        InvalidRequest: it has another shape than `[B, C, h, w]` or `[B, C, frames, h, w]`.
    """
    allowed = "latents [B, C, h, w] or [B, C, frames, h, w]"
    if latent["samples"].is_nested:  # ComfyUI's latents of film and sound together
        words = "samples are latents of several kinds in one."
        raise InvalidRequest(words, field="samples", allowed=allowed)
    samples = latent["samples"].detach().to("cpu", torch.float32)
    if samples.ndim == 4:
        samples = samples.unsqueeze(2)
    if samples.ndim != 5 or 0 in samples.shape:
        raise _odd_shape("samples", samples, allowed)
    tensors = {"samples": _wire(samples)}
    if latent.get("noise_mask") is not None:
        tensors["mask"] = _wire(_noise_mask(latent["noise_mask"]))
    return Frame({"kind": "latent", "space": "vae"}, tensors)


def frame_to_latent(frame: Frame) -> dict[str, torch.Tensor]:
    """A frame of kind `latent` as a LATENT, `[B, C, (frames,) h, w]` as the model has it.

    Models normalise latents; ComfyUI's are as the VAE makes them, so that is undone here.
    """
    samples = _tensor(frame.tensors["samples"]).float()
    if "mean" in frame.header:
        shape = (1, -1, *[1] * (samples.ndim - 2))
        mean = torch.tensor(frame.header["mean"]).view(shape)
        samples = samples * torch.tensor(frame.header["std"]).view(shape) + mean
    mask = frame.tensors.get("mask")
    if mask is None or mask.array.ndim != 4 or mask.array.shape[1] != 1:  # a model's own form
        return {"samples": samples}
    return {"samples": samples, "noise_mask": _tensor(mask).float()}


def frame_to_conditioning(frame: Frame) -> tuple[Conditionings, Conditionings]:
    """A frame of kind `conditioning` as CONDITIONING: what to draw, and what to avoid.

    Without a negative prompt the second is zeros, as ComfyUI's `ConditioningZeroOut` makes it.

    Raises:
        InvalidRequest: it holds a prompt in another form than one text's embeddings.
    """
    positive = _conditioning(frame, "")
    if any(name.split(".")[0] == "negative_prompt_embeds" for name in frame.tensors):
        return positive, _conditioning(frame, "negative_")
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


def _noise_mask(mask: torch.Tensor) -> torch.Tensor:
    """A LATENT's `noise_mask` as `[B, 1, H, W]`; nodes leave out what axes they like."""
    values = mask.detach().to("cpu", torch.float32)
    if values.ndim not in (2, 3, 4) or (values.ndim == 4 and values.shape[1] != 1):
        raise _odd_shape("noise_mask", mask, "masks [B, 1, H, W]")
    return values.reshape(-1, 1, *values.shape[-2:])


def _conditioning(frame: Frame, prefix: str) -> Conditionings:
    """One text's embeddings `[1, L, D]`, with what ComfyUI's own models want to know of it."""
    embeddings = _of_one_text(frame, f"{prefix}prompt_embeds", ndim=3)
    if embeddings is None:
        raise InvalidRequest(
            f"This model's conditioning is made of {', '.join(frame.tensors)}: ComfyUI's "
            "CONDITIONING cannot hold it.",
            field="conditioning",
            allowed="prompt_embeds [B, L, D]",
        )
    facts = {
        "attention_mask": _of_one_text(frame, f"{prefix}prompt_embeds_mask", ndim=2),
        "pooled_output": _of_one_text(frame, f"{prefix}pooled_prompt_embeds", ndim=2),
    }
    return [[embeddings, {name: fact for name, fact in facts.items() if fact is not None}]]


def _of_one_text(frame: Frame, name: str, *, ndim: int) -> torch.Tensor | None:
    """A tensor of a text's, or the only one of a list; None if there is none of that form."""
    if name in frame.tensors:
        tensor = _tensor(frame.tensors[name])
    elif f"{name}.0" in frame.tensors and f"{name}.1" not in frame.tensors:
        tensor = _tensor(frame.tensors[f"{name}.0"])
        tensor = tensor.unsqueeze(0) if tensor.ndim == ndim - 1 else tensor
    else:
        return None
    return tensor if tensor.ndim == ndim else None


def _tensor(wire: Tensor) -> torch.Tensor:
    """A wire tensor as a torch tensor that owns its memory."""
    array = np.array(wire.array)
    if wire.tag == "BF16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
