"""Guider: another way to follow the prompt than a model's own."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from .. import plans
from ..pack import pack
from ..sockets import OmniGuider
from .node import Node

_USUAL = "cfg"


class Guider(Node):
    """Collects parameters; nothing runs.

    The inputs are those of all kinds of guiders: what a kind does not take, and is given, is
    refused. ComfyUI's inputs that depend on a choice do not exist in all versions.
    """

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageGuider",
            display_name="Guider",
            category="OmniStage/diffusion",
            description="Says how DiT Sample is to follow the prompt, other than by plain "
            "classifier-free guidance. How strongly is its guidance.",
            inputs=[
                io.Combo.Input(
                    "kind",
                    options=pack().catalogue.names("sample", "guider", "kind") or [_USUAL],
                    default=_USUAL,
                    tooltip="The kind of guider. cfg: classifier-free guidance. The list has those "
                    "of all models; what a model does not take is refused.",
                ),
                _share("start", "Share of the steps before guidance starts."),
                _share("stop", "Share of the steps after which guidance stops."),
                _share("guidance_rescale", "How far to pull the contrast back to the unguided."),
                io.Boolean.Input(
                    "use_original_formulation",
                    default=False,
                    tooltip="Count guidance from 0, as the papers do, not from 1.",
                ),
                _number("scale", "slg, pag, apg_mix: the strength of the kind's own part.", 100.0),
                _share("scale_start", "slg, pag: share of the steps before that part starts."),
                _share("scale_stop", "slg, pag: share of the steps after which that part stops."),
                io.String.Input(
                    "layers",
                    default="",
                    dynamic_prompts=False,
                    tooltip="slg, pag, auto: numbers of the layers to do without, such as 7, 8, 9. "
                    "These kinds need them.",
                ),
                io.Float.Input(
                    "momentum",
                    default=-2.0,
                    min=-2.0,
                    max=1.0,
                    step=0.01,
                    tooltip="apg, apg_mix: share of the last step's direction, from -1. -2: the "
                    "kind's own default.",
                ),
                _number("norm_limit", "apg, apg_mix: the largest norm of the guidance.", 1000.0),
                _number("eta", "apg, apg_mix: share of the part that saturates colours.", 100.0),
                _steps("start_step", "apg_mix: steps before its projection starts."),
                _steps("zero_init_steps", "cfg_zero_star: first steps that are left out."),
                _number("alpha", "mag: how much less, where guidance would be large.", 100.0),
            ],
            outputs=[OmniGuider.Output(display_name="guider")],
        )

    @classmethod
    def validate_inputs(cls, kind: str) -> bool:
        """Leave it to `precheck`, which knows the model's own kinds."""
        return True

    @classmethod
    def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        return io.NodeOutput(plans.guider(**inputs))


def _share(name: str, words: str) -> io.Float.Input:
    return _number(name, words, 1.0)


def _number(name: str, words: str, maximum: float) -> io.Float.Input:
    return io.Float.Input(
        name,
        default=-1.0,
        min=-1.0,
        max=maximum,
        step=0.01,
        tooltip=f"{words} -1: the kind's own default.",
    )


def _steps(name: str, words: str) -> io.Int.Input:
    return io.Int.Input(
        name, default=-1, min=-1, max=1000, tooltip=f"{words} -1: the kind's own default."
    )
