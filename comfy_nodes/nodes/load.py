"""Load Model: which model, on which runtime."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ...runtime.protocol.errors import OmniStageError
from .. import plans
from ..pack import pack
from ..sockets import OmniModel
from .node import Node


class LoadModel(Node):
    """Names a model for the nodes that follow; the runtime loads it when it is needed."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageLoadModel",
            display_name="Load Model",
            category="OmniStage/model",
            description="Chooses a model of the runtime. The runtime loads it once, for everyone.",
            inputs=[
                io.Combo.Input(
                    "model",
                    options=list(pack().catalogue.last()) or [""],
                    tooltip="A model of the runtime. Press R to ask for the list again.",
                ),
                io.String.Input(
                    "address",
                    default="",
                    optional=True,
                    tooltip="The runtime's address, such as http://127.0.0.1:8400. "
                    "Empty: the one in the settings.",
                ),
                io.Boolean.Input(
                    "strict",
                    default=False,
                    optional=True,
                    tooltip="Never share a forward pass: bit-identical to diffusers' pipeline, and "
                    "slower. Off: equal to within rounding.",
                ),
            ],
            outputs=[OmniModel.Output(display_name="model")],
        )

    @classmethod
    def validate_inputs(cls, model: str) -> bool:
        """Leave it to `precheck`, which asks the runtime: the list in the page may be old."""
        return True

    @classmethod
    async def fingerprint_inputs(cls, model: str, address: str = "", strict: bool = False) -> str:
        """The model's revision: when it changes, what ComfyUI cached is out of date."""
        services = pack()
        try:
            models = await services.io.call(services.catalogue.models(address or ""))
        except OmniStageError:
            models = services.catalogue.last(address or "")
        return models[model].revision if model in models else "unknown"

    @classmethod
    def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        return io.NodeOutput(plans.load_model(**inputs))
