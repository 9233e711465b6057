"""What a file of tensors holds, told from the names and shapes in its header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..protocol.errors import ModelLoadFailed
from .file_signatures import (
    CONTROLNET,
    CONTROLNETS,
    PARTS,
    STRANGERS,
    UNLOADED_QUANTISATIONS,
    Signature,
)
from .tensor_file import TensorFile, TensorInfo

SCALES = frozenset({"scale_weight", "weight_scale"})
"""Last words of the names of factors that fp8 weights are to be multiplied by."""

SCALE_NOTES = frozenset({"scaled_fp8", "scale_input", "input_scale", "comfy_quant"})
"""Last words of names that say how a file was quantised."""

_SECTIONS = (
    re.compile(r"model\.diffusion_model\."),
    re.compile(r"diffusion_model\."),
    re.compile(r"control_model\."),
    re.compile(r"net\."),
    re.compile(r"first_stage_model\."),
    re.compile(r"vae\."),
    re.compile(r"text_encoders\.[\w-]+\.transformer\."),
    re.compile(r"conditioner\.embedders\.\d\.transformer\."),
    re.compile(r"conditioner\.embedders\.\d\.model\."),
    re.compile(r"cond_stage_model\.transformer\."),
    re.compile(r"cond_stage_model\.model\."),
)
"""How whole checkpoints prefix their parts."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """One component in a file.

    Attributes:
        words: what it is, for people: `the transformer of FLUX.1`.
        component: `transformer`, `unet`, `vae`, `text_encoder` or `controlnet`.
        classes: names of the classes that can load it.
        prefix: what its tensors' names begin with in this file.
        config: the folder in `configs` that describes a model with it; empty: none.
    """

    words: str
    component: str
    classes: frozenset[str]
    prefix: str
    config: str = ""


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a file holds.

    Attributes:
        parts: one, or several for a whole checkpoint.
        quantisation: `none`, `fp8`, `fp8 scaled`, or a GGUF type such as `Q8_0`.
        prefix: what all names begin with, if they share one of the known prefixes.
    """

    parts: tuple[FilePart, ...]
    quantisation: str
    prefix: str


def kind_of(file: TensorFile) -> FileKind:
    """What a file holds; no parts if nothing is known.

    Raises:
        ModelLoadFailed: it is of a known kind that is no component, such as a LoRA, or is
            quantised in a way that is not loaded; says which.
    """
    _refuse_strangers(file, "a model")
    sections = _sections(file.tensors)
    found = [_part(prefix, tensors) for prefix, tensors in sections.items()]
    parts = tuple(part for part in found if part is not None)
    for part in parts:
        _check_served(file, part)
    shared = next(iter(sections)) if len(sections) == 1 else ""
    return FileKind(parts, _quantisation(file), shared)


def controlnet_in(file: TensorFile) -> FilePart:
    """The ControlNet that a file holds.

    Raises:
        ModelLoadFailed: it holds something else, or a ControlNet that is not served; says which.
    """
    _refuse_strangers(file, CONTROLNET)
    sections = _sections(file.tensors)
    found = [_part(prefix, tensors, CONTROLNETS) for prefix, tensors in sections.items()]
    part = next((part for part in found if part is not None), None)
    if part is None:
        others = [_part(prefix, tensors) for prefix, tensors in sections.items()]
        other = next((part for part in others if part is not None), None)
        reason = f"is {other.words}, not {CONTROLNET}" if other else "is no ControlNet known here"
        raise ModelLoadFailed(f"The file {file.path} {reason}.", field=file.path.name)
    _check_served(file, part)
    return part


def unknown(file: TensorFile) -> ModelLoadFailed:
    """The error for a file of no known kind, with what was found in it."""
    sample = ", ".join(sorted(file.tensors)[:3]) or "nothing"
    return ModelLoadFailed(
        f"The file {file.path} is not a model of any family this runtime knows. It holds "
        f"{len(file.tensors)} tensors, such as {sample}.",
        field=file.path.name,
    )


def _check_served(file: TensorFile, part: FilePart) -> None:
    if not part.classes:
        raise ModelLoadFailed(
            f"The file {file.path} is {part.words}, which this runtime does not serve.",
            field=file.path.name,
        )


def _refuse_strangers(file: TensorFile, wanted: str) -> None:
    names = file.tensors
    for words, pattern in STRANGERS:
        if words == wanted:
            continue
        hits = sum(1 for name in names if pattern.search(name))
        if hits:
            raise ModelLoadFailed(
                f"The file {file.path} is {words}, not {wanted} ({hits} of its {len(names)} "
                "tensors say so).",
                field=file.path.name,
            )
    for words, pattern in UNLOADED_QUANTISATIONS:
        hit = next((name for name in names if pattern.search(name)), None)
        if hit:
            raise ModelLoadFailed(
                f"The file {file.path} is quantised for {words} (tensor {hit}), which is not "
                "loaded. Take its fp8, GGUF or full version.",
                field=file.path.name,
            )


def _sections(tensors: Mapping[str, TensorInfo]) -> dict[str, dict[str, TensorInfo]]:
    """The tensors by the prefix of the part they belong to, names without it."""
    sections: dict[str, dict[str, TensorInfo]] = {}
    for name, info in tensors.items():
        match = next((m for pattern in _SECTIONS if (m := pattern.match(name))), None)
        prefix = match.group() if match else ""
        sections.setdefault(prefix, {})[name[len(prefix) :]] = info
    return sections


def _part(
    prefix: str, tensors: Mapping[str, TensorInfo], known: Sequence[Signature] = PARTS
) -> FilePart | None:
    signature = next((kind for kind in known if kind.fits(tensors)), None)
    if signature is None:
        return None
    variant = signature.variant(tensors)
    return FilePart(
        words=signature.words,
        component=signature.component,
        classes=frozenset(signature.classes),
        prefix=prefix,
        config=variant.config if variant else "",
    )


def _quantisation(file: TensorFile) -> str:
    types = Counter(info.dtype for info in file.tensors.values() if len(info.shape) > 1)
    if file.format == "gguf":
        quantised = [name for name, _ in types.most_common() if name not in ("F32", "F16", "BF16")]
        return quantised[0] if quantised else "none"
    if not any(name.startswith("F8_") for name in types):
        return "none"
    scaled = any(name.rsplit(".", 1)[-1] in SCALES for name in file.tensors)
    return "fp8 scaled" if scaled else "fp8"
