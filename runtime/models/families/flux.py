"""Flux.1: text to image and image to image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..call_spec import SpecTable
from ..modular.family import ModularFamily
from ..modular.params import SampleParams, UnguidedTextParams, guidance, steps
from ..modular.schedulers import Schedule

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint


def flux_specs() -> SpecTable:
    """How calls of Flux.1's transformer merge."""
    from ..flux_packed import FluxPacked
    from ..modular.specs import packed_specs

    return packed_specs("FluxTransformer2DModel", FluxPacked())


class FluxParams(SampleParams):
    """Guidance is an input of the model itself: it costs no second forward pass."""

    steps: int = steps(28)
    guidance: float = guidance(3.5, "Guidance scale that the model was trained with.")


class Flux(ModularFamily):
    """Flux.1 dev and schnell."""

    name: ClassVar[str] = "flux"
    pipelines: ClassVar = {"FluxPipeline": "FluxAutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "text_encoder_2"})
    text: ClassVar = UnguidedTextParams
    max_tokens: ClassVar = {"tokenizer_2": 512}
    sample: ClassVar = FluxParams
    schedule: ClassVar[Schedule] = "flow"
    starts: ClassVar = True
    negatives: ClassVar = False

    def defaults(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """See `ModularFamily.defaults`; schnell is distilled to four steps without guidance."""
        guided = checkpoint.read_json("transformer/config.json").get("guidance_embeds")
        return {} if guided else {"steps": 4, "guidance": 0.0}

    def specs(self) -> SpecTable:
        """See `ModularFamily.specs`."""
        return flux_specs()
