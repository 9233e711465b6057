"""The families as a table, from what they declare and what diffusers' blocks say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ..call_spec import CallSpec
from ..modular.family import ModularFamily
from ..modular.load import stage_blocks
from ..modular.schedulers import scheduler_names
from ..modular.specs import SPECS
from ..text_pipeline import ENCODER, MODEL
from . import DIFFUSION, TEXT_DIFFUSION
from .generic import PIPELINES, Generic
from .text_diffusion import TextDiffusion

README: Final = Path(__file__).with_name("README.md")
_BEGIN: Final = "<!-- families: begin -->\n"
_END: Final = "<!-- families: end -->\n"
_COLUMNS: Final = (
    "family",
    "`_class_name` of the checkpoint",
    "stages",
    "what it does",
    "denoiser",
    "other modules that merge",
    "modules that take turns",
    "guiders",
    "schedulers",
)


def table() -> str:
    """The table in Markdown."""
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_row, DIFFUSION)]
    rows += map(_text_row, TEXT_DIFFUSION)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def written() -> str:
    """The table as the README has it."""
    return README.read_text("utf-8").partition(_BEGIN)[2].partition(_END)[0]


def write() -> None:
    """Bring the README up to date."""
    head, _, rest = README.read_text("utf-8").partition(_BEGIN)
    README.write_text(f"{head}{_BEGIN}{table()}{_END}{rest.partition(_END)[2]}", "utf-8")


def _row(family: ModularFamily) -> tuple[str, ...]:
    pipelines = family.pipelines
    if isinstance(family, Generic):
        pipelines = {name: b for name, b in PIPELINES.items() if b == family.row.blocks}
    name = next(iter(pipelines.values()), None)
    blocks = stage_blocks(family.row.blocks if isinstance(family, Generic) else str(name))
    components = {
        spec.name: spec.type_hint for block in blocks.values() for spec in block.expected_components
    }
    if family.controlnet is not None:  # blocks name one of several classes
        import diffusers

        components["controlnet"] = getattr(diffusers, family.controlnet)
    modules = {n: c for n, c in components.items() if _is_module(c)}
    modes = {n: _mode(family, n, c) for n, c in modules.items()}
    others = {n: mode for n, mode in modes.items() if n != family.denoiser}
    scheduler = components.get("scheduler")
    # the solvers among them serve flow matching, too, and say so in their config
    config = {"_class_name": getattr(scheduler, "__name__", ""), "use_flow_sigmas": True}
    return (
        family.name,
        _words(f"`{name}`" for name in pipelines),
        _words(family.graph({}).stages),
        _words(_tasks(family)),
        modes.get(family.denoiser, "single"),
        _words(n for n, mode in others.items() if mode != "single"),
        _words(n for n, mode in others.items() if mode == "single"),
        _words(sorted(family.guiders)),
        _words(scheduler_names(config, schedule=family.schedule)),
    )


def _text_row(family: TextDiffusion) -> tuple[str, ...]:
    """The line of a family that answers in text; its `model` is what denoises."""
    spec = family.specs().get((MODEL, "__call__"))
    architectures = _words(f"`{name}`" for name in family.architectures)
    sees = family.media({"vision_config": {}})
    return (
        family.name,
        f"`{family.pipeline}`, or the architecture {architectures}",
        "thinker",
        "text and pictures to text" if sees else "text to text",
        "grouped" if spec else "single",
        "-",
        ENCODER if family.encodes else "-",
        "-",
        "default",
    )


def _tasks(family: ModularFamily) -> Iterator[str]:
    made = "film" if family.films else "picture"
    if not family.needs_reference:
        yield f"text to {made}"
    if family.fits_references:
        yield "first frame to film"
    elif family.references:
        yield f"reference pictures, at most {family.references}"
    if family.starts and not family.needs_mask:
        yield "picture to picture"
    if family.inpaints:
        yield "inpainting"
    if family.controlnet is not None:
        yield "ControlNet"
    if family.transparent:
        layered = "layers" in family.sample.model_fields
        yield "layers with transparency" if layered else "transparency"
    if family.sounds:
        yield "sound"


def _mode(family: ModularFamily, name: str, cls: Any) -> str:
    """How calls of a module merge at best: `packed`, `grouped` or `single`."""
    specs = {m: s for (module, m), s in family.specs().items() if module == name}
    specs = specs or dict(SPECS.get(cls.__name__, {}))
    if not specs:
        return "single"
    return "packed" if any(map(_takes_any_size, specs.values())) else "grouped"


def _takes_any_size(spec: CallSpec) -> bool:
    return spec.packed is not None or bool(spec.ragged_lists)


def _is_module(cls: Any) -> bool:
    import torch

    return isinstance(cls, type) and issubclass(cls, torch.nn.Module)


def _words(words: Any) -> str:
    return ", ".join(words) or "-"
