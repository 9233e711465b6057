"""Pictures and films: from words to conditioning, latents and pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...runtime.protocol.errors import InvalidRequest
from ..guidance import layer_numbers, param_of
from ..media import images_to_frame, latent_to_frame, mask_to_frame
from ..values import Conditioning, Control, Film, Guider, Images, Latent, Model, Source, job
from .inputs import DEFAULT, Words, given, texts, upload

if TYPE_CHECKING:
    import torch


def text_encode(
    model: Model,
    prompt: Words,
    negative_prompt: Words = "",
    images: torch.Tensor | None = None,
    images_2: torch.Tensor | None = None,
    images_3: torch.Tensor | None = None,
) -> Conditioning:
    """Encode a prompt, what to avoid, and pictures `[B, H, W, C]` to go by."""
    params, inputs = texts(model, prompt=prompt, negative_prompt=negative_prompt)
    pictures = {"images": images, "images_2": images_2, "images_3": images_3}
    for name, picture in given(**pictures).items():
        inputs[name] = upload(images_to_frame(picture))
    handle = job(model, "text_encode", "conditioning", params, **inputs)
    return Conditioning(handle, model.address)


def control(
    model: Model,
    conditioning: Conditioning,
    image: torch.Tensor,
    *,
    controlnet: str,
    strength: float,
    start: float,
    end: float,
) -> Conditioning:
    """Conditioning whose pictures keep to a picture `[1, H, W, C]`; strength 0 changes nothing.

    Raises:
        InvalidRequest: it has such a picture already.
    """
    if not strength:
        return conditioning
    if conditioning.control is not None:
        raise InvalidRequest(
            "conditioning has a ControlNet already; there can be one.",
            field="conditioning",
            allowed="one without a ControlNet",
        )
    frame = images_to_frame(image)
    _, height, width, _ = frame.tensors["images"].array.shape
    params = {"name": controlnet, "strength": strength, "start": start, "end": end}
    return replace(conditioning, control=Control(upload(frame), params, (width, height)))


def guider(  # noqa: PLR0913 - a node's inputs are its interface
    kind: str,
    *,
    start: float,
    stop: float,
    guidance_rescale: float,
    use_original_formulation: bool,
    scale: float,
    scale_start: float,
    scale_stop: float,
    layers: str,
    momentum: float,
    norm_limit: float,
    eta: float,
    start_step: int,
    zero_init_steps: int,
    alpha: float,
) -> Guider:
    """How a model is to be guided; a number below its range is left to the kind.

    Raises:
        InvalidRequest: `layers` are no whole numbers.
    """
    numbers = {
        "start": start,
        "stop": stop,
        "guidance_rescale": guidance_rescale,
        "scale": scale,
        "scale_start": scale_start,
        "scale_stop": scale_stop,
        "norm_limit": norm_limit,
        "eta": eta,
        "start_step": start_step,
        "zero_init_steps": zero_init_steps,
        "alpha": alpha,
    }
    kept = given(
        **{name: number if number >= 0 else None for name, number in numbers.items()},
        momentum=momentum if momentum >= -1 else None,
        layers=layer_numbers(layers) or None,
        use_original_formulation=use_original_formulation or None,
    )
    return Guider({"kind": kind, **{param_of(kind, name): value for name, value in kept.items()}})


def sample(  # noqa: PLR0913 - a node's inputs are its interface
    model: Model,
    conditioning: Conditioning,
    *,
    width: int,
    height: int,
    count: int,
    steps: int,
    guidance: float,
    scheduler: str,
    denoise: float,
    seed: int,
    latent: Latent | None = None,
    guider: Guider | None = None,
    frames: int = 0,
) -> Latent:
    """Denoise `count` pictures with seeds `seed`, `seed + 1`, ..., or a film.

    A size that is not given is the latent's, or that of the picture that a ControlNet goes by.
    """
    control = conditioning.control
    known = (latent.size if latent is not None else None) or (control.size if control else (0, 0))
    size = (width or known[0], height or known[1])
    params = given(
        width=size[0] or None,
        height=size[1] or None,
        steps=steps or None,
        guidance=guidance if guidance >= 0 else None,
        scheduler=scheduler if scheduler != DEFAULT else None,
        denoise=denoise if denoise != 1 else None,
        guider=dict(guider.params) if guider is not None else None,
        frames=frames or None,
        control=dict(control.params) if control is not None else None,
        count=count,
        seed=seed,
    )
    inputs: dict[str, Source] = {"conditioning": conditioning.source}
    if latent is not None:
        inputs["latent"] = latent.source
    if control is not None:
        inputs["control"] = control.picture
    handle = job(model, "sample", "latent", params, **inputs)
    return Latent(handle, model.address, size if all(size) else None)


def vae_encode(model: Model, image: torch.Tensor, mask: torch.Tensor | None = None) -> Latent:
    """Encode pictures `[B, H, W, C]`, each as if alone, and what to draw anew `[B, H, W]`."""
    frame = images_to_frame(image)
    _, height, width, _ = frame.tensors["images"].array.shape
    inputs = {"images": upload(frame)}
    if mask is not None:
        inputs["mask"] = upload(mask_to_frame(mask, (width, height)))
    handle = job(model, "vae_encode", "latent", {}, **inputs)
    return Latent(handle, model.address, (width, height))


def vae_decode(model: Model, latent: Latent) -> Images:
    """Decode latents to pictures."""
    return Images(job(model, "vae_decode", "images", {}, latent=latent.source), model.address)


def video_decode(model: Model, latent: Latent, fps: float) -> Film:
    """Decode latents to a film."""
    params = given(fps=fps or None)
    handle = job(model, "vae_decode", "video", params, latent=latent.source)
    return Film(handle, model.address)


def from_latent(model: Model, samples: Mapping[str, Any]) -> Latent:
    """ComfyUI's LATENT as an upload."""
    return Latent(upload(latent_to_frame(samples)), model.address)
