"""VAE Encode and VAE Decode: pictures to latents and back."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from .. import media, plans
from ..run import fetch, finish
from ..sockets import OmniLatent, OmniModel
from .node import Node


class VAEEncode(Node):
    """Runs the model's VAE encoder."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageVAEEncode",
            display_name="VAE Encode",
            category="OmniStage/diffusion",
            description="Encodes pictures with the model's VAE, each as if alone.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model."),
                io.Image.Input(
                    "image",
                    tooltip="Any number of pictures of one size. Transparent parts become white.",
                ),
            ],
            outputs=[OmniLatent.Output(display_name="latent")],
        )

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        latent = plans.vae_encode(**inputs)
        await finish(cls.title(), latent)
        return io.NodeOutput(latent)


class VAEDecode(Node):
    """Runs the model's VAE decoder and brings the pictures to ComfyUI."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageVAEDecode",
            display_name="VAE Decode",
            category="OmniStage/diffusion",
            description="Decodes latents to pictures with the model's VAE.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model."),
                OmniLatent.Input("latent", tooltip="From DiT Sample or VAE Encode."),
            ],
            outputs=[io.Image.Output(display_name="IMAGE")],
        )

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        frame = await fetch(cls.title(), plans.vae_decode(**inputs))
        return io.NodeOutput(media.frame_to_images(frame))
