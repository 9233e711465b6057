"""What a model family declares, and the registry that finds the family of a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .stage import StageGraph

if TYPE_CHECKING:
    from .ar_stage import ARStage
    from .checkpoint import Checkpoint
    from .program import LoadedModel


class Family(ABC):
    """One family of models: its stages and how a checkpoint of it is loaded.

    Attributes:
        name: stable id, part of a model's description.
        components: subfolders a checkpoint must have.
        controlnet: the class of ControlNets that can steer it; None: it takes none.
    """

    name: ClassVar[str]
    components: ClassVar[frozenset[str]] = frozenset()
    controlnet: ClassVar[str | None] = None

    @abstractmethod
    def owns(self, index: Mapping[str, Any]) -> bool:
        """Whether a folder is of this family.

        Args:
            index: its `model_index.json` (diffusers layout) or `config.json` (transformers).
        """

    @abstractmethod
    def stages(self, checkpoint: Checkpoint) -> StageGraph:
        """The stage graph, with the checkpoint's own defaults and limits."""

    def load(self, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
        """Load the modules that the diffusion core runs (in the engine process).

        Raises:
            ModelLoadFailed: names the file or component and what is wrong with it.
        """
        raise NotImplementedError(f"family {self.name} has no stage on the diffusion core")

    def ar_stage(self, checkpoint: Checkpoint, stage: str) -> ARStage:
        """How the AR core runs a stage (in that stage's engine process)."""
        raise NotImplementedError(f"family {self.name} has no stage on the AR core")


def families() -> list[Family]:
    """Every family this runtime knows; built-ins register here and nowhere else."""
    from .chat import Chat
    from .families import DIFFUSION, TEXT_DIFFUSION
    from .qwen_omni import QwenOmni

    return [*DIFFUSION, *TEXT_DIFFUSION, QwenOmni(), Chat()]


def family_of(index: Mapping[str, Any]) -> Family | None:
    """The family that owns a folder, given its `model_index.json` or `config.json`."""
    return next((family for family in families() if family.owns(index)), None)
