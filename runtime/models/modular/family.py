"""A family of diffusers' modular pipelines: what one file declares, and how it is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..call_spec import Preview, SpecTable
from ..control_params import with_control
from ..family import Family
from ..stage import EngineKind, Kind, Stage, StageGraph
from .guider_params import with_guider
from .params import (
    NoiseParams,
    SampleParams,
    TextEncodeParams,
    VAEDecodeParams,
    VAEEncodeParams,
    with_choices,
    with_overrides,
)
from .schedulers import Schedule, scheduler_names
from .sizes import AUTO_PX, Sides

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint
    from ..program import LoadedModel

REFERENCES: Final = ("images", "images_2", "images_3")
"""Inputs with reference pictures; each may have several of one size."""


class ModularFamily(Family):
    """A family by declaration; everything else is derived from diffusers' blocks.

    Attributes:
        pipelines: diffusers' blocks by the class that `model_index.json` names.
        text, sample: parameters of these stages, with the family's own defaults.
        text_engines: which engine cores can run the text encoder.
        max_tokens: tokens of a prompt, at most, by tokenizer; longer prompts are refused.
        guiders: kinds of guidance it runs; none: it has no guider, or only those of `guidance`.
        guidance: which parameter of sampling is which argument of its guiders, by component, for
            guiders that are no classifier-free guidance; what is not named is as diffusers has it.
        schedule: what its blocks give a scheduler, see `schedulers.Schedule`.
        references: how many reference pictures a prompt may have.
        needs_reference: whether it must have one.
        fits_references: whether they are scaled and cut to the size that is asked for, because
            they are frames; otherwise they may be of any size.
        reference_side: pixels that a reference picture must have on its shorter side.
        reference_shape: how many times as long its longer side may be.
        reference_area: pixels of a result that follows a reference picture; None: that picture's.
        starts: whether sampling can start from a given latent.
        inpaints: whether a given latent can have a mask.
        needs_mask: whether it must have one.
        films: whether it makes films.
        sounds: whether they have sound.
        transparent: whether its pictures, and those it is given, have an alpha channel.
        needs_prompt: whether an empty prompt is refused.
        packed: whether its latents are in a form that only the family itself understands.
        scale: pixels a latent stands for, on each side.
        negatives: whether an empty negative prompt counts: these models are guided by default.
        denoiser: the component that denoises.
        undeclared: components that diffusers' blocks read without saying so, by block.
    """

    pipelines: ClassVar[Mapping[str, str]]
    text: ClassVar[type[TextEncodeParams]] = TextEncodeParams
    sample: ClassVar[type[NoiseParams]] = SampleParams
    decode: ClassVar[type[VAEDecodeParams]] = VAEDecodeParams
    text_engines: ClassVar[tuple[EngineKind, ...]] = ("diffusion",)
    max_tokens: ClassVar[Mapping[str, int]] = {}
    guiders: ClassVar[frozenset[str]] = frozenset()
    guidance: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    schedule: ClassVar[Schedule] = "sigmas"
    references: ClassVar[int] = 0
    needs_reference: ClassVar[bool] = False
    fits_references: ClassVar[bool] = False
    reference_side: ClassVar[int] = 1
    reference_shape: ClassVar[float] = math.inf
    reference_area: ClassVar[int | None] = None
    starts: ClassVar[bool] = False
    inpaints: ClassVar[bool] = False
    needs_mask: ClassVar[bool] = False
    films: ClassVar[bool] = False
    sounds: ClassVar[bool] = False
    transparent: ClassVar[bool] = False
    needs_prompt: ClassVar[bool] = False
    packed: ClassVar[bool] = False
    scale: ClassVar[int] = 8
    negatives: ClassVar[bool] = True
    denoiser: ClassVar[str] = "transformer"
    undeclared: ClassVar[Mapping[str, frozenset[str]]] = {}

    def owns(self, index: Mapping[str, Any]) -> bool:
        """See `Family.owns`."""
        return index.get("_class_name") in self.pipelines

    def defaults(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """What a checkpoint of this family wants of the sample stage, unless it says so itself."""
        return {}

    def blocks(self, index: Mapping[str, Any]) -> str:
        """The class of diffusers' blocks that runs a checkpoint with this `model_index.json`."""
        return self.pipelines[index["_class_name"]]

    def stages(self, checkpoint: Checkpoint) -> StageGraph:
        """See `Family.stages`."""
        scheduler = checkpoint.read_json("scheduler/scheduler_config.json")
        own = {name: {"default": value} for name, value in self.defaults(checkpoint).items()}
        overrides = dict(checkpoint.overrides)
        overrides["sample"] = own | overrides.get("sample", {})
        return self.graph(overrides, scheduler)

    def graph(
        self, overrides: Mapping[str, Any], scheduler: Mapping[str, Any] | None = None
    ) -> StageGraph:
        """The stage graph.

        Args:
            overrides: defaults and limits as `omnistage.json` spells them.
            scheduler: the checkpoint's `scheduler_config.json`.
        """
        names = scheduler_names(scheduler or {}, schedule=self.schedule)
        sample = with_guider(with_choices(self.sample, "scheduler", names), self.guiders)
        sample = with_overrides(sample, overrides.get("sample", {}))
        if self.controlnet is not None:
            sample = with_control(sample)
        references: dict[str, Kind] = dict.fromkeys(REFERENCES[: self.references], "images")
        latent: dict[str, Kind] = {"latent": "latent"} if self.starts else {}
        control: dict[str, Kind] = {} if self.controlnet is None else {"control": "images"}
        needed = {"images"} if self.needs_reference else set()
        stages = [
            Stage(
                "text_encode",
                self.text,
                inputs={"prompt": "text", "negative_prompt": "text", **references},
                outputs={"conditioning": "conditioning"},
                optional=frozenset({"prompt", "negative_prompt", *references}) - needed,
                engines=self.text_engines,
            ),
            Stage(
                "sample",
                sample,
                inputs={"conditioning": "conditioning", **latent, **control},
                outputs={"latent": "latent"},
                optional=frozenset({*latent, *control}),
            ),
            Stage(
                "vae_decode",
                self.decode,
                inputs={"latent": "latent"},
                outputs=self._made(),
            ),
        ]
        if self.starts:
            mask: dict[str, Kind] = {"mask": "images"} if self.inpaints else {}
            stages.append(
                Stage(
                    "vae_encode",
                    VAEEncodeParams,
                    inputs={"images": "images", **mask},
                    outputs={"latent": "latent"},
                    optional=frozenset() if self.needs_mask else frozenset(mask),
                )
            )
        return StageGraph.of(*stages)

    def _made(self) -> dict[str, Kind]:
        sound: dict[str, Kind] = {"audio": "audio"} if self.sounds else {}
        return {"video": "video", **sound} if self.films else {"images": "images"}

    def sides(self, checkpoint: Checkpoint) -> Sides | None:
        """The sizes that a checkpoint makes; None: it is never left to choose one."""
        known = self.stages(checkpoint)["sample"].params.model_json_schema()["properties"]
        width = known.get("width", {})
        follows = width.get("minimum") == AUTO_PX
        return Sides.of(width, self.reference_area) if follows else None

    def specs(self) -> SpecTable:
        """How its calls merge, beyond what `specs.SPECS` says of its modules' classes."""
        return {}

    def preview(self) -> Preview | None:
        """Estimates clean latents from a denoiser call; None: there are no previews."""
        return None

    def load(self, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
        """See `Family.load`."""
        from .load import load

        return load(self, checkpoint, dtype=dtype, device=device)
