"""Denoise stages of diffusers' blocks over tiny random transformers, in the engine and without."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import diffusers
import torch
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.engine.diffusion.settings import EngineSettings
from omnistage.runtime.models.modular.guiders import make_guider
from omnistage.runtime.models.modular.schedulers import make_scheduler
from omnistage.runtime.models.modular.specs import SPECS
from omnistage.runtime.models.program import Bundle, LoadedModel, step_progress
from omnistage.runtime.models.torchvision_ops import make_torchvision_importable
from omnistage.tests.fakes.tiny_diffusion.weights import denoiser

make_torchvision_importable()

SIDE = 64


@dataclass(frozen=True)
class Denoising:
    """The denoise stage of a family.

    Attributes:
        blocks: class of diffusers' blocks.
        module: name of the module that denoises.
        conditioning: what the block takes, for prompt number i.
    """

    blocks: str
    module: str
    denoiser: torch.nn.Module
    scheduler: Any
    conditioning: Callable[[int], Mapping[str, Any]]
    vae: Any = None
    guided: bool = True

    def engine(self, **settings: Any) -> DiffusionEngine:
        """An engine with this stage, as model `tiny`."""
        block = copy.deepcopy(self._block())  # diffusers shares them
        for loop in _loops(block):
            loop.progress_bar = step_progress
        prototype = block.init_pipeline()

        def sample(context: Any, params: Mapping[str, Any], inputs: Any) -> dict[str, Bundle]:
            pipeline = copy.copy(prototype)
            own = {
                self.module: context.module(self.module),
                "vae": self.vae,
                "scheduler": make_scheduler(self.scheduler, params["scheduler"]),
            }
            if self.guided:
                spec = params["guider"] or {"kind": "cfg"}
                own["guider"] = make_guider(spec, guidance=3.0, enabled=True)
            pipeline.__dict__.update(own)
            latents = pipeline(**self._given(params), output="latents")
            return {"latent": Bundle({"samples": latents}, {"kind": "latent"})}

        model = LoadedModel(
            modules={self.module: self.denoiser},
            specs={
                (self.module, method): spec
                for method, spec in SPECS[type(self.denoiser).__name__].items()
            },
            programs={"sample": sample},
            denoiser=(self.module, "__call__"),
        )
        return DiffusionEngine({"tiny": lambda: model}, EngineSettings(profile=False, **settings))

    def reference(
        self, *, scheduler: Any = None, guider: Any = None, **params: Any
    ) -> torch.Tensor:
        """The same by diffusers alone, with the module itself."""
        pipeline = self._block().init_pipeline()
        parts = {
            self.module: self.denoiser,
            "scheduler": copy.deepcopy(scheduler or self.scheduler),
        }
        if self.guided:
            parts["guider"] = guider or diffusers.ClassifierFreeGuidance(guidance_scale=3.0)
        pipeline.__dict__.update(parts, vae=self.vae)
        with torch.inference_mode():
            return pipeline(**self._given(request(**params)), output="latents")

    def _block(self) -> Any:
        return getattr(diffusers, self.blocks)().sub_blocks["denoise"]

    def _given(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self.conditioning(params["prompt"]),
            "num_inference_steps": params["steps"],
            "generator": torch.Generator().manual_seed(params["seed"]),
            **params["more"],
        }


def _loops(block: Any) -> list[Any]:
    found = [block] if isinstance(block, LoopSequentialPipelineBlocks) else []
    return found + [
        loop for sub in getattr(block, "sub_blocks", {}).values() for loop in _loops(sub)
    ]


def request(**params: Any) -> dict[str, Any]:
    """A request's parameters, with defaults."""
    more = params.pop("more", {})
    usual = {"prompt": 0, "steps": 4, "seed": 0, "scheduler": "default", "guider": None}
    return {**usual, **params, "more": more}


def run(
    engine: DiffusionEngine,
    requests: Iterable[Mapping[str, Any]],
    *,
    stagger: int = 0,
    stop: Mapping[int, int] | None = None,
) -> list[Any]:
    """Latents of each request, its error, or None if it was cancelled.

    Args:
        stagger: engine steps between arrivals.
        stop: requests to cancel, and after how many of their denoising steps.
    """
    waiting = list(enumerate(requests))
    results: dict[int, Any] = dict.fromkeys(range(len(waiting)))
    steps = 0
    while waiting or engine.busy:
        while waiting and waiting[0][0] * stagger <= steps:
            number, params = waiting.pop(0)
            engine.submit(StageTask(str(number), "tiny", "sample", params, {}))
        for event in engine.step():
            number = int(event.task)
            if event.kind == "done":
                array = event.outputs["latent"].tensors["samples"].array
                results[number] = torch.from_numpy(array.copy())
            elif event.kind == "failed":
                results[number] = event.error
            elif event.kind == "progress" and event.step == (stop or {}).get(number):
                engine.cancel(event.task)
        engine.check_integrity()
        steps += 1
    return list(results.values())


def _noise(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.bool)


@cache
def qwen_image() -> Denoising:
    """Qwen-Image: sigmas and their shift come from the blocks."""
    transformer = diffusers.QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=64,
        out_channels=16,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=16,
        axes_dims_rope=(8, 4, 4),
    )
    vae = diffusers.AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        attn_scales=[],
    )

    def conditioning(i: int) -> dict[str, Any]:
        return {
            "prompt_embeds": _noise(i, 1, 5 + i, 16),
            "prompt_embeds_mask": _ones(1, 5 + i),
            "negative_prompt_embeds": _noise(50 + i, 1, 4, 16),
            "negative_prompt_embeds_mask": _ones(1, 4),
            "height": SIDE,
            "width": SIDE,
            "attention_kwargs": {},
        }

    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, shift_terminal=0.02, base_shift=0.5, max_shift=0.9
    )
    return Denoising(
        "QwenImageAutoBlocks",
        "transformer",
        denoiser(transformer, 1),
        scheduler,
        conditioning,
        vae=vae.eval(),
    )


@cache
def wan() -> Denoising:
    """Wan: the blocks give the number of steps only."""
    transformer = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=16,
        out_channels=16,
        text_dim=16,
        freq_dim=32,
        ffn_dim=32,
        num_layers=2,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )
    vae = diffusers.AutoencoderKLWan(
        base_dim=4,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
    )

    def conditioning(i: int) -> dict[str, Any]:
        return {
            "prompt_embeds": _noise(i, 1, 7, 16),
            "negative_prompt_embeds": _noise(50 + i, 1, 7, 16),
            "num_frames": 5,
            "height": 32,
            "width": 32,
        }

    scheduler = diffusers.UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    )
    return Denoising(
        "WanBlocks",
        "transformer",
        denoiser(transformer, 2),
        scheduler,
        conditioning,
        vae=vae.eval(),
    )


@cache
def flux() -> Denoising:
    """Flux: the blocks give sigmas only to schedulers that make no flow sigmas themselves."""
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        guidance_embeds=True,
        axes_dims_rope=(4, 4, 8),
    )

    def conditioning(i: int) -> dict[str, Any]:
        return {
            "prompt_embeds": _noise(i, 1, 7, 32),
            "pooled_prompt_embeds": _noise(20 + i, 1, 32),
            "guidance_scale": 2.0 + i,
            "height": SIDE,
            "width": SIDE,
        }

    return Denoising(
        "FluxAutoBlocks",
        "transformer",
        denoiser(transformer, 3),
        diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        conditioning,
        vae=_picture_vae(),
        guided=False,
    )


@cache
def z_image() -> Denoising:
    """Z-Image: the blocks give sigmas as a list."""
    transformer = diffusers.ZImageTransformer2DModel(
        in_channels=4,
        dim=48,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=32,
        axes_dims=[8, 8, 8],
        axes_lens=[256, 64, 64],
    )

    def conditioning(i: int) -> dict[str, Any]:
        return {
            "prompt_embeds": [_noise(i, 5 + i, 32)],
            "negative_prompt_embeds": [_noise(50 + i, 4, 32)],
            "height": SIDE,
            "width": SIDE,
        }

    return Denoising(
        "ZImageAutoBlocks",
        "transformer",
        denoiser(transformer, 4),
        diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        conditioning,
        vae=_picture_vae(),
    )


@cache
def stable_diffusion_3() -> Denoising:
    """SD3: the blocks give the number of steps only."""
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
        pos_embed_max_size=96,
    )

    def conditioning(i: int) -> dict[str, Any]:
        return {
            "prompt_embeds": _noise(i, 1, 7, 32),
            "pooled_prompt_embeds": _noise(20 + i, 1, 64),
            "negative_prompt_embeds": _noise(50 + i, 1, 7, 32),
            "negative_pooled_prompt_embeds": _noise(70 + i, 1, 64),
            "height": SIDE,
            "width": SIDE,
        }

    return Denoising(
        "StableDiffusion3AutoBlocks",
        "transformer",
        denoiser(transformer, 5),
        diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        conditioning,
        vae=_picture_vae(),
    )


@cache
def stable_diffusion_xl() -> Denoising:
    """SDXL: predicts noise, and its blocks hand the generator to schedulers that take one."""
    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(16, 32),
        layers_per_block=1,
        sample_size=32,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 1),
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=32,
        norm_num_groups=4,
    )

    def conditioning(i: int) -> dict[str, Any]:
        return {
            "prompt_embeds": _noise(i, 1, 7, 32),
            "pooled_prompt_embeds": _noise(20 + i, 1, 32),
            "negative_prompt_embeds": _noise(50 + i, 1, 7, 32),
            "negative_pooled_prompt_embeds": _noise(70 + i, 1, 32),
            "height": SIDE,
            "width": SIDE,
        }

    scheduler = diffusers.EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1
    )
    return Denoising(
        "StableDiffusionXLAutoBlocks",
        "unet",
        denoiser(unet, 6),
        scheduler,
        conditioning,
        vae=_picture_vae(),
    )


@cache
def _picture_vae() -> Any:
    return diffusers.AutoencoderKL(
        down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4,
        block_out_channels=[8] * 4,
        norm_num_groups=4,
        latent_channels=4,
    ).eval()
