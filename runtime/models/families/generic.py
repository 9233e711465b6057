"""All other families of diffusers' modular pipelines: a row each, and no code.

What is left out here is what diffusers' blocks say of themselves, when a checkpoint is loaded: a
parameter that is None takes the block's own default. Requests share forward passes where
`modular.specs` knows the modules' classes, and else take turns.

Not here are those that draw from something else than words and a picture: Wan Animate 2, Wan
VACE, Cosmos 3, MiniMax H3 and Music 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from pydantic import create_model

from ..modular.family import ModularFamily
from ..modular.params import (
    FilmDecodeParams,
    NoiseParams,
    TextEncodeParams,
    UnguidedTextParams,
    VAEDecodeParams,
    frames,
    frames_of_chunks,
    frames_per_second,
    guidance,
    one_film,
    side,
    steps,
    whole_chunks,
    whole_latents,
)
from ..modular.sizes import Sides

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Row:
    """What the stages of a family take and give, as its blocks have it.

    Attributes:
        blocks: diffusers' blocks.
        per_latent: frames of a film that one latent frame stands for; 0: it draws pictures.
        chunk: frames that are made at a time; 0: all.
        sounds: whether films have sound.
        negatives: whether it takes a negative prompt.
        references: how many reference pictures it takes.
        starts: whether the picture that it takes is one to start from.
        transparent: whether pictures have an alpha channel.
        steps, guidance, fps: whether sampling takes these.
        sizes: whether it goes from small to large, with as many steps at each size.
        multiple: what its sides are multiples of.
    """

    name: str
    blocks: str
    per_latent: int = 0
    chunk: int = 0
    sounds: bool = False
    negatives: bool = True
    references: int = 0
    starts: bool = False
    transparent: bool = False
    steps: bool = True
    guidance: bool = True
    fps: bool = False
    sizes: bool = False
    multiple: int = 16


ROWS: Final = (
    Row("ltx-video", "LTXAutoBlocks", per_latent=8, references=1, fps=True, multiple=32),
    Row(
        "echo",
        "EchoBlocks",
        per_latent=8,
        sounds=True,
        negatives=False,
        references=1,
        steps=False,
        guidance=False,
        fps=True,
        multiple=32,
    ),
    Row("hunyuan-video-1.5", "HunyuanVideo15AutoBlocks", per_latent=4, references=1),
    Row("helios", "HeliosAutoBlocks", per_latent=4, chunk=33, references=1),
    Row(
        "helios-pyramid",
        "HeliosPyramidAutoBlocks",
        per_latent=4,
        chunk=33,
        references=1,
        sizes=True,
        multiple=64,
    ),
    Row(
        "helios-pyramid-distilled",
        "HeliosPyramidDistilledAutoBlocks",
        per_latent=4,
        chunk=33,
        references=1,
        sizes=True,
        multiple=64,
    ),
    Row("krea2", "Krea2AutoBlocks"),
    Row("krea2-turbo", "Krea2TurboAutoBlocks", negatives=False, guidance=False),
    Row("ernie-image", "ErnieImageAutoBlocks"),
    Row("anima", "AnimaAutoBlocks", starts=True),
    Row("ideogram4", "Ideogram4AutoBlocks", negatives=False),
    Row("qwen-image-2.1", "QwenImage21AutoBlocks", references=1, transparent=True, multiple=32),
    Row(
        "qwen-image-2.1-turbo",
        "QwenImage21TurboAutoBlocks",
        negatives=False,
        references=1,
        transparent=True,
        multiple=32,
        guidance=False,
    ),
    Row("flux3", "Flux3AutoBlocks", references=1),
    Row(
        "flux3-distilled",
        "Flux3DistilledAutoBlocks",
        negatives=False,
        references=1,
        guidance=False,
    ),
)

PIPELINES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LTXPipeline": "LTXAutoBlocks",
        "LTXImageToVideoPipeline": "LTXAutoBlocks",
        "HunyuanVideo15Pipeline": "HunyuanVideo15AutoBlocks",
        "HunyuanVideo15ImageToVideoPipeline": "HunyuanVideo15AutoBlocks",
        "HeliosPipeline": "HeliosAutoBlocks",
        "HeliosPyramidPipeline": "HeliosPyramidAutoBlocks",
        "Krea2Pipeline": "Krea2AutoBlocks",
        "ErnieImagePipeline": "ErnieImageAutoBlocks",
        "Ideogram4Pipeline": "Ideogram4AutoBlocks",
        "QwenImage21Pipeline": "QwenImage21AutoBlocks",
    }
    | {
        row.blocks.replace("AutoBlocks", "Blocks").replace("Blocks", "ModularPipeline"): row.blocks
        for row in ROWS
    }
)
"""diffusers' blocks by the class that an index names, a plain pipeline or a modular one."""

VARIANTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "HeliosPyramidAutoBlocks": ("is_distilled", "HeliosPyramidDistilledAutoBlocks"),
        "Krea2AutoBlocks": ("is_distilled", "Krea2TurboAutoBlocks"),
        "QwenImage21AutoBlocks": ("sample_sigmas", "QwenImage21TurboAutoBlocks"),
    }
)
"""Other blocks for a checkpoint whose index has something."""


def blocks_of(index: Mapping[str, Any]) -> str | None:
    """diffusers' blocks for an index; None where no row is for it."""
    named = index.get("_blocks_class_name")
    if named is not None:
        return str(named)
    blocks = PIPELINES.get(str(index.get("_class_name")))
    fact, other = VARIANTS.get(blocks or "", ("", None))
    return other if index.get(fact) else blocks


class Generic(ModularFamily):
    """A family that is nothing but a row."""

    row: ClassVar[Row]

    def owns(self, index: Mapping[str, Any]) -> bool:
        """See `Family.owns`."""
        return blocks_of(index) == self.row.blocks

    def blocks(self, index: Mapping[str, Any]) -> str:
        """See `ModularFamily.blocks`."""
        return self.row.blocks

    def sides(self, checkpoint: Checkpoint) -> Sides | None:
        """See `ModularFamily.sides`; a size that nobody asked for is the block's own."""
        return None


def _sample(row: Row) -> type[NoiseParams]:
    fields: dict[str, Any] = {
        "width": (int | None, side(None, multiple=row.multiple)),
        "height": (int | None, side(None, multiple=row.multiple)),
    }
    validators: dict[str, Any] = {}
    if row.per_latent:
        fields["count"] = (int, one_film())
    if row.chunk:
        fields["frames"] = (int | None, frames_of_chunks(row.chunk, row.per_latent))
        validators["whole_chunks"] = whole_chunks(row.chunk, row.per_latent)
    elif row.per_latent:
        fields["frames"] = (int | None, frames(None, per_latent=row.per_latent, maximum=1001))
        validators["whole_latents"] = whole_latents(row.per_latent)
    if row.fps:
        fields["fps"] = (float | None, frames_per_second(None))
    if row.steps:
        at_each = "Denoising steps at each size." if row.sizes else "Denoising steps."
        fields["steps"] = (int | None, steps(None, at_each))
    if row.guidance:
        fields["guidance"] = (float | None, guidance(None))
    return create_model("SampleParams", __base__=NoiseParams, __validators__=validators, **fields)


def _family(row: Row) -> Generic:
    own_rate = bool(row.per_latent) and not row.fps
    members = {
        "row": row,
        "name": row.name,
        "pipelines": {},
        "text": TextEncodeParams if row.negatives else UnguidedTextParams,
        "sample": _sample(row),
        "decode": FilmDecodeParams if own_rate else VAEDecodeParams,
        "references": row.references,
        "fits_references": bool(row.per_latent),
        "films": bool(row.per_latent),
        "sounds": row.sounds,
        "transparent": row.transparent,
        "starts": row.starts,
        "packed": not row.starts,
    }
    return cast(Generic, type("Generic", (Generic,), members)())


GENERIC: Final = tuple(_family(row) for row in ROWS)
"""A family for each row."""
