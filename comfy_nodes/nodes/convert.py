"""To and from ComfyUI's own LATENT and CONDITIONING."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from .. import media, plans
from ..run import fetch
from ..sockets import OmniCond, OmniLatent, OmniModel
from ..values import Conditioning, Latent
from .node import Node

_CATEGORY = "OmniStage/convert"


class ToLatent(Node):
    """Brings latents to ComfyUI."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageToLatent",
            display_name="To Latent",
            category=_CATEGORY,
            description="Downloads latents as ComfyUI's LATENT, in the VAE's own space.",
            inputs=[OmniLatent.Input("latent", tooltip="From DiT Sample or VAE Encode.")],
            outputs=[io.Latent.Output(display_name="LATENT")],
        )

    @classmethod
    async def execute(cls, latent: Latent) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        return io.NodeOutput(media.frame_to_latent(await fetch(cls.title(), latent)))


class FromLatent(Node):
    """Takes latents from ComfyUI."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageFromLatent",
            display_name="From Latent",
            category=_CATEGORY,
            description="Takes ComfyUI's LATENT, in the space of this model's VAE.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model; its VAE made the latents."),
                io.Latent.Input("samples", tooltip="Any number of latents of one size."),
            ],
            outputs=[OmniLatent.Output(display_name="latent")],
        )

    @classmethod
    def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        return io.NodeOutput(plans.from_latent(**inputs))


class ToConditioning(Node):
    """Brings encoded prompts to ComfyUI."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageToConditioning",
            display_name="To Conditioning",
            category=_CATEGORY,
            description="Downloads encoded prompts as ComfyUI's CONDITIONING.",
            inputs=[OmniCond.Input("conditioning", tooltip="From Text Encode.")],
            outputs=[
                io.Conditioning.Output(display_name="CONDITIONING", tooltip="What to draw."),
                io.Conditioning.Output(
                    display_name="negative",
                    tooltip="What to avoid; zeros if there was no negative prompt.",
                ),
            ],
        )

    @classmethod
    async def execute(cls, conditioning: Conditioning) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        frame = await fetch(cls.title(), conditioning)
        return io.NodeOutput(*media.frame_to_conditioning(frame))
