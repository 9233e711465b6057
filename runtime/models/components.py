"""Loading a checkpoint's components, with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ..protocol.errors import ModelLoadFailed
from .component_source import ComponentSource


def load_module(
    source: Path | ComponentSource, cls: Any, *, dtype: str, device: str
) -> torch.nn.Module:
    """A module from its subfolder or its file, in evaluation mode, on a device.

    Raises:
        ModelLoadFailed: the folder or file does not hold what the config promises.
    """
    if isinstance(source, ComponentSource) and source.file is not None:
        from .single_file import load_file_module

        return load_file_module(source, cls, dtype=dtype, device=device)
    folder = source if isinstance(source, Path) else source.folder
    try:
        module = cls.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise component_failure(folder, error) from error
    return module.eval().requires_grad_(False).to(device)


def load_scheduler(folder: Path) -> Any:
    """The scheduler a checkpoint names.

    Raises:
        ModelLoadFailed: its config is missing or names no scheduler of diffusers.
    """
    import diffusers

    try:
        name = json.loads((folder / "scheduler_config.json").read_text("utf-8"))["_class_name"]
        cls = getattr(diffusers, name)
        if not issubclass(cls, diffusers.SchedulerMixin):
            raise ValueError(f"{name} is not a scheduler")
        return cls.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise component_failure(folder, error) from error


def component_failure(folder: Path, error: Exception) -> ModelLoadFailed:
    """What is said of a component whose folder does not give it."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelLoadFailed(
        f"The component {folder} could not be loaded: {reason}", field=folder.name
    )
