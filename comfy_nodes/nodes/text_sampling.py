"""Text Sampling: how a language model chooses its words."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from .. import plans
from ..sockets import OmniSampling
from .node import Node


class TextSampling(Node):
    """Collects parameters; nothing runs."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageTextSampling",
            display_name="Text Sampling",
            category="OmniStage/language",
            description="Says how a language model is to choose its words, and when to end.",
            inputs=[
                io.Float.Input(
                    "top_p",
                    default=0.0,
                    min=0.0,
                    max=1.0,
                    step=0.01,
                    tooltip="Choose among the likeliest tokens that together have this share, up "
                    "to 1 (all). 0: the model's own default.",
                ),
                io.Int.Input(
                    "top_k",
                    default=-1,
                    min=-1,
                    max=1_000_000,
                    tooltip="Choose among so many of the likeliest tokens; 0: all. -1: the "
                    "model's own default.",
                ),
                io.Float.Input(
                    "min_p",
                    default=-1.0,
                    min=-1.0,
                    max=1.0,
                    step=0.01,
                    tooltip="Drop tokens less likely than this share of the likeliest; 0: none. "
                    "-1: the model's own default.",
                ),
                io.Float.Input(
                    "repetition_penalty",
                    default=0.0,
                    min=0.0,
                    max=10.0,
                    step=0.01,
                    tooltip="Above 1: avoid tokens that have occurred; 1: no matter. 0: the "
                    "model's own default.",
                ),
                io.String.Input(
                    "stop",
                    multiline=True,
                    default="",
                    dynamic_prompts=False,
                    tooltip="Texts that end the answer, one on each line. They are left out of it.",
                ),
                io.String.Input(
                    "json_schema",
                    multiline=True,
                    default="",
                    dynamic_prompts=False,
                    tooltip="JSON schema that the answer will follow. Empty: free text.",
                ),
            ],
            outputs=[OmniSampling.Output(display_name="sampling")],
        )

    @classmethod
    def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        return io.NodeOutput(plans.text_sampling(**inputs))
