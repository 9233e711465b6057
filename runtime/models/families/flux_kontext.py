"""Flux.1 Kontext: a picture and an instruction to a changed picture."""

from __future__ import annotations

from typing import ClassVar

from ..call_spec import SpecTable
from ..modular.family import ModularFamily
from ..modular.params import UnguidedTextParams, guidance, side_of_reference, steps
from ..modular.schedulers import Schedule
from .flux import FluxParams, flux_specs


class FluxKontextParams(FluxParams):
    """The size is the picture's, unless it is given."""

    width: int = side_of_reference()
    height: int = side_of_reference()
    steps: int = steps(28)
    guidance: float = guidance(2.5, "Guidance scale that the model was trained with.")


class FluxKontext(ModularFamily):
    """The reference picture is a part of what the transformer reads; without one it draws."""

    name: ClassVar[str] = "flux-kontext"
    pipelines: ClassVar = {"FluxKontextPipeline": "FluxKontextAutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "text_encoder_2"})
    text: ClassVar = UnguidedTextParams
    max_tokens: ClassVar = {"tokenizer_2": 512}
    sample: ClassVar = FluxKontextParams
    schedule: ClassVar[Schedule] = "flow"
    references: ClassVar = 1
    negatives: ClassVar = False

    def specs(self) -> SpecTable:
        """See `ModularFamily.specs`."""
        return flux_specs()
