"""Loading a family's checkpoint: components by its `model_index.json`, blocks by its class."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from ...protocol.errors import ModelLoadFailed
from ..call_spec import CallSpec, Method
from ..component_source import ComponentSource
from ..components import component_failure, load_module, load_scheduler
from ..latent_space import LatentSpace
from ..modules import Component, Modules, pretrained, source_bytes
from ..program import LatentToRGB, LoadedModel
from ..still_image import still_image_vae
from ..torchvision_ops import make_torchvision_importable
from .blocks import StageBlocks
from .preview import latent_to_rgb
from .programs import Stages
from .specs import SPECS

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint
    from .family import ModularFamily

_STAGES: Final = (
    "text_encoder",
    "image_encoder",
    "vae_encoder",
    "controlnet_vae_encoder",
    "denoise",
    "decode",
)

_STILL: Final = {"AutoencoderKLQwenImage"}
"""Film VAEs that have a twin for single frames."""


def load(family: ModularFamily, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
    """A checkpoint of a modular family, ready to run; no weights are read yet."""
    blocks = stage_blocks(family.blocks(checkpoint.index))
    wanted = {spec.name for block in blocks.values() for spec in block.expected_components}
    found = _components(checkpoint, wanted, dtype=dtype)
    stills = {"vae": "still_vae"} if "still_vae" in found.modules else {}
    names = {name: name for name in found.classes}
    vae = found.facts.get("vae")
    space = None if vae is None or family.packed else LatentSpace.of(vae.config)
    stages = Stages(
        family=family,
        blocks={
            name: StageBlocks(
                block,
                parts=found.parts,
                facts=found.facts,
                index=checkpoint.index,
                undeclared=family.undeclared.get(name, frozenset()),
            )
            for name, block in blocks.items()
        },
        modules=names | stills,
        strict_modules=names,
        schedulers=_own_schedulers(blocks) | found.schedulers,
        space=space,
        sides=family.sides(checkpoint),
        rate=_sampling_rate(found.facts),
        tokenizers=[
            (found.parts[name], tokens)
            for name, tokens in family.max_tokens.items()
            if name in found.parts
        ],
    )
    preview = family.preview() if space is not None else None
    return LoadedModel(
        modules=found.modules,
        specs={**_specs(found.classes, stills), **family.specs()},
        programs=stages.programs(),
        denoiser=(family.denoiser, "__call__"),
        preview=preview,
        latent_to_rgb=None if preview is None else _colours(space, stills),
    )


@dataclass(slots=True)
class _Components:
    """What a checkpoint's folder holds.

    Attributes:
        modules: the heavy ones, which are loaded when they are needed.
        classes: their classes.
        facts: each as a module without weights, for blocks that only ask what it is like.
        parts: all else, but for the schedulers.
    """

    modules: Modules
    classes: dict[str, type] = field(default_factory=dict)
    facts: dict[str, torch.nn.Module] = field(default_factory=dict)
    schedulers: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)


def _components(checkpoint: Checkpoint, wanted: set[str], *, dtype: str) -> _Components:
    """The components that are wanted and there.

    Raises:
        ModelLoadFailed: names the component and what is wrong with it.
    """
    make_torchvision_importable()
    # one line for each guider made would be several for each request
    logging.getLogger("diffusers.guiders.guider_utils").setLevel(logging.ERROR)
    found = _Components(Modules({}))
    heavy: dict[str, Component] = {}
    for name, entry in checkpoint.index.items():
        if name not in wanted or not isinstance(entry, list) or None in entry:
            continue
        source = checkpoint.source(name)
        folder = source.folder
        cls = _class_of(name, entry)
        if issubclass(cls, torch.nn.Module):
            found.classes[name] = cls
            heavy[name] = _component(source, cls, dtype=dtype)
            if not cls.__module__.startswith("transformers."):
                found.facts[name] = _without_weights(folder, cls)
        elif name == "scheduler":
            found.schedulers[name] = load_scheduler(folder)
        else:
            found.parts[name] = _plain(folder, cls)
    for source in checkpoint.controlnets.values():
        cls = _class_of(source.name, ["diffusers", str(checkpoint.family.controlnet)])
        found.classes[source.name] = cls
        heavy[source.name] = pretrained(source, cls, dtype=dtype)
    found.modules = Modules(heavy)
    return found


def _component(source: ComponentSource, cls: Any, *, dtype: str) -> Component:
    if _overflows(source.folder):
        return _in_full_precision(source, cls)
    if cls.__name__ not in _STILL:
        return pretrained(source, cls, dtype=dtype)
    names = (source.name, f"still_{source.name}")

    def build() -> dict[str, torch.nn.Module]:
        vae = load_module(source, cls, dtype=dtype, device="cpu")
        return dict(zip(names, (vae, still_image_vae(vae)), strict=True))

    return Component(names, source_bytes(source, dtype), build)


def _overflows(folder: Path) -> bool:
    """Whether a VAE wants float32 whatever the rest of the model is in."""
    try:
        return bool(json.loads((folder / "config.json").read_text("utf-8")).get("force_upcast"))
    except (OSError, ValueError):
        return False  # loading it says what is wrong


def _in_full_precision(source: ComponentSource, cls: Any) -> Component:
    """In float32 from the start: blocks would change it and back around each of their calls."""

    def build() -> dict[str, torch.nn.Module]:
        module = load_module(source, cls, dtype="float32", device="cpu")
        module.register_to_config(force_upcast=False)  # type: ignore[operator]
        return {source.name: module}

    return Component((source.name,), source_bytes(source, "float32"), build)


def stage_blocks(name: str) -> dict[str, Any]:
    """diffusers' blocks of that class, by stage."""
    import diffusers

    blocks = getattr(diffusers, name)().sub_blocks
    return {stage: blocks[stage] for stage in _STAGES if stage in blocks}


def _own_schedulers(blocks: Mapping[str, Any]) -> dict[str, Any]:
    """Schedulers that blocks make by themselves where a checkpoint has none."""
    from diffusers import SchedulerMixin

    return {
        spec.name: spec.type_hint(**spec.config)
        for block in blocks.values()
        for spec in block.expected_components
        if spec.default_creation_method == "from_config"
        and isinstance(spec.type_hint, type)
        and issubclass(spec.type_hint, SchedulerMixin)
    }


def _specs(classes: Mapping[str, type], stills: Mapping[str, str]) -> dict[Method, CallSpec]:
    """What is proved of the modules' classes; what is not in the table never merges."""
    twins = {twin: classes[name] for name, twin in stills.items()}
    return {
        (name, method): spec
        for name, cls in {**classes, **twins}.items()
        for method, spec in SPECS.get(cls.__name__, {}).items()
    }


def _colours(space: LatentSpace | None, stills: Mapping[str, str]) -> LatentToRGB | None:
    if space is None:
        return None
    return LatentToRGB(stills.get("vae", "vae"), lambda vae: latent_to_rgb(vae, space))


def _class_of(name: str, entry: list[str]) -> Any:
    library, class_name = entry[:2]
    try:
        return getattr(_library(library), class_name)
    except (ImportError, AttributeError) as error:
        raise ModelLoadFailed(
            f"Component {name} is a {class_name} of {library}, which is not installed here.",
            field=name,
            value=class_name,
        ) from error


def _library(name: str) -> Any:
    """The module that a component's class is from; some belong to a pipeline of diffusers."""
    try:
        return importlib.import_module(f"diffusers.pipelines.{name}")
    except ModuleNotFoundError:
        return importlib.import_module(name)


def _sampling_rate(facts: Mapping[str, torch.nn.Module]) -> int | None:
    """Samples per second of the sound that a model makes."""
    config: Any = getattr(facts.get("vocoder"), "config", None)
    rate = getattr(config, "output_sampling_rate", None)
    return None if rate is None else int(rate)


def _without_weights(folder: Path, cls: Any) -> torch.nn.Module:
    try:
        with torch.device("meta"):
            module: torch.nn.Module = cls.from_config(cls.load_config(folder))
            return module
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise component_failure(folder, error) from error


def _plain(folder: Path, cls: Any) -> Any:
    try:
        return cls.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise component_failure(folder, error) from error
