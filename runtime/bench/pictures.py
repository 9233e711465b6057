"""Requests for pictures and films, run through the diffusion engine or diffusers' own pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..engine.core import EngineEvent, StageTask
from ..engine.diffusion.build import build_core
from ..engine.diffusion.engine import DiffusionEngine
from ..engine.diffusion.settings import EngineSettings
from ..models.catalogue import ModelEntry
from ..models.stage import StageGraph
from ..protocol.errors import OmniStageError
from ..protocol.frames import Frame, Tensor

MODEL = ModelEntry("demo", "demo")

PROMPTS = (
    "a red circle on a blue background",
    "two green stars on white",
    "blue square",
    "a large yellow ring on the left on a black background",
    "an orange diamond on a purple background",
    "white background with a small pink triangle at the top",
    "a cyan star",
    "a black circle on a yellow background, on the right",
)
"""Of different lengths, as real prompts are."""


@dataclass(frozen=True, slots=True)
class PictureRequest:
    """Text to picture.

    Attributes:
        loras: name and strength of each adapter, and the noise it acts at if not all.
        more: further parameters of the sample stage.
        references: pictures `[B, H, W, 3]` in 0..1 that the prompt is about.
        source: pictures to start from, of the size that is asked for; `mask` `[B, H, W, 1]` says
            where to draw anew.
        control: a picture of that size that a ControlNet goes by, `[1, H, W, 3]`.
        arrive: engine step at which it is submitted.
    """

    prompt: str
    seed: int = 0
    width: int = 64
    height: int = 64
    steps: int = 20
    guidance: float = 4.0
    negative_prompt: str = " "
    strict: bool = False
    loras: tuple[tuple[str, float] | tuple[str, float, str], ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    references: np.ndarray[Any, Any] | None = None
    source: np.ndarray[Any, Any] | None = None
    mask: np.ndarray[Any, Any] | None = None
    control: np.ndarray[Any, Any] | None = None
    client: str = ""
    priority: int = 0
    arrive: int = 0


@dataclass(slots=True)
class Picture:
    """What came of a request.

    Attributes:
        latent: `[1, C, (frames,) h, w]`; picture: `[1, H, W, 3]`, or a film's `[T, H, W, 3]`, in
            0..1.
        error: why there is none.
        finished: engine steps until its last stage ended.
    """

    latent: torch.Tensor | None = None
    picture: torch.Tensor | None = None
    sound: torch.Tensor | None = None
    error: OmniStageError | None = None
    cancelled: bool = False
    finished: int = 0


def requests(count: int, **facts: Any) -> list[PictureRequest]:
    """`count` requests with different prompts and seeds."""
    return [PictureRequest(PROMPTS[i % len(PROMPTS)], seed=i, **facts) for i in range(count)]


def make_engine(model: ModelEntry = MODEL, **settings: Any) -> DiffusionEngine:
    """An engine for one model."""
    return build_core(EngineSettings(**settings), [model])


@dataclass
class EngineRun:
    """Drives an engine through the stages of each request, the way the orchestrator does.

    Attributes:
        model: id of the model; `graph` has its stages.
    """

    engine: DiffusionEngine
    requests: Sequence[PictureRequest]
    model: str = MODEL.id
    graph: StageGraph | None = None
    results: list[Picture] = field(default_factory=list)
    steps: int = 0
    _conditioning: dict[int, Mapping[str, Frame]] = field(default_factory=dict)

    def run(self) -> list[Picture]:
        """Submit, step until all have ended, and return what came of each."""
        self.results = [Picture() for _ in self.requests]
        waiting = sorted(range(len(self.requests)), key=lambda i: self.requests[i].arrive)
        while waiting or self.engine.busy:
            while waiting and self.requests[waiting[0]].arrive <= self.steps:
                self._encode(waiting.pop(0))
            for event in self.engine.step():
                self.on_event(event)
            self.steps += 1
        return self.results

    def on_event(self, event: EngineEvent) -> None:
        """Submit the next stage, or note how the request ended."""
        stage, _, number = event.task.partition("-")
        index = int(number)
        result = self.results[index]
        result.finished = self.steps
        if event.kind == "failed":
            result.error = event.error
        elif event.kind == "cancelled":
            result.cancelled = True
        elif event.kind == "done":
            self._next(stage, index, event)

    def cancel(self, index: int) -> None:
        """Cancel whatever stage a request is in."""
        for stage in ("encode", "start", "sample", "decode"):
            self.engine.cancel(f"{stage}-{index}")

    def _encode(self, index: int) -> None:
        request = self.requests[index]
        params = {
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "strict": request.strict,
            "loras": _loras(request),
        }
        inputs = {}
        if request.references is not None:
            inputs["images"] = _images(request.references)
        self._submit("encode", "text_encode", index, params, inputs)

    def _next(self, stage: str, index: int, event: EngineEvent) -> None:
        request, result = self.requests[index], self.results[index]
        if stage == "encode" and request.source is not None:
            self._conditioning[index] = event.outputs
            params: dict[str, Any] = {"seed": request.seed, "strict": request.strict}
            inputs = {"images": _images(request.source)}
            if request.mask is not None:
                inputs["mask"] = _images(request.mask)
            self._submit("start", "vae_encode", index, params, inputs)
        elif stage in ("encode", "start"):
            params = {
                "width": request.width,
                "height": request.height,
                "count": 1,
                "steps": request.steps,
                "guidance": request.guidance,
                "scheduler": "default",
                "denoise": 1.0,
                "seed": request.seed,
                "strict": request.strict,
                "loras": _loras(request),
                **request.more,
            }
            inputs = {**self._conditioning.pop(index, {}), **event.outputs}
            if request.control is not None:
                inputs["control"] = _images(request.control)
            self._submit("sample", "sample", index, params, inputs)
        elif stage == "sample":
            result.latent = _tensor(event.outputs["latent"], "samples")
            params = {"strict": request.strict}
            self._submit("decode", "vae_decode", index, params, dict(event.outputs))
        elif "video" in event.outputs:
            result.picture = _tensor(event.outputs["video"], "frames") / 255
            if "audio" in event.outputs:
                result.sound = _tensor(event.outputs["audio"], "waveform")
        else:
            result.picture = _tensor(event.outputs["images"], "images")

    def _submit(
        self, name: str, stage: str, index: int, params: dict[str, Any], inputs: dict[str, Frame]
    ) -> None:
        request = self.requests[index]
        if self.graph is not None:
            known = self.graph[stage].params.model_fields
            given = {name: value for name, value in params.items() if name in known}
            params = self.graph[stage].check_params(given)
        task = StageTask(
            f"{name}-{index}",
            self.model,
            stage,
            params,
            inputs,
            client=request.client,
            priority=request.priority,
        )
        self.engine.submit(task)


class Diffusers:
    """diffusers' own `QwenImagePipeline` over the same checkpoint: the reference."""

    def __init__(self, model: ModelEntry = MODEL) -> None:
        import diffusers

        self._pipeline = diffusers.QwenImagePipeline.from_pretrained(model.checkpoint.folder)
        self._pipeline.to(getattr(torch, model.dtype)).set_progress_bar_config(disable=True)

    def one(self, request: PictureRequest) -> Picture:
        """One request, one call."""
        return self.batch([request])[0]

    def one_by_one(self, batch: Sequence[PictureRequest]) -> list[Picture]:
        """One call a request, one after the other: what ComfyUI's queue does."""
        return [self.one(request) for request in batch]

    def batch(self, batch: Sequence[PictureRequest]) -> list[Picture]:
        """All requests in one call; they must agree in everything but prompt and seed."""
        first = batch[0]
        latents: list[torch.Tensor] = []

        def keep(pipeline: Any, step: int, timestep: Any, facts: dict[str, Any]) -> dict[str, Any]:
            latents[:] = [facts["latents"]]
            return {}

        images = self._pipeline(
            prompt=[r.prompt for r in batch],
            negative_prompt=[r.negative_prompt for r in batch] if first.negative_prompt else None,
            true_cfg_scale=first.guidance,
            height=first.height,
            width=first.width,
            num_inference_steps=first.steps,
            generator=[torch.Generator().manual_seed(r.seed) for r in batch],
            output_type="pt",
            callback_on_step_end=keep,
        ).images
        unpacked = self._pipeline._unpack_latents(latents[0], first.height, first.width, 8)
        return [
            Picture(latent[None], image.movedim(0, -1)[None])
            for latent, image in zip(unpacked, images, strict=True)
        ]


def latent_difference(ours: Sequence[Picture], theirs: Sequence[Picture]) -> tuple[float, float]:
    """Largest difference between latents, and the largest value of the reference's."""
    pairs = [
        (a.latent, b.latent)
        for a, b in zip(ours, theirs, strict=True)
        if a.latent is not None and b.latent is not None
    ]
    if len(pairs) != len(ours):
        raise AssertionError("a request came to no result")
    diff = max(float((a - b).abs().max()) for a, b in pairs)
    return diff, max(float(b.abs().max()) for _, b in pairs)


def _loras(request: PictureRequest) -> list[dict[str, Any]]:
    names = ("name", "strength", "noise")
    return [dict(zip(names, lora, strict=False)) for lora in request.loras]


def _images(pixels: np.ndarray[Any, Any]) -> Frame:
    return Frame({"kind": "images"}, {"images": Tensor.of(pixels)})


def _tensor(frame: Frame, name: str) -> torch.Tensor:
    return torch.from_numpy(frame.tensors[name].array.copy())
