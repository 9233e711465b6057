"""A model's modules, component by component: how each is loaded, and how big it will be.

What is in memory when is not decided here; an engine with a budget does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .component_source import ComponentSource
from .components import load_module
from .single_file import file_weight_bytes, stored_bytes
from .tensor_file import read_tensor_file


@dataclass(frozen=True, slots=True)
class Component:
    """Modules that come and go together: a component of a checkpoint, with its twins.

    `build` gives the same weights each time that it runs. The modules of the first time are kept
    for good; later ones only give them their weights.

    Attributes:
        modules: their names in the model.
        nbytes: of all weights as they will be in memory; what modules share counts once.
        build: makes exactly these modules, on the host, in evaluation mode, without gradients.
    """

    modules: tuple[str, ...]
    nbytes: int
    build: Callable[[], Mapping[str, torch.nn.Module]]


class Modules(Mapping[str, torch.nn.Module]):
    """The modules of a model by name, each built when it is first asked for.

    Args:
        components: by name, as errors and statistics call them.
    """

    def __init__(self, components: Mapping[str, Component]) -> None:
        self.components = dict(components)
        self._homes = {name: home for home, c in components.items() for name in c.modules}
        self._built: dict[str, torch.nn.Module] = {}

    def __getitem__(self, module: str) -> torch.nn.Module:
        """A module; builds its component if that has not happened yet.

        Raises:
            ModelLoadFailed: its files do not give it.
        """
        if module not in self._built:
            self._built.update(self.components[self._homes[module]].build())
        return self._built[module]

    def __contains__(self, module: object) -> bool:
        return module in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


def pretrained(source: ComponentSource, cls: Any, *, dtype: str) -> Component:
    """A component that is one module, named like its source."""

    def build() -> dict[str, torch.nn.Module]:
        return {source.name: load_module(source, cls, dtype=dtype, device="cpu")}

    return Component((source.name,), source_bytes(source, dtype), build)


def source_bytes(source: ComponentSource, dtype: str) -> int:
    """Bytes that a component's weights take once they are loaded as `dtype`, from headers only.

    Raises:
        ModelLoadFailed: a weight file has no readable header.
    """
    if source.file is None:
        return weight_bytes(source.folder, dtype)
    return file_weight_bytes(source, dtype)


def weight_bytes(folder: Path, dtype: str) -> int:
    """Bytes that a folder's weights take once they are loaded as `dtype`, from headers only.

    Raises:
        ModelLoadFailed: a weight file has no readable header.
    """
    return sum(
        stored_bytes(info, dtype)
        for path in folder.rglob("*.safetensors")
        for info in read_tensor_file(path).tensors.values()
    )
