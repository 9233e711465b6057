"""Message: adds to a conversation what somebody said."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ...runtime.protocol.recipe import Handle
from .. import plans
from ..run import fetch
from ..sockets import OmniChat
from ..values import Chat, Upload
from .node import Node


class Message(Node):
    """Builds a conversation on this side.

    A history that a Thinker made is brought here first, so work behind it waits until then;
    a history of messages only is known ahead.
    """

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageMessage",
            display_name="Message",
            category="OmniStage/language",
            description="Adds a message to a conversation, for Thinker to answer or to learn from.",
            inputs=[
                OmniChat.Input(
                    "history",
                    optional=True,
                    tooltip="The conversation so far, from Message or Thinker. None: a new one.",
                ),
                io.Combo.Input(
                    "role",
                    options=["user", "assistant", "system"],
                    default="user",
                    tooltip="Who says it. assistant: an answer to learn from. system: how the "
                    "model is to behave, as the first message.",
                ),
                io.String.Input(
                    "text",
                    multiline=True,
                    tooltip="What is said. May be empty with a picture, sound or film.",
                ),
                io.Image.Input(
                    "image",
                    optional=True,
                    tooltip="Any number of pictures of one size, shown before the text. "
                    "Transparent parts become white.",
                ),
                io.Audio.Input(
                    "audio",
                    optional=True,
                    tooltip="Sounds, played before the text, mixed down to one channel.",
                ),
                io.Video.Input(
                    "video",
                    optional=True,
                    tooltip="A film without its sound, shown before the text.",
                ),
            ],
            outputs=[
                OmniChat.Output(
                    display_name="history", tooltip="The conversation, with this message."
                )
            ],
        )

    @classmethod
    async def execute(cls, history: Chat | None = None, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        if history is not None and isinstance(history.source, Handle):
            frame = await fetch(cls.title(), history)
            history = Chat(Upload.of(frame.encode()), history.address)
        return io.NodeOutput(plans.message(history=history, **inputs))
