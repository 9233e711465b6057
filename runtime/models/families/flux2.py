"""Flux.2 and Flux.2 Klein: text, and any number of reference pictures, to image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..modular.family import ModularFamily
from ..modular.params import EditParams, UnguidedTextParams, guidance, steps
from ..modular.schedulers import Schedule

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint


_REFERENCE_SIDE: Final = 64
_REFERENCE_SHAPE: Final = 8.0
"""Source: diffusers `Flux2ImageProcessor.check_image_input`."""


class Flux2Params(EditParams):
    """Guidance is an input of the model itself: it costs no second forward pass."""

    steps: int = steps(50)
    guidance: float = guidance(4.0, "Guidance scale that the model was trained with.")


class KleinParams(EditParams):
    """Klein is distilled to four steps without guidance; its base model is guided."""

    steps: int = steps(4)
    guidance: float = guidance(1.0)


class Flux2(ModularFamily):
    """Flux.2 dev."""

    name: ClassVar[str] = "flux2"
    pipelines: ClassVar = {"Flux2Pipeline": "Flux2AutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "tokenizer"})
    text: ClassVar = UnguidedTextParams
    max_tokens: ClassVar = {"tokenizer": 512 - 64}  # the rest is for the chat around the prompt
    sample: ClassVar = Flux2Params
    schedule: ClassVar[Schedule] = "flow"
    references: ClassVar = 10
    reference_side: ClassVar = _REFERENCE_SIDE
    reference_shape: ClassVar = _REFERENCE_SHAPE
    negatives: ClassVar = False


class Flux2Klein(ModularFamily):
    """Flux.2 Klein, distilled or base."""

    name: ClassVar[str] = "flux2-klein"
    pipelines: ClassVar = {"Flux2KleinPipeline": "Flux2KleinAutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "tokenizer"})
    max_tokens: ClassVar = {"tokenizer": 512 - 16}
    sample: ClassVar = KleinParams
    schedule: ClassVar[Schedule] = "flow"
    references: ClassVar = 10
    reference_side: ClassVar = _REFERENCE_SIDE
    reference_shape: ClassVar = _REFERENCE_SHAPE

    def blocks(self, index: Mapping[str, Any]) -> str:
        """See `ModularFamily.blocks`."""
        return "Flux2KleinAutoBlocks" if index.get("is_distilled") else "Flux2KleinBaseAutoBlocks"

    def defaults(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """See `ModularFamily.defaults`."""
        return {} if checkpoint.index.get("is_distilled") else {"steps": 50, "guidance": 4.0}
