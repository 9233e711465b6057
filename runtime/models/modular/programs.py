"""The stages of a family as programs over diffusers' blocks.

Blocks are wired as diffusers means them to be: what one gives, the next takes by the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from PIL import Image, ImageOps
from torch.nn import functional

from ...protocol.errors import InvalidRequest
from ..controlnet import controlnet_module
from ..latent_space import LatentSpace
from ..program import Bundle, Program, StageContext, text_of
from .blocks import StageBlocks
from .checks import (
    check_can_see,
    check_channels,
    check_control,
    check_control_size,
    check_kept,
    check_latent_size,
    check_length,
    check_prompt,
    check_reference_size,
    check_references,
    check_sides,
)
from .family import REFERENCES, ModularFamily
from .generators import generators, last_state, noise_source
from .guiders import guidance_schedule, make_guider, make_own_guider, neutral_scale
from .schedulers import make_scheduler
from .sizes import Sides
from .state import from_bundle, to_bundle

_REFERENCE: Final = "reference"

_MASK: Final = "processed_mask_image"

_ANEW: Final = 0.5
"""From here on a mask says "draw anew", as in diffusers."""

_FACTS: Final = frozenset({"frame_rate"})
"""What decoding does not take but results have."""


@dataclass(frozen=True)
class Stages:
    """Everything the programs of one loaded model share.

    Attributes:
        family: what it declares.
        blocks: diffusers' blocks by name: `text_encoder`, `vae_encoder`, `denoise`, `decode`,
            and perhaps `image_encoder` and `controlnet_vae_encoder`.
        modules: the module to use for each component; `strict_modules` in strict requests.
        schedulers: the checkpoint's own, by component name.
        space: how latents are normalised; None where they cannot leave the family.
        sides: the sizes it makes; None: it is never left to choose one.
        rate: samples per second of the sound that it makes.
        tokenizers: with the tokens of a prompt that each may make.
    """

    family: ModularFamily
    blocks: Mapping[str, StageBlocks]
    modules: Mapping[str, str]
    strict_modules: Mapping[str, str]
    schedulers: Mapping[str, Any]
    space: LatentSpace | None
    sides: Sides | None
    rate: int | None
    tokenizers: Sequence[tuple[Any, int]]

    def programs(self) -> dict[str, Program]:
        """The programs by stage."""
        programs: dict[str, Program] = {
            "text_encode": self.text_encode,
            "sample": self.sample,
            "vae_decode": self.vae_decode,
        }
        if "vae_encoder" in self.blocks:
            programs["vae_encode"] = self.vae_encode
        return programs

    def text_encode(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Prompts to embeddings; reference pictures travel with them, as they came."""
        prompt = text_of("prompt", params, inputs)
        negative = text_of("negative_prompt", params, inputs)
        if self.family.needs_prompt:
            check_prompt(prompt)
        for tokenizer, most in self.tokenizers:
            check_length("prompt", prompt, tokenizer, most)
            check_length("negative_prompt", negative, tokenizer, most)
        guided = self.family.negatives or bool(negative)
        references = self._references(inputs)
        state = self._run(
            "text_encoder",
            context,
            {**params, "guidance": 2.0, "guider": None},  # any: it decides what is encoded
            guided=guided,
            prompt=prompt,
            negative_prompt=negative if guided else None,
            image=[self._picture(picture) for picture in references] or None,
        )
        carried = self.blocks["text_encoder"].gives & self.blocks["denoise"].takes
        bundle = to_bundle({n: state[n] for n in carried if n in state}, "conditioning")
        kept = {f"{_REFERENCE}.{i}": picture for i, picture in enumerate(references)}
        return {"conditioning": Bundle({**bundle.tensors, **kept}, bundle.facts)}

    def sample(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Noise, or given latents with noise, to latents.

        `[count, C, (frames,) h, w]`; with B latents to start from, `count` of each.
        """
        denoise = self.blocks["denoise"]
        params = self._sized(params, inputs)
        conditioning = from_bundle(inputs["conditioning"], denoise.takes)
        guided = any(name.startswith("negative") for name in conditioning)
        pictures, of_each = params["count"], params["count"]
        generator = generators(params["seed"], pictures)
        encoded = self._encoded_references(context, params, inputs["conditioning"], generator)
        conditioning |= encoded
        conditioning |= self._steered(context, params, inputs)
        if "latent" in inputs:
            start = self._start(inputs["latent"], params)
            pictures, of_each = len(start["image_latents"]) * of_each, 1
            conditioning |= {n: _each(v, params["count"]) for n, v in start.items()}
            conditioning = {n: _repeated(v, pictures) for n, v in conditioning.items()}
            conditioning["strength"] = params["denoise"]
            generator = generators(params["seed"], pictures)
        state = self._run(
            "denoise",
            context,
            params,
            guided=guided,
            **{**_size(params), **conditioning},
            num_inference_steps=params.get("steps"),
            pyramid_num_inference_steps_list=self._steps_of_sizes(params),
            # a cache over steps is a request's own; it pays where pictures are kept in it
            use_kv_cache=context.strict or bool(encoded),
            num_images_per_prompt=of_each,
            num_videos_per_prompt=of_each,
            guidance_scale=params.get("guidance"),
            guidance_schedule=self._guidance_schedule(params),
            generator=generator,
        )
        return {"latent": self._latent(state, self.blocks["decode"].takes | _FACTS)}

    def vae_encode(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Pictures `[B, H, W, 3]` in 0..1, and perhaps a mask of what to draw anew, to latents."""
        pictures = inputs["images"].tensors["images"]
        check_channels("images", pictures, "vae_encode", transparent=self.family.transparent)
        height, width = pictures.shape[1:3]
        check_sides(width, height, 2 * self.family.scale)
        pixels: Any = pictures.movedim(-1, 1)
        if "height" not in self.blocks["vae_encoder"].takes:  # they ask the picture
            pixels = [self._picture(_bytes(picture)) for picture in pictures]
        state = self._run(
            "vae_encoder",
            context,
            params,
            image=pixels,
            mask_image=_mask(inputs, len(pictures), height, width),
            height=height,
            width=width,
            generator=generators(params["seed"], len(pictures)),
        )
        check_kept(self._pixels_of(state["image_latents"]), (width, height))
        taken = self.blocks["denoise"].takes - {"image_latents", "generator"}
        return {"latent": self._latent({**state, "latents": state["image_latents"]}, taken)}

    def vae_decode(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Latents to pictures `[B, H, W, 3]`, float32 in 0..1, or to a film."""
        decode = self.blocks["decode"]
        latent = inputs["latent"]
        given = from_bundle(latent, decode.takes) | {"latents": self._latents(latent)}
        given |= {"output_type": "pt", "generator": noise_source(latent)}
        state = self._run("decode", context, params, **given)
        if state.get("videos") is not None:
            fps = params.get("fps") or from_bundle(latent, _FACTS)["frame_rate"]
            return _film(state, fps) | self._sound(state)
        return {"images": Bundle({"images": _pixels(state["images"])}, {"kind": "images"})}

    # the parts of a stage

    def _run(
        self, name: str, context: StageContext, params: Mapping[str, Any], **given: Any
    ) -> Mapping[str, Any]:
        """Run a block with the request's own scheduler and guider.

        It is also given the parameters that it takes by their own names.
        """
        guided = given.pop("guided", False)
        blocks = self.blocks[name]
        own: dict[str, Any] = {}
        for part in blocks.wants & self.schedulers.keys():
            own[part] = make_scheduler(self.schedulers[part], params.get("scheduler", "default"))
        for part, spec in blocks.guiders.items():
            own[part] = self._guider(part, spec, params, guided=guided)
        modules = self.strict_modules if context.strict else self.modules
        if control := params.get("control"):
            modules = {**modules, "controlnet": controlnet_module(control["name"])}
        return blocks.run(context, modules, own, **{**params, **given})

    def _guider(self, part: str, spec: Any, params: Mapping[str, Any], *, guided: bool) -> Any:
        """The guider that was asked for, or else the one that the block has of itself."""
        if part in self.family.guidance:
            changes = {name: params[given] for name, given in self.family.guidance[part].items()}
            return make_own_guider(spec, changes)
        if params.get("guider") is not None:
            scale = params["guidance"]
            return make_guider(params["guider"], guidance=scale, enabled=guided and scale > 1)
        scale = params.get("guidance")
        enabled = guided and spec.config.get("enabled", True)
        if scale is not None:
            enabled = guided and scale > neutral_scale(spec.config)
        return make_own_guider(spec, {"guidance_scale": scale, "enabled": enabled})

    def _steps_of_sizes(self, params: Mapping[str, Any]) -> list[int] | None:
        """Denoising steps at each size, for blocks that go from small to large."""
        own = self.blocks["denoise"].defaults.get("pyramid_num_inference_steps_list")
        return [params["steps"]] * len(own) if own and params.get("steps") else None

    def _guidance_schedule(self, params: Mapping[str, Any]) -> list[float] | None:
        """A guidance scale for each step, for blocks that want as many."""
        own = self.blocks["denoise"].defaults.get("guidance_schedule")
        return own and guidance_schedule(own, params.get("steps"), params.get("guidance"))

    def _encoded_references(
        self,
        context: StageContext,
        params: Mapping[str, Any],
        conditioning: Bundle,
        generator: Any,
    ) -> dict[str, Any]:
        """What the denoise block wants of the reference pictures, at the size asked for."""
        tensors = from_bundle(conditioning, {_REFERENCE}).get(_REFERENCE, [])
        if not tensors:
            return {}
        pictures = [self._picture(tensor) for tensor in tensors]
        if self.family.fits_references and params.get("width") and params.get("height"):
            wide, high = params["width"], params["height"]
            pictures = [ImageOps.fit(picture, (wide, high)) for picture in pictures]
        found: dict[str, Any] = {}
        for name in ("image_encoder", "vae_encoder"):
            if name in self.blocks:
                check_can_see(self.blocks[name].needs - self.modules.keys())
                state = self._run(
                    name,
                    context,
                    params,
                    image=pictures[0] if len(pictures) == 1 else pictures,
                    **_size(params),
                    generator=generator[0] if isinstance(generator, list) else generator,
                )
                gives = self.blocks[name].gives & self.blocks["denoise"].takes
                found |= {n: state[n] for n in gives if state.get(n) is not None}
        return found

    def _steered(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Any]:
        """What the denoise block wants of the picture that a ControlNet goes by."""
        control = params.get("control")
        check_control(control is not None, "control" in inputs)
        if control is None:
            return {}
        pictures = inputs["control"].tensors["images"]
        check_channels("control", pictures, "sample", transparent=self.family.transparent)
        check_control_size(pictures, params)
        found = {
            "control_image": pictures.movedim(-1, 1),
            "controlnet_conditioning_scale": control["strength"],
            "control_guidance_start": control["start"],
            "control_guidance_end": control["end"],
        }
        encoder = self.blocks.get("controlnet_vae_encoder")
        if encoder is not None:
            # the seed of no picture, so that each of several is what its own seed gives alone
            generator = generators(0, 1)
            given = {**found, **_size(params), "generator": generator}
            state = self._run("controlnet_vae_encoder", context, params, **given)
            found |= {name: state[name] for name in encoder.gives}
        return found

    def _latent(self, state: Mapping[str, Any], carried: frozenset[str]) -> Bundle:
        """The latents of a state, with what the next block takes beside them."""
        names = (carried & state.keys()) - {"latents", "generator", "output_type", "image"}
        values = {n: state[n] for n in names if not isinstance(state[n], torch.Generator)}
        if "generator" in carried:  # decoding goes on where sampling stopped
            values["generator_state"] = last_state(state.get("generator"))
        bundle = to_bundle(values, "latent")
        space = self.space.facts() if self.space is not None else {}
        return Bundle({**bundle.tensors, "samples": state["latents"]}, {**bundle.facts, **space})

    def _latents(self, bundle: Bundle) -> torch.Tensor:
        if self.space is not None:
            return self.space.latents(bundle)
        if bundle.facts.get("space") == "vae":
            raise InvalidRequest(
                "This family takes no latents from elsewhere.", field="latent", stage="vae_decode"
            )
        return bundle.tensors["samples"]

    def _references(self, inputs: Mapping[str, Bundle]) -> list[torch.Tensor]:
        """All reference pictures `[H, W, 3 or 4]`, uint8."""
        found: list[torch.Tensor] = []
        for name in REFERENCES:
            if name in inputs:
                pictures = inputs[name].tensors["images"]
                check_channels(name, pictures, "text_encode", transparent=self.family.transparent)
                check_reference_size(
                    name, pictures, self.family.reference_side, self.family.reference_shape
                )
                found += [_bytes(picture) for picture in pictures]
        check_references(len(found), self.family.references)
        return found

    def _sized(self, params: Mapping[str, Any], inputs: Mapping[str, Bundle]) -> Mapping[str, Any]:
        """The parameters, with the size if that was left to the model."""
        if self.sides is None:
            return params
        like = None
        if "latent" in inputs:
            like = self._pixels_of(self._latents(inputs["latent"]))
        elif pictures := from_bundle(inputs["conditioning"], {_REFERENCE}):
            high, wide = pictures[_REFERENCE][0].shape[:2]
            like = wide, high
        width, height = self.sides.fill(params["width"], params["height"], like)
        return {**params, "width": width, "height": height}

    def _pixels_of(self, latents: torch.Tensor) -> tuple[int, int]:
        """Width and height of what latents stand for."""
        return latents.shape[-1] * self.family.scale, latents.shape[-2] * self.family.scale

    def _start(self, latent: Bundle, params: Mapping[str, Any]) -> dict[str, Any]:
        """The latents to start from, for the size that was asked for, with their mask."""
        latents = self._latents(latent)
        have = self._pixels_of(latents)
        asked = (params["width"] or have[0], params["height"] or have[1])
        check_latent_size(have, asked)
        beside = from_bundle(latent, self.blocks["denoise"].takes - _size(params).keys())
        if latent.facts.get("space") == "vae" and "mask" in latent.tensors:
            beside |= self._mask_of(latent, asked)
        return beside | {"image_latents": latents}

    def _mask_of(self, latent: Bundle, size: tuple[int, int]) -> dict[str, Any]:
        """The mask `[B, 1, H, W]` of latents from elsewhere, at the pictures' size.

        Raises:
            InvalidRequest: sampling takes none, or also wants what only VAE Encode makes of it.
        """
        if _MASK not in self.blocks["denoise"].takes:
            raise InvalidRequest(
                "This model takes no mask that comes with a latent; if it can inpaint, give the "
                "mask to VAE Encode.",
                field="latent",
                stage="sample",
            )
        mask = functional.interpolate(latent.tensors["mask"].float(), size=size[::-1])
        return {_MASK: (mask >= _ANEW).float()}

    def _sound(self, state: Mapping[str, Any]) -> dict[str, Bundle]:
        """The sound of a state `[B, C, T]`, where the model makes one."""
        waveform = state.get("audio")
        if waveform is None:
            return {}
        facts = {"kind": "audio", "rate": self.rate}
        return {"audio": Bundle({"waveform": waveform.float().contiguous()}, facts)}

    def _picture(self, pixels: torch.Tensor) -> Image.Image:
        picture = Image.fromarray(pixels.cpu().numpy())
        return picture.convert("RGBA" if self.family.transparent else "RGB")


def _size(params: Mapping[str, Any]) -> dict[str, Any]:
    """The size by the names that blocks use; `max_area` where they would else choose their own."""
    width, height = params.get("width"), params.get("height")
    return {
        "width": width,
        "height": height,
        "max_area": width * height if width and height else None,
        "num_frames": params.get("frames"),
        "frame_rate": params.get("fps"),
    }


def _bytes(picture: torch.Tensor) -> torch.Tensor:
    return (picture.clamp(0, 1) * 255).round().to(torch.uint8)


def _mask(inputs: Mapping[str, Bundle], rows: int, height: int, width: int) -> torch.Tensor | None:
    """The mask `[B, 1, H, W]`, of the pictures' size.

    Raises:
        InvalidRequest: it is of another size, or there is not one for each picture or for all.
    """
    if "mask" not in inputs:
        return None
    mask = inputs["mask"].tensors["images"][..., :1].movedim(-1, 1)
    shape = tuple(mask.shape[-2:])
    if shape != (height, width) or len(mask) not in (1, rows):
        raise InvalidRequest(
            f"The mask is of {len(mask)} x {shape[1]}x{shape[0]} px, the picture of "
            f"{rows} x {width}x{height} px.",
            field="mask",
            value=f"{shape[1]}x{shape[0]}",
            allowed=f"{width}x{height}",
            stage="vae_encode",
        )
    return mask.expand(rows, -1, -1, -1)


def _each(value: Any, count: int) -> Any:
    """What each latent to start from has, `count` times in a row."""
    return value.repeat_interleave(count, 0) if isinstance(value, torch.Tensor) else value


def _repeated(value: Any, rows: int) -> Any:
    """A prompt's value once for each latent to start from."""
    if isinstance(value, torch.Tensor):
        return value.expand(rows, *value.shape[1:]) if len(value) == 1 else value
    if isinstance(value, list) and len(value) == 1:
        return value * rows
    return value


def _pixels(images: torch.Tensor | list[torch.Tensor]) -> torch.Tensor:
    """Pictures `[B, H, W, C]` of a block's `[B, C, H, W]`, or of one such per prompt."""
    if isinstance(images, list):
        images = torch.cat(images)
    return images.movedim(1, -1).float().contiguous()


def _film(state: Mapping[str, Any], fps: float) -> dict[str, Bundle]:
    """The film of a state `[1, T, 3, H, W]`."""
    frames = state["videos"][0].movedim(1, -1)
    pixels = (frames.float().clamp(0, 1) * 255).round().to(torch.uint8).contiguous()
    return {"video": Bundle({"frames": pixels}, {"kind": "video", "fps": fps})}
