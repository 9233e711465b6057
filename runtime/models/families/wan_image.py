"""Wan 2.1 and 2.2: a first picture to film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..checkpoint import has_component
from ..lora_params import LOW_NOISE
from ..modular.params import side_of_reference
from .wan import Wan, WanParams

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint


class WanImageParams(WanParams):
    """The film has the picture's shape, unless its size is given."""

    width: int = side_of_reference()
    height: int = side_of_reference()


class WanImage(Wan):
    """The reference picture is the first frame."""

    name: ClassVar[str] = "wan-image"
    pipelines: ClassVar = {"WanImageToVideoPipeline": "WanImage2VideoAutoBlocks"}
    sample: ClassVar = WanImageParams
    references: ClassVar = 1
    needs_reference: ClassVar = True
    fits_references: ClassVar = True
    reference_area: ClassVar = 832 * 480

    def blocks(self, index: Mapping[str, Any]) -> str:
        """See `ModularFamily.blocks`; 2.2 has a second transformer and no image encoder."""
        second = has_component(index, LOW_NOISE)
        return "Wan22Image2VideoBlocks" if second else "WanImage2VideoAutoBlocks"

    def defaults(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """See `ModularFamily.defaults`."""
        return {"steps": 40, "guidance": 3.5} if has_component(checkpoint.index, LOW_NOISE) else {}
