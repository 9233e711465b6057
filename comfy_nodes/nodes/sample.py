"""DiT Sample: conditioning, and perhaps a latent, to latents.

The seed is not the last input: what came after the first release stands behind it, because
saved workflows keep the values of widgets by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfy_api.latest import io

from .. import plans
from ..pack import pack
from ..run import finish
from ..sockets import OmniCond, OmniGuider, OmniLatent, OmniModel
from .node import Node

_MAX_SIDE_PX = 16384
_MAX_SEED = 2**64 - 1


class Sample(Node):
    """Runs the model's denoising loop; the steps of many prompts share forward passes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageSample",
            display_name="DiT Sample",
            category="OmniStage/diffusion",
            description="Denoises latents with the model's diffusion transformer. Step by step, "
            "it shares forward passes with every other prompt on the runtime.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model."),
                OmniCond.Input("conditioning", tooltip="From Text Encode, or from Control."),
                _side("width", "Width"),
                _side("height", "Height"),
                io.Int.Input(
                    "count",
                    default=1,
                    min=1,
                    max=4096,
                    tooltip="Pictures to make of this prompt. Picture i uses seed + i, and is the "
                    "picture that seed gives alone.",
                ),
                io.Int.Input(
                    "steps",
                    default=0,
                    min=0,
                    max=10000,
                    tooltip="Denoising steps. 0: the model's own default.",
                ),
                io.Float.Input(
                    "guidance",
                    default=-1.0,
                    min=-1.0,
                    max=100.0,
                    step=0.1,
                    tooltip="How strongly to follow the prompt and avoid the negative one; works "
                    "above 1 and with a negative prompt. -1: the model's own default.",
                ),
                io.Combo.Input(
                    "scheduler",
                    options=pack().catalogue.choices("sample", "scheduler"),
                    default=plans.DEFAULT,
                    tooltip="Noise schedule. default: the model's own.",
                ),
                io.Float.Input(
                    "denoise",
                    default=1.0,
                    min=0.01,
                    max=1.0,
                    step=0.01,
                    tooltip="With a latent: the share of the schedule to run, from 0.01 (hardly a "
                    "change) to 1 (a new picture).",
                ),
                OmniLatent.Input(
                    "latent",
                    optional=True,
                    tooltip="Latents to start from, for image to image. With a mask, only what it "
                    "marks is drawn anew. None: noise.",
                ),
                io.Int.Input(
                    "seed",
                    default=0,
                    min=0,
                    max=_MAX_SEED,
                    control_after_generate=True,
                    tooltip="Seed of the noise, 0 to 2^64 - 1.",
                ),
                OmniGuider.Input(
                    "guider",
                    optional=True,
                    tooltip="From Guider. None: the model's own way to follow the prompt.",
                ),
                io.Int.Input(
                    "frames",
                    default=0,
                    min=0,
                    max=100_000,
                    optional=True,
                    tooltip="Pictures of a film, for models of film. 0: the model's own default.",
                ),
            ],
            outputs=[OmniLatent.Output(display_name="latent")],
        )

    @classmethod
    def validate_inputs(cls, scheduler: str) -> bool:
        """Leave it to `precheck`, which knows the model's own list."""
        return True

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        latent = plans.sample(**inputs)
        await finish(cls.title(), latent, _describe)
        return io.NodeOutput(latent)


def _side(name: str, word: str) -> io.Int.Input:
    return io.Int.Input(
        name,
        default=0,
        min=0,
        max=_MAX_SIDE_PX,
        step=8,
        tooltip=f"{word} in pixels. 0: the latent's or a control picture's, or the model's own "
        "default.",
    )


def _describe(params: Mapping[str, Any]) -> str:
    """What was used, defaults filled in; a size that follows a picture is not known here."""
    sides = [params.get(name) for name in ("width", "height")]
    words = [f"{sides[0]} x {sides[1]} px"] if all(sides) else []
    words += [f"{params[n]} {n}" for n in ("frames", "steps") if params.get(n) is not None]
    words += [f"{n} {params[n]}" for n in ("guidance", "scheduler") if params.get(n) is not None]
    if guider := params.get("guider"):
        words.append(f"{guider['kind']} guidance")
    return ", ".join(words)
