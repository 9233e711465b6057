"""What each node asks of the runtime, as one pure function per node.

A node calls its function when it runs; queue-ahead calls the same function while the prompt
still waits. Both get equal jobs, so the node finds its work under way or done.

An input that is 0, -1 or empty in a node means "the model's own default" and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .media import images_to_frame, latent_to_frame
from .values import Conditioning, Images, Latent, Model, Source, Upload, job

if TYPE_CHECKING:
    import torch

DEFAULT = "default"
"""The choice in a list that means "the model's own"."""


def load_model(model: str, address: str = "", strict: bool = False) -> Model:
    """A model by name; nothing runs."""
    return Model(model, address.strip().rstrip("/"), strict)


def text_encode(model: Model, prompt: str, negative_prompt: str = "") -> Conditioning:
    """Encode a prompt and what to avoid."""
    params = {"prompt": prompt, "negative_prompt": negative_prompt}
    return Conditioning(job(model, "text_encode", "conditioning", params), model.address)


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
) -> Latent:
    """Denoise `count` pictures with seeds `seed`, `seed + 1`, ...

    With a latent, a size that is not given is the latent's.
    """
    latent_size = (latent.size if latent is not None else None) or (0, 0)
    size = (width or latent_size[0], height or latent_size[1])
    given = {
        "width": size[0] or None,
        "height": size[1] or None,
        "steps": steps or None,
        "guidance": guidance if guidance >= 0 else None,
        "scheduler": scheduler if scheduler != DEFAULT else None,
        "denoise": denoise if denoise != 1 else None,
    }
    params = {name: value for name, value in given.items() if value is not None}
    params |= {"count": count, "seed": seed}
    inputs: dict[str, Source] = {"conditioning": conditioning.source}
    if latent is not None:
        inputs["latent"] = latent.source
    handle = job(model, "sample", "latent", params, **inputs)
    return Latent(handle, model.address, size if all(size) else None)


def vae_encode(model: Model, image: torch.Tensor) -> Latent:
    """Encode pictures `[B, H, W, C]`, each as if alone."""
    frame = images_to_frame(image)
    _, height, width, _ = frame.tensors["images"].array.shape
    upload = Upload.of(frame.encode())
    handle = job(model, "vae_encode", "latent", {}, images=upload)
    return Latent(handle, model.address, (width, height))


def vae_decode(model: Model, latent: Latent) -> Images:
    """Decode latents to pictures."""
    return Images(job(model, "vae_decode", "images", {}, latent=latent.source), model.address)


def from_latent(model: Model, samples: Mapping[str, Any]) -> Latent:
    """ComfyUI's LATENT as an upload."""
    return Latent(Upload.of(latent_to_frame(samples).encode()), model.address)


PLANS: Mapping[str, Callable[..., Any]] = {
    "OmniStageLoadModel": load_model,
    "OmniStageTextEncode": text_encode,
    "OmniStageSample": sample,
    "OmniStageVAEEncode": vae_encode,
    "OmniStageVAEDecode": vae_decode,
    "OmniStageFromLatent": from_latent,
}
"""Each node's function by node id; nodes that only download ask for nothing new."""
