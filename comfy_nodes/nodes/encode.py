"""Text Encode: a prompt, and what to avoid, to conditioning."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from .. import plans
from ..run import finish
from ..sockets import OmniCond, OmniModel
from .node import Node


class TextEncode(Node):
    """Runs the model's text encoder."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageTextEncode",
            display_name="Text Encode",
            category="OmniStage/diffusion",
            description="Encodes a prompt with the model's text encoder. Prompts that wait in the "
            "queue are encoded together.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model."),
                io.String.Input("prompt", multiline=True, tooltip="What to draw."),
                io.String.Input(
                    "negative_prompt",
                    multiline=True,
                    default="",
                    tooltip="What to avoid. Empty: no guidance, one forward pass per step. "
                    "Any text, even a single space, switches guidance on: two passes per step.",
                ),
                _pictures("images", "Pictures to edit, to go by, or to begin a film with"),
                _pictures("images_2", "More such pictures, of another size"),
                _pictures("images_3", "More such pictures, of a third size"),
            ],
            outputs=[OmniCond.Output(display_name="conditioning")],
        )

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        conditioning = plans.text_encode(**inputs)
        await finish(cls.title(), conditioning)
        return io.NodeOutput(conditioning)


def _pictures(name: str, words: str) -> io.Image.Input:
    return io.Image.Input(
        name,
        optional=True,
        tooltip=f"{words}, for models that take them. Any number of one size. Transparent parts "
        "become white.",
    )
