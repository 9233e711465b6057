"""Qwen-Image-Edit and Edit-Plus: pictures and an instruction to a picture."""

from __future__ import annotations

from typing import ClassVar

from ..call_spec import SpecTable
from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import EditParams
from .qwen_image import qwen_image_specs

_COMPONENTS = frozenset({"transformer", "vae", "text_encoder", "tokenizer", "processor"})


class QwenImageEdit(ModularFamily):
    """One picture and an instruction."""

    name: ClassVar[str] = "qwen-image-edit"
    pipelines: ClassVar = {"QwenImageEditPipeline": "QwenImageEditAutoBlocks"}
    components: ClassVar = _COMPONENTS
    sample: ClassVar = EditParams
    guiders: ClassVar = PLAIN_KINDS
    references: ClassVar = 1
    needs_reference: ClassVar = True
    starts: ClassVar = True
    inpaints: ClassVar = True
    needs_mask: ClassVar = True
    negatives: ClassVar = False

    def specs(self) -> SpecTable:
        """See `ModularFamily.specs`."""
        return qwen_image_specs()


class QwenImageEditPlus(ModularFamily):
    """Several pictures and an instruction."""

    name: ClassVar[str] = "qwen-image-edit-plus"
    pipelines: ClassVar = {"QwenImageEditPlusPipeline": "QwenImageEditPlusAutoBlocks"}
    components: ClassVar = _COMPONENTS
    sample: ClassVar = EditParams
    guiders: ClassVar = PLAIN_KINDS
    references: ClassVar = 3
    needs_reference: ClassVar = True
    negatives: ClassVar = False

    def specs(self) -> SpecTable:
        """See `ModularFamily.specs`."""
        return qwen_image_specs()
