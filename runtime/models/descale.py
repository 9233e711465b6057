"""Scaled fp8 weights back to plain ones.

Files "fp8 scaled" hold, beside each fp8 weight, the factor it was divided by; a loader that
ignores the factors runs on garbage. ComfyUI's two spellings are known: `scale_weight` (marked by
a tensor `scaled_fp8`) and `weight_scale` (marked by notes in the header or in `comfy_quant`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from ..protocol.errors import ModelLoadFailed
from .file_kind import SCALE_NOTES, SCALES

_FORMATS = frozenset({"float8_e4m3fn", "float8_e5m2"})


def descaled(
    tensors: Mapping[str, torch.Tensor], dtype: torch.dtype, *, file: str
) -> dict[str, torch.Tensor]:
    """The tensors with fp8 weights as plain numbers, and without their factors and notes.

    Args:
        tensors: by name; an fp8 tensor without a factor is only cast.
        dtype: of what was fp8; the rest keeps its own.
        file: named in errors.

    Raises:
        ModelLoadFailed: a factor has no weight, does not fit it, or is for another format.
    """
    factors = {}
    plain = {}
    for name, tensor in tensors.items():
        if name.endswith(".comfy_quant"):
            _check_note(name, tensor, file)
        weight = _weight_of(name)
        if weight is not None:
            factors[weight] = tensor
        elif not is_note(name):
            plain[name] = tensor
    lost = [name for name in factors if name not in plain]
    if lost:
        raise ModelLoadFailed(f"The file {file} has a scale, but no {lost[0]}.", field=lost[0])
    return {name: _plain(name, plain[name], factors.get(name), dtype, file) for name in plain}


def check_notes(metadata: Mapping[str, Any], *, file: str) -> None:
    """Refuse a file whose header says that layers are quantised in another way than fp8.

    Raises:
        ModelLoadFailed: names the layer and its format.
    """
    notes = metadata.get("_quantization_metadata")
    if notes is None:
        return
    for layer, facts in json.loads(notes).get("layers", {}).items():
        _check_format(layer, facts.get("format"), file)


def is_note(name: str) -> bool:
    """Whether a name is of the quantiser's bookkeeping, which no module has."""
    return name.rsplit(".", 1)[-1] in SCALE_NOTES


def _weight_of(name: str) -> str | None:
    """Name of the weight that a factor belongs to."""
    base, _, last = name.rpartition(".")
    return f"{base}.weight" if last in SCALES else None


def _plain(
    name: str, tensor: torch.Tensor, factor: torch.Tensor | None, dtype: torch.dtype, file: str
) -> torch.Tensor:
    if factor is None:
        return tensor.to(dtype) if _is_fp8(tensor) else tensor
    if factor.numel() not in (1, tensor.shape[0]):
        raise ModelLoadFailed(
            f"The file {file} has a scale of shape {tuple(factor.shape)} for {name} of shape "
            f"{tuple(tensor.shape)}: neither one number nor one for each row.",
            field=name,
        )
    rows = factor.float().reshape(-1, *[1] * (tensor.ndim - 1))
    return (tensor.float() * rows).to(dtype)


def _is_fp8(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() == 1


def _check_note(name: str, tensor: torch.Tensor, file: str) -> None:
    try:
        note = json.loads(bytes(tensor.to(torch.uint8).tolist()))
    except ValueError as error:
        raise ModelLoadFailed(f"The file {file} has an unreadable {name}.", field=name) from error
    _check_format(name.removesuffix(".comfy_quant"), note.get("format"), file)


def _check_format(layer: str, given: Any, file: str) -> None:
    if given not in _FORMATS:
        raise ModelLoadFailed(
            f"The file {file} is quantised as {given} (layer {layer}), which is not loaded. "
            "Take its fp8, GGUF or full version.",
            field=layer,
            value=str(given),
            allowed=", ".join(sorted(_FORMATS)),
        )
