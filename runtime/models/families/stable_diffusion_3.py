"""Stable Diffusion 3: text to image and image to image."""

from __future__ import annotations

from typing import ClassVar

from ..call_spec import Preview
from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import SampleParams, guidance, steps
from ..modular.schedulers import Schedule


class StableDiffusion3Params(SampleParams):
    """Defaults of the medium model."""

    steps: int = steps(28)
    guidance: float = guidance(7.0)


class StableDiffusion3(ModularFamily):
    """SD3 and SD3.5."""

    name: ClassVar[str] = "stable-diffusion-3"
    pipelines: ClassVar = {"StableDiffusion3Pipeline": "StableDiffusion3AutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "text_encoder_2"})
    max_tokens: ClassVar = {"tokenizer_3": 256}  # its CLIPs read the first 77 of them
    sample: ClassVar = StableDiffusion3Params
    guiders: ClassVar = PLAIN_KINDS
    schedule: ClassVar[Schedule] = "steps"
    starts: ClassVar = True

    def preview(self) -> Preview | None:
        """See `ModularFamily.preview`."""
        from ..modular.preview import flow_preview

        return flow_preview
