"""References for the modular families: diffusers' own blocks as one undisturbed pipeline."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers.guiders.guider_utils import BaseGuidance
from PIL import Image

from omnistage.runtime.bench.pictures import Picture, PictureRequest
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.components import load_module, load_scheduler
from omnistage.runtime.models.modular.family import ModularFamily


class ModularReference:
    """All blocks of a family, in one pipeline, with the modules themselves."""

    def __init__(self, model: ModelEntry) -> None:
        checkpoint = model.checkpoint
        assert isinstance(checkpoint.family, ModularFamily)
        self.family = checkpoint.family
        blocks = getattr(diffusers, self.family.blocks(checkpoint.index))()
        blocks.sub_blocks.pop("prompt_upsampler", None)  # words are taken as they come
        self._pipeline = blocks.init_pipeline()
        self._takes = {given.name for given in blocks.inputs}
        expected = {spec.name: spec for spec in blocks.expected_components}
        self._pipeline.update_components(
            **{
                name: _component(checkpoint.folder / name, *entry[:2])
                for name, entry in checkpoint.index.items()
                if name in expected and isinstance(entry, list) and None not in entry
            },
            **{
                spec.name: checkpoint.index[spec.name]
                for spec in blocks.expected_configs
                if spec.name in checkpoint.index
            },
        )
        self._controlnets = {
            name: _component(source.folder, "diffusers", str(self.family.controlnet))
            for name, source in checkpoint.controlnets.items()
        }
        guided = {spec.name: spec for spec in blocks.sub_blocks["denoise"].expected_components}
        self._guiders = {
            name: spec
            for name, spec in guided.items()
            if isinstance(spec.type_hint, type) and issubclass(spec.type_hint, BaseGuidance)
        }
        for block in _all(self._pipeline._blocks):
            if hasattr(block, "set_progress_bar_config"):
                block.set_progress_bar_config(disable=True)

    def one(self, request: PictureRequest) -> Picture:
        """One request, one call."""
        guided = request.guidance > 1 and (self.family.negatives or bool(request.negative_prompt))
        for name, spec in self._guiders.items():
            guider = _guider(spec, request, enabled=guided)
            self._pipeline.update_components(**{name: guider})
        known = {
            n: v for n, v in self._given(request).items() if n in self._takes and v is not None
        }
        latents: list[torch.Tensor] = []

        def keep(state: Any) -> None:
            state.set("latents", state.get("latents").contiguous())  # they have travelled
            latents[:] = [state.get("latents").clone()]

        if request.control is not None:
            controlnet = self._controlnets[request.more["control"]["name"]]
            self._pipeline.update_components(controlnet=controlnet)
        blocks = self._pipeline._blocks.sub_blocks
        with torch.inference_mode(), ExitStack() as watches:
            watches.enter_context(_before(blocks["decode"], keep))
            for name, look in _between_stages(request).items():
                if name in blocks:
                    watches.enter_context(_before(blocks[name], look))
            state = self._pipeline(**known)
        films = state.get("videos")
        if films is None:
            return Picture(latents[0], _pixels(state.get("images")))
        frames = (films[0].movedim(1, -1).clamp(0, 1) * 255).round() / 255
        return Picture(latents[0], frames, sound=state.get("audio"))

    def _given(self, request: PictureRequest) -> dict[str, Any]:
        """The inputs of all blocks, by the names that blocks know them by."""
        given: dict[str, Any] = {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "image": _images(request),
            "width": request.width,
            "height": request.height,
            "max_area": request.width * request.height,
            "num_frames": request.more.get("frames"),
            "layers": request.more.get("layers"),
            "num_inference_steps": request.steps,
            "pyramid_num_inference_steps_list": [request.steps] * 3,
            "guidance_scale": request.guidance,
            "guidance_schedule": [request.guidance] * request.steps,
            "generator": torch.Generator().manual_seed(request.seed),
            "output_type": "pt",
        }
        if request.source is not None:
            given["strength"] = request.more.get("denoise", 1.0)
            if request.references is None:
                given["image"] = torch.from_numpy(request.source).movedim(-1, 1)
        if request.control is not None:
            control = request.more["control"]
            given["control_image"] = torch.from_numpy(request.control).movedim(-1, 1)
            given["controlnet_conditioning_scale"] = control.get("strength", 1.0)
            given["control_guidance_start"] = control.get("start", 0.0)
            given["control_guidance_end"] = control.get("end", 1.0)
        if request.mask is not None:
            given["mask_image"] = torch.from_numpy(request.mask).movedim(-1, 1)
            if "padding_mask_crop" in self._takes and "mask_overlay_kwargs" in self._takes:
                given["output_type"] = "pil"
        return given


def _between_stages(request: PictureRequest) -> dict[str, Callable[[Any], None]]:
    """What a state is like where a stage of ours begins, by the block that begins it."""

    def rewind(state: Any) -> None:
        """The seed counts anew, and tensors have no layout of their own."""
        state.get("generator").manual_seed(request.seed)
        for name in ("image_latents", "masked_image_latents"):
            if state.get(name) is not None:
                state.set(name, state.get(name).contiguous())

    def restart(state: Any) -> None:
        """The picture that steers is encoded with a seed of its own."""
        state.get("generator").manual_seed(0)

    if request.control is not None:
        return {"controlnet_vae_encoder": restart, "denoise": rewind}
    return {} if request.source is None else {"denoise": rewind}


@contextmanager
def _before(block: Any, look: Callable[[Any], None]) -> Iterator[None]:
    """Look at the state whenever a block of this class is about to run."""
    cls = type(block)
    own = cls.__call__

    def call(block: Any, components: Any, state: Any) -> Any:
        look(state)
        return own(block, components, state)

    cls.__call__ = call
    try:
        yield
    finally:
        cls.__call__ = own


def _pixels(images: Any) -> torch.Tensor:
    """`[B, H, W, 3]` in 0..1; blocks that lay masks over pictures give PIL's."""
    if isinstance(images, list) and isinstance(images[0], torch.Tensor):
        images = torch.cat(images)
    if isinstance(images, torch.Tensor):
        return images.movedim(1, -1)
    return torch.stack([torch.from_numpy(np.array(image)) for image in images]) / 255


def _guider(spec: Any, request: PictureRequest, *, enabled: bool) -> Any:
    """The one that a block has of itself, with what was asked for."""
    if spec.type_hint is not diffusers.LTX2Guidance:
        asked = {"guidance_scale": request.guidance, "enabled": enabled}
        return spec.type_hint(**{**spec.config, **asked})
    sound = spec.name == "audio_guider"
    asked = {"stg_scale": request.more.get("audio_stg" if sound else "stg", 0.0)}
    if not sound:
        asked |= {"guidance_scale": request.guidance}
        asked |= {"spatio_temporal_guidance_blocks": request.more.get("stg_layers")}
    return diffusers.LTX2Guidance(**{**spec.config, **asked})


def _component(folder: Path, library: str, name: str) -> Any:
    owner = f"diffusers.pipelines.{library}" if library == "ltx2" else library
    cls = getattr(importlib.import_module(owner), name)
    if isinstance(cls, type) and issubclass(cls, torch.nn.Module):
        return load_module(folder, cls, dtype="float32", device="cpu")
    return load_scheduler(folder) if folder.name == "scheduler" else cls.from_pretrained(folder)


def _images(request: PictureRequest) -> Any:
    if request.references is None:
        return None
    pictures = [Image.fromarray((p * 255).round().astype("uint8")) for p in request.references]
    return pictures[0] if len(pictures) == 1 else pictures


def _all(block: Any) -> list[Any]:
    return [block, *(b for s in getattr(block, "sub_blocks", {}).values() for b in _all(s))]
