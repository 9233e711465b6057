"""LoRA: a model with an adapter, for the nodes behind it."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from .. import plans
from ..pack import pack
from ..sockets import OmniModel
from .node import Node


class LoRA(Node):
    """Adds an adapter to a model; nothing runs, and the model of others stays as it is."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageLoRA",
            display_name="LoRA",
            category="OmniStage/model",
            description="Adds an adapter to a model, for this workflow only. Prompts with other "
            "adapters, or none, still share its forward passes.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model, or from another LoRA."),
                io.Combo.Input(
                    "lora",
                    options=pack().catalogue.loras() or [""],
                    tooltip="An adapter of the runtime. Press R to ask for the list again.",
                ),
                io.Float.Input(
                    "strength",
                    default=1.0,
                    min=-10.0,
                    max=10.0,
                    step=0.01,
                    tooltip="What its change is multiplied by. 0: no change; below 0: the "
                    "opposite.",
                ),
                io.Combo.Input(
                    "noise",
                    options=["all", "high", "low"],
                    default="all",
                    optional=True,
                    tooltip="For models with a transformer for high noise and another for low "
                    "noise (Wan 2.2): which of them the adapter changes.",
                ),
            ],
            outputs=[OmniModel.Output(display_name="model")],
        )

    @classmethod
    def validate_inputs(cls, lora: str) -> bool:
        """Leave it to `precheck`, which asks the runtime: the list in the page may be old."""
        return True

    @classmethod
    def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        return io.NodeOutput(plans.lora(**inputs))
