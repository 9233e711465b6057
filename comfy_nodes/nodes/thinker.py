"""Thinker: a language model's answer to text, pictures, sound and film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfy_api.latest import io

from ...runtime.protocol.frames import Frame
from .. import plans
from ..run import fetch
from ..sockets import OmniChat, OmniHidden, OmniModel, OmniSampling
from ..values import RemoteText
from .node import Node

_MAX_SEED = 2**63 - 1  # vLLM's
_SHOWN = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "stop",
    "seed",
)


class Thinker(Node):
    """Runs a language model; the tokens of many prompts share forward passes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageThinker",
            display_name="Thinker",
            category="OmniStage/language",
            description="Has a language model answer, token by token. It shares each forward pass "
            "with every other prompt on the runtime.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model."),
                io.String.Input(
                    "prompt",
                    multiline=True,
                    tooltip="What to say to the model. May be empty with a picture, sound or film, "
                    "or with a history that ends with the user.",
                ),
                io.String.Input(
                    "system",
                    multiline=True,
                    default="",
                    tooltip="How the model is to behave. Empty: as the history or the model says.",
                ),
                io.Image.Input(
                    "image",
                    optional=True,
                    tooltip="Any number of pictures of one size, shown before the prompt. "
                    "Transparent parts become white.",
                ),
                io.Audio.Input(
                    "audio",
                    optional=True,
                    tooltip="Sounds, played before the prompt, mixed down to one channel.",
                ),
                io.Video.Input(
                    "video",
                    optional=True,
                    tooltip="A film without its sound, shown before the prompt.",
                ),
                OmniChat.Input(
                    "history",
                    optional=True,
                    tooltip="The conversation so far, from Thinker or Message. None: a new one.",
                ),
                OmniSampling.Input(
                    "sampling",
                    optional=True,
                    tooltip="From Text Sampling. None: the model's own way to choose words.",
                ),
                io.Int.Input(
                    "max_tokens",
                    default=0,
                    min=0,
                    max=1_000_000,
                    tooltip="Tokens to write at most. 0: the model's own default.",
                ),
                io.Float.Input(
                    "temperature",
                    default=-1.0,
                    min=-1.0,
                    max=10.0,
                    step=0.05,
                    tooltip="0: always the likeliest token. Higher: more varied. -1: the model's "
                    "own default.",
                ),
                io.Int.Input(
                    "seed",
                    default=0,
                    min=0,
                    max=_MAX_SEED,
                    control_after_generate=True,
                    tooltip="Seed of the choices, 0 to 2^63 - 1. At temperature 0 it changes "
                    "nothing.",
                ),
            ],
            outputs=[
                io.String.Output(display_name="text", tooltip="What the model wrote."),
                OmniHidden.Output(
                    display_name="hidden", tooltip="Its hidden states; they stay on the runtime."
                ),
                OmniChat.Output(
                    display_name="history", tooltip="The conversation, with this answer."
                ),
            ],
        )

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        answer = plans.thinker(**inputs)
        frame = await fetch(cls.title(), answer.text, _describe)
        text = RemoteText(frame.header["text"], answer.text)
        return io.NodeOutput(text, answer.hidden, answer.history)


def _describe(params: Mapping[str, Any], frame: Frame) -> str:
    """The text, and below it what was used, defaults filled in."""
    facts = frame.header
    words = [f"{facts['completion_tokens']} tokens, {facts['prompt_tokens']} of prompt"]
    if facts["finish_reason"] == "length":
        words.append("cut off at the limit")
    words += [f"{name} {params[name]}" for name in _SHOWN if params.get(name) not in (None, [])]
    return f"{facts['text']}\n\n{', '.join(words)}"
