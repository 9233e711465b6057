"""Wan 2.1 and 2.2: a first picture to film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..call_spec import Preview
from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import FilmDecodeParams, side_of_reference
from ..modular.schedulers import Schedule
from .wan import WanParams, has_second

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint


class WanImageParams(WanParams):
    """The film has the picture's shape, unless its size is given."""

    width: int = side_of_reference()
    height: int = side_of_reference()


class WanImage(ModularFamily):
    """The reference picture is the first frame."""

    name: ClassVar[str] = "wan-image"
    pipelines: ClassVar = {"WanImageToVideoPipeline": "WanImage2VideoAutoBlocks"}
    components: ClassVar = frozenset({"transformer", "vae", "text_encoder", "tokenizer"})
    max_tokens: ClassVar = {"tokenizer": 512}
    sample: ClassVar = WanImageParams
    guiders: ClassVar = PLAIN_KINDS | {"cfg_zero_star", "slg", "auto"}
    schedule: ClassVar[Schedule] = "steps"
    decode: ClassVar = FilmDecodeParams
    references: ClassVar = 1
    needs_reference: ClassVar = True
    fits_references: ClassVar = True
    reference_area: ClassVar = 832 * 480
    films: ClassVar = True

    def blocks(self, index: Mapping[str, Any]) -> str:
        """See `ModularFamily.blocks`; 2.2 has a second transformer and no image encoder."""
        return "Wan22Image2VideoBlocks" if has_second(index) else "WanImage2VideoAutoBlocks"

    def defaults(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """See `ModularFamily.defaults`."""
        return {"steps": 40, "guidance": 3.5} if has_second(checkpoint.index) else {}

    def preview(self) -> Preview | None:
        """See `ModularFamily.preview`."""
        from ..modular.preview import flow_preview

        return flow_preview
