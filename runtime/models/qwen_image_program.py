"""Loading Qwen-Image, and its stages as programs over diffusers' modular blocks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from diffusers import (
    AutoencoderKLQwenImage,
    ClassifierFreeGuidance,
    QwenImageAutoBlocks,
    QwenImageTransformer2DModel,
)
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from ..protocol.errors import InvalidRequest
from .call_spec import CallSpec
from .components import load_module, load_scheduler, load_tokenizer
from .latent_rgb import fit_latent_to_rgb
from .latent_space import LatentSpace
from .program import Bundle, LoadedModel, StageContext, step_progress
from .qwen_image import MAX_SEED
from .qwen_image_packed import QwenImagePacked
from .qwen_image_text import TextEncode
from .still_image import still_image_vae

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

SCALE = 8
"""Pixels a latent stands for, on each side; the transformer takes latents two by two."""

SPECS = {
    ("transformer", "__call__"): CallSpec(
        primary="hidden_states",
        rows=frozenset({"hidden_states", "timestep"}),
        lists=frozenset({"img_shapes"}),
        pad={"encoder_hidden_states": "encoder_hidden_states_mask"},
        deferred=True,
        packed=QwenImagePacked(),
    ),
    ("text_encoder", "__call__"): CallSpec(
        primary="input_ids",
        pad={"input_ids": "attention_mask"},
        fixed={"use_cache": False},
        trim="input_ids",
    ),
    ("vae", "encode"): CallSpec(primary="x", rows=frozenset({"x"})),
    ("vae", "decode"): CallSpec(primary="z", rows=frozenset({"z"})),
    ("still_vae", "encode"): CallSpec(primary="x", rows=frozenset({"x"})),
    ("still_vae", "decode"): CallSpec(primary="z", rows=frozenset({"z"})),
}
"""How calls merge; proved by the perturbation test in `tests/runtime/models`."""


def load(checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
    """Load a Qwen-Image checkpoint; see `Family.load`."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    def module(name: str, cls: Any) -> torch.nn.Module:
        return load_module(checkpoint.folder / name, cls, dtype=dtype, device=device)

    vae = module("vae", AutoencoderKLQwenImage)
    modules = {
        "text_encoder": module("text_encoder", Qwen2_5_VLForConditionalGeneration),
        "transformer": module("transformer", QwenImageTransformer2DModel),
        "vae": vae,
        "still_vae": still_image_vae(vae),
    }
    programs = _Programs(
        space=LatentSpace.of(vae.config),
        scheduler=load_scheduler(checkpoint.folder / "scheduler"),
    )
    return LoadedModel(
        modules=modules,
        specs=SPECS,
        programs={
            "text_encode": TextEncode(load_tokenizer(checkpoint.folder / "tokenizer")),
            "sample": programs.sample,
            "vae_encode": programs.vae_encode,
            "vae_decode": programs.vae_decode,
        },
        denoiser=("transformer", "__call__"),
        preview=_clean_latents,
        latent_to_rgb=_latent_to_rgb(modules["still_vae"]),
    )


class _Programs:
    """The stages around the latents.

    The pipelines here are prototypes that never run: each request takes a shallow copy of one
    and gives it proxies, a scheduler and a guider of its own.
    """

    def __init__(self, space: LatentSpace, scheduler: Any) -> None:
        self._space = space
        self._scheduler = scheduler
        blocks = copy.deepcopy(QwenImageAutoBlocks().sub_blocks)  # ours: the bars are replaced
        for loop in _loops(blocks.values()):
            loop.progress_bar = step_progress
        tasks = blocks["denoise"].sub_blocks  # chosen here: choosing anew costs every request
        stages = {
            "text_to_image": tasks["text2image"],
            "image_to_image": tasks["img2img"],
            "encode_image": blocks["vae_encoder"].sub_blocks["img2img"],
            "decode": blocks["decode"].sub_blocks["decode"],
        }
        self._pipelines = {name: block.init_pipeline() for name, block in stages.items()}

    def sample(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Noise, or given latents with noise, to latents.

        `[count, C, 1, h, w]`; with B latents to start from, `count` of each: `[B * count, ...]`.
        """
        conditioning = inputs["conditioning"].tensors
        guided = params["guidance"] > 1 and "negative_prompt_embeds" in conditioning
        task = "image_to_image" if "latent" in inputs else "text_to_image"
        pipeline = self._pipeline(task, context, transformer="transformer")
        pipeline.scheduler = copy.deepcopy(self._scheduler)
        pipeline.guider = ClassifierFreeGuidance(guidance_scale=params["guidance"], enabled=guided)
        given = {k: v for k, v in conditioning.items() if guided or not k.startswith("negative")}
        pictures = params["count"]
        if "latent" in inputs:
            start = self._start_from(inputs["latent"], params).to(given["prompt_embeds"])
            given = {k: v.expand(len(start), *v.shape[1:]) for k, v in given.items()}
            given |= {"image_latents": start, "strength": params["denoise"]}
            pictures *= len(start)
        latents = pipeline(
            **given,
            height=params["height"],
            width=params["width"],
            num_inference_steps=params["steps"],
            num_images_per_prompt=params["count"],
            generator=_generators(params["seed"], pictures),
            attention_kwargs={},
            output="latents",
        )
        return {"latent": self._space.bundle(latents)}

    def vae_encode(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Pictures `[B, H, W, 3]` in 0..1 to latents `[B, C, 1, h, w]`."""
        pixels = inputs["images"].tensors["images"].movedim(-1, 1)
        height, width = pixels.shape[-2:]
        _check_sides(width, height)
        pipeline = self._pipeline("encode_image", context, vae=_vae(context))
        latents = pipeline(image=pixels, height=height, width=width, output="image_latents")
        return {"latent": self._space.bundle(latents)}

    def vae_decode(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Latents to pictures `[B, H, W, 3]`, float32 in 0..1."""
        pipeline = self._pipeline("decode", context, vae=_vae(context))
        latents = self._space.latents(inputs["latent"])
        images = pipeline(latents=latents, output_type="pt", output="images")
        pictures = images.movedim(1, -1).float().contiguous()
        return {"images": Bundle({"images": pictures}, {"kind": "images"})}

    def _pipeline(self, block: str, context: StageContext, **modules: str) -> Any:
        """A pipeline for one request: a shallow copy with proxies in place of modules."""
        pipeline = copy.copy(self._pipelines[block])
        for name, module in modules.items():
            pipeline.__dict__[name] = context.module(module)
        return pipeline

    def _start_from(self, latent: Bundle, params: Mapping[str, Any]) -> torch.Tensor:
        """The latents to start from; they must be for the size that was asked for."""
        latents = self._space.latents(latent)
        have = tuple(side * SCALE for side in reversed(latents.shape[-2:]))
        asked = (params["width"], params["height"])
        if have != asked:
            raise InvalidRequest(
                f"The latent is for {have[0]}x{have[1]} px, "
                f"but {asked[0]}x{asked[1]} px were asked for.",
                field="latent",
                value=f"{have[0]}x{have[1]}",
                allowed=f"{asked[0]}x{asked[1]}",
                stage="sample",
            )
        return latents


def _loops(blocks: Any) -> list[Any]:
    found = []
    for block in blocks:
        if isinstance(block, LoopSequentialPipelineBlocks):
            found.append(block)
        found += _loops(getattr(block, "sub_blocks", {}).values())
    return found


def _vae(context: StageContext) -> str:
    """Single frames take the folded twin; strict requests the original."""
    return "vae" if context.strict else "still_vae"


def _generators(seed: int, count: int) -> Any:
    """One generator per picture, so that picture i equals a request with seed + i alone."""
    seeds = [(seed + i) & MAX_SEED for i in range(count)]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return generators if len(generators) > 1 else generators[0]


def _check_sides(width: int, height: int) -> None:
    if width % (2 * SCALE) or height % (2 * SCALE):
        raise InvalidRequest(
            f"A picture of {width}x{height} px cannot be encoded: both sides must be multiples "
            f"of {2 * SCALE}. Scale or crop it first; nothing is cut in silence.",
            field="images",
            value=f"{width}x{height}",
            allowed=f"multiples of {2 * SCALE}",
            stage="vae_encode",
        )


def _clean_latents(arguments: Mapping[str, Any], result: Any) -> torch.Tensor:
    """Estimated clean latents `[rows, C, h, w]` from a denoiser call.

    Flow matching: x_t = (1 - t) x_0 + t noise and v = noise - x_0, so x_0 = x_t - t v.
    """
    noisy, velocity = arguments["hidden_states"], result[0]
    clean = noisy - arguments["timestep"].view(-1, 1, 1) * velocity
    _, height, width = arguments["img_shapes"][0][0]
    rows, _, channels = clean.shape
    patches = clean.view(rows, height, width, channels // 4, 2, 2)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(rows, channels // 4, height * 2, width * 2)


def _latent_to_rgb(vae: Any) -> torch.Tensor:
    """Fit the preview's colours to this VAE: encode patches of plain colours and compare."""
    parameter = next(vae.parameters())
    colours = torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    pictures = torch.nn.functional.interpolate(colours, size=64).unsqueeze(2)
    with torch.inference_mode():
        encoded = vae.encode((pictures * 2 - 1).to(parameter)).latent_dist.mode().float().cpu()
    latents = LatentSpace.of(vae.config).normalised(encoded).movedim(1, -1).flatten(0, -2)
    small = torch.nn.functional.interpolate(colours, size=encoded.shape[-2:])
    return fit_latent_to_rgb(latents, small.movedim(1, -1).flatten(0, -2)).to(parameter.device)
