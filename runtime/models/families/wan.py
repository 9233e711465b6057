"""Wan 2.1 and 2.2: text to film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..call_spec import Preview
from ..checkpoint import has_component
from ..lora_params import LOW_NOISE
from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import FilmDecodeParams, FilmParams, guidance, side, steps
from ..modular.schedulers import Schedule

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint


class WanParams(FilmParams):
    """Defaults of the 480p models."""

    width: int = side(832)
    height: int = side(480)
    steps: int = steps(50)
    guidance: float = guidance(5.0)


class Wan(ModularFamily):
    """Text to film."""

    name: ClassVar[str] = "wan"
    pipelines: ClassVar = {"WanPipeline": "WanBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "tokenizer"})
    max_tokens: ClassVar = {"tokenizer": 512}
    sample: ClassVar = WanParams
    guiders: ClassVar = PLAIN_KINDS | {"cfg_zero_star", "slg", "auto"}
    schedule: ClassVar[Schedule] = "steps"
    decode: ClassVar = FilmDecodeParams
    films: ClassVar = True

    def blocks(self, index: Mapping[str, Any]) -> str:
        """See `ModularFamily.blocks`; 2.2 has a second transformer for the late steps."""
        return "Wan22Blocks" if has_component(index, LOW_NOISE) else "WanBlocks"

    def defaults(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """See `ModularFamily.defaults`."""
        return {"steps": 40, "guidance": 4.0} if has_component(checkpoint.index, LOW_NOISE) else {}

    def preview(self) -> Preview | None:
        """See `ModularFamily.preview`."""
        from ..modular.preview import flow_preview

        return flow_preview
