"""Where one component of a model is: a subfolder, or a file whose config is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ComponentSource:
    """One component of a checkpoint.

    Attributes:
        name: as `model_index.json` calls it.
        folder: holds its config, and its weights unless `file` does.
        file: of its weights.
        prefix: what its tensors' names begin with in that file.
        config: of what is in the file, where no folder holds it.
    """

    name: str
    folder: Path
    file: Path | None = None
    prefix: str = ""
    config: Mapping[str, Any] | None = None

    @property
    def words(self) -> str:
        """The place, for people."""
        return str(self.folder if self.file is None else self.file)
