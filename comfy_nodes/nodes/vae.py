"""VAE Encode, VAE Decode and Video Decode: pictures to latents, and latents to pictures or film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfy_api.latest import InputImpl, Types, io

from ...runtime.protocol.frames import Frame
from .. import media, plans
from ..run import fetch, finish, outputs_of
from ..sockets import OmniLatent, OmniModel
from .node import Node

_CATEGORY = "OmniStage/diffusion"


class VAEEncode(Node):
    """Runs the model's VAE encoder."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageVAEEncode",
            display_name="VAE Encode",
            category=_CATEGORY,
            description="Encodes pictures with the model's VAE, each as if alone.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model."),
                io.Image.Input(
                    "image",
                    tooltip="Any number of pictures of one size. Transparent parts become white.",
                ),
                io.Mask.Input(
                    "mask",
                    optional=True,
                    tooltip="What DiT Sample is to draw anew, of the pictures' size: one for all "
                    "of them, or one each. None: everything.",
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
            category=_CATEGORY,
            description="Decodes latents to pictures with the model's VAE; of a film, to all its "
            "pictures.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model."),
                OmniLatent.Input("latent", tooltip="From DiT Sample or VAE Encode."),
            ],
            outputs=[io.Image.Output(display_name="IMAGE")],
        )

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        images = plans.vae_decode(**inputs)
        made = await outputs_of(cls.title(), images)
        frame = await fetch(cls.title(), images.output("video") if "video" in made else images)
        return io.NodeOutput(media.frame_to_images(frame))


class VideoDecode(Node):
    """Runs the VAE decoder of a model of film and brings the film to ComfyUI."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageVideoDecode",
            display_name="Video Decode",
            category=_CATEGORY,
            description="Decodes latents to a film with the model's VAE, with sound if the model "
            "makes any.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model; a model of film."),
                OmniLatent.Input("latent", tooltip="From DiT Sample."),
                io.Float.Input(
                    "fps",
                    default=0.0,
                    min=0.0,
                    max=1000.0,
                    step=0.01,
                    tooltip="Pictures per second. 0: the model's own.",
                ),
            ],
            outputs=[
                io.Video.Output(display_name="VIDEO"),
                io.Image.Output(display_name="IMAGE", tooltip="All its pictures."),
            ],
        )

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        film = plans.video_decode(**inputs)
        frame = await fetch(cls.title(), film, _describe)
        sound = None
        if "audio" in await outputs_of(cls.title(), film):
            sound = media.frame_to_audio(await fetch(cls.title(), film.output("audio")))
        images = media.frame_to_images(frame)
        parts = Types.VideoComponents(
            images=images, audio=sound, frame_rate=media.frame_rate(frame)
        )
        return io.NodeOutput(InputImpl.VideoFromComponents(parts), images)


def _describe(params: Mapping[str, Any], film: Frame) -> str:
    """How long the film is."""
    frames, fps = len(film.tensors["frames"].array), film.header["fps"]
    return f"{frames} pictures, {fps:g} a second, {frames / fps:.2f} s"
