"""Control: conditioning whose pictures keep to another picture."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from .. import plans
from ..pack import pack
from ..sockets import OmniCond, OmniModel
from .node import Node


class Control(Node):
    """Adds a picture, and the ControlNet that goes by it; nothing runs before DiT Sample."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageControl",
            display_name="Control",
            category="OmniStage/diffusion",
            description="Has a ControlNet keep what is drawn to a picture: its edges, depth or "
            "pose. Prompts with other ControlNets, or none, still share the runtime's work.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model: whose ControlNet it is."),
                OmniCond.Input("conditioning", tooltip="From Text Encode."),
                io.Image.Input(
                    "image",
                    tooltip="One picture to keep to, as the ControlNet knows them: edges, depth, "
                    "a pose. As large as what is drawn; transparent parts become white.",
                ),
                io.Combo.Input(
                    "controlnet",
                    options=pack().catalogue.controlnets() or [""],
                    tooltip="A ControlNet of the model. Press R to ask for the list again.",
                ),
                io.Float.Input(
                    "strength",
                    default=1.0,
                    min=0.0,
                    max=10.0,
                    step=0.01,
                    tooltip="How closely to keep to the picture. 0: not at all.",
                ),
                io.Float.Input(
                    "start",
                    default=0.0,
                    min=0.0,
                    max=1.0,
                    step=0.01,
                    tooltip="Share of the steps before the picture counts, from 0.",
                ),
                io.Float.Input(
                    "end",
                    default=1.0,
                    min=0.0,
                    max=1.0,
                    step=0.01,
                    tooltip="Share of the steps after which it no longer counts, up to 1.",
                ),
            ],
            outputs=[OmniCond.Output(display_name="conditioning")],
        )

    @classmethod
    def validate_inputs(cls, controlnet: str) -> bool:
        """Leave it to `precheck`, which asks the runtime: the list in the page may be old."""
        return True

    @classmethod
    def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        return io.NodeOutput(plans.control(**inputs))
