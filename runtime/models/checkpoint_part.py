"""Loading one part of a checkpoint in transformers layout without the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..protocol.errors import ModelLoadFailed

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

_WEIGHTS = "model.safetensors"


def load_part(
    checkpoint: Checkpoint, cls: Any, config: Any, *, prefix: str, dtype: str, device: str
) -> Any:
    """A part in evaluation mode, on a device; only its own weights are read.

    Args:
        checkpoint: the whole.
        cls: the part's class in transformers.
        config: the part's own.
        prefix: what the names of its weights begin with.
        dtype: a dtype's name.
        device: where it is to be.

    Raises:
        ModelLoadFailed: weights are missing or of another shape than the config says.
    """
    weights = {}
    for name in _files(checkpoint, prefix):
        weights.update(_weights(checkpoint, name, prefix))
    try:
        part, found = cls.from_pretrained(
            None,
            config=config,
            state_dict=weights,
            dtype=getattr(torch, dtype),
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _failure(checkpoint, prefix, reason) from error
    if found["missing_keys"]:
        missing = min(found["missing_keys"])
        raise _failure(checkpoint, prefix, f"the weight {prefix}{missing} is missing")
    return part.eval().requires_grad_(False).to(device)


def _files(checkpoint: Checkpoint, prefix: str) -> Iterable[str]:
    """Names of the weight files that hold a part."""
    index = checkpoint.read_json(f"{_WEIGHTS}.index.json")
    if not index:
        return (_WEIGHTS,)
    return sorted({file for key, file in index["weight_map"].items() if key.startswith(prefix)})


def _weights(checkpoint: Checkpoint, name: str, prefix: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(checkpoint.folder / name, framework="pt") as file:
            own = [key for key in file.keys() if key.startswith(prefix)]  # noqa: SIM118 - no dict
            return {key.removeprefix(prefix): file.get_tensor(key) for key in own}
    except (OSError, SafetensorError) as error:
        raise _failure(checkpoint, prefix, str(error)) from error


def _failure(checkpoint: Checkpoint, prefix: str, reason: str) -> ModelLoadFailed:
    part = prefix.rstrip(".")
    words = f"The part {part} of {checkpoint.folder} could not be loaded: {reason}"
    return ModelLoadFailed(words, field=part)
