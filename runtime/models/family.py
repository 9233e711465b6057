"""What a model family declares, and the registry that finds the family of a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .stage import StageGraph

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .program import LoadedModel


class Family(ABC):
    """One family of models: its stages and how a checkpoint of it is loaded.

    Attributes:
        name: stable id, part of a model's description.
        pipeline_classes: values of `_class_name` in `model_index.json` that belong to it.
        components: subfolders a checkpoint must have.
    """

    name: ClassVar[str]
    pipeline_classes: ClassVar[frozenset[str]]
    components: ClassVar[frozenset[str]]

    @abstractmethod
    def stages(self, overrides: Mapping[str, Any]) -> StageGraph:
        """The stage graph; `overrides` holds a checkpoint's own defaults and limits."""

    @abstractmethod
    def load(self, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
        """Load the checkpoint's modules (runs in the engine process).

        Raises:
            ModelLoadFailed: names the file or component and what is wrong with it.
        """


def families() -> list[Family]:
    """Every family this runtime knows; built-ins register here and nowhere else."""
    from .qwen_image import QwenImage

    return [QwenImage()]


def family_of(pipeline_class: str) -> Family | None:
    """The family that owns a diffusers pipeline class, if any."""
    return next((f for f in families() if pipeline_class in f.pipeline_classes), None)
