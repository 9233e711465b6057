"""A few rows of one tensor of a checkpoint, without reading the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open

from ..protocol.errors import ModelLoadFailed

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

_WHOLE = "model.safetensors"


def weight_rows(checkpoint: Checkpoint, name: str, rows: Sequence[int]) -> torch.Tensor:
    """Rows of a matrix, float32 `[len(rows), width]`.

    Raises:
        ModelLoadFailed: the checkpoint has no such tensor, or it has no such row.
    """
    shards = checkpoint.read_json(f"{_WHOLE}.index.json").get("weight_map", {name: _WHOLE})
    path = checkpoint.folder / shards.get(name, _WHOLE)
    try:
        with safe_open(path, "pt") as file:
            matrix = file.get_slice(name)
            (count, _) = matrix.get_shape()
            missing = [row for row in rows if not 0 <= row < count]
            if missing:
                raise ModelLoadFailed(f"{name} has {count} rows, not {missing}.", field=name)
            return torch.cat([matrix[row : row + 1].float() for row in rows])
    except (OSError, SafetensorError) as error:
        raise ModelLoadFailed(f"{path} does not give {name}: {error}", field=name) from error
