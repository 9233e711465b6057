"""The adapters of one model that are in memory: loaded once, lent to requests, evicted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from ..protocol.errors import JobFailed, ModelLoadFailed
from .lora import LoRAFile, LoRAFolders
from .lora_load import Adapter, AdapterLoader
from .lora_params import Noise

if TYPE_CHECKING:
    from .catalogue import ModelEntry

log = logging.getLogger(__name__)


Find = Callable[[str], nn.Module]
"""Gives a module of the model by name; may suspend until it is there."""


class Loader(Protocol):
    """Reads adapter files; see `AdapterLoader`."""

    def load(self, file: LoRAFile, find: Find, noise: Noise) -> Adapter:
        """The adapter in a file, for the modules that work at such noise."""


_Key = tuple[str, str, Noise]
"""Name, revision, and the noise it is for."""


@dataclass(frozen=True, slots=True)
class Lent:
    """An adapter at the strength one request asked for; never 0."""

    adapter: Adapter
    strength: float


class AdapterShelf:
    """Adapters of one model, within a budget.

    What no request uses goes, least recently used first, when the budget is exceeded. Adapters
    that are all in use may exceed it until one of their requests ends.
    """

    def __init__(self, folders: LoRAFolders, loader: Loader, budget_bytes: int) -> None:
        self._folders = folders
        self._loader = loader
        self._budget = budget_bytes
        self._adapters: dict[_Key, Adapter] = {}  # least recently used first
        self._users: Counter[_Key] = Counter()

    @property
    def nbytes(self) -> int:
        """Bytes of all adapters in memory."""
        return sum(adapter.nbytes for adapter in self._adapters.values())

    def listing(self) -> dict[str, dict[str, Any]]:
        """What is in memory, by name, and by the noise it is for unless that is all."""
        return {
            key[0] if key[2] == "all" else f"{key[0]} ({key[2]} noise)": {
                "bytes": adapter.nbytes,
                "requests": self._users[key],
                "ignored_keys": len(adapter.ignored),
            }
            for key, adapter in self._adapters.items()
        }

    @contextmanager
    def lent(self, wanted: Sequence[Mapping[str, Any]], find: Find) -> Iterator[tuple[Lent, ...]]:
        """The adapters a request asks for, kept in memory as long as it runs.

        Args:
            wanted: see `LoRA`; where it is known, also the `revision` of each.
            find: gives the modules that adapters are for.

        Raises:
            InvalidRequest: an adapter is not here or does not belong to the model.
            ModelLoadFailed: its file is broken, or larger than the budget.
            JobFailed: its file is no longer the one that was asked for.
        """
        held: list[_Key] = []
        try:
            lent = []
            for lora in wanted:
                if lora["strength"]:
                    key = self._take(lora, find)
                    held.append(key)
                    lent.append(Lent(self._adapters[key], lora["strength"]))
            yield tuple(lent)
        finally:
            self._users.subtract(held)
            self._evict()

    def _take(self, lora: Mapping[str, Any], find: Find) -> _Key:
        name, noise = lora["name"], lora.get("noise", "all")
        file = self._folders.find(name)
        key = (name, file.revision, noise)
        if lora.get("revision") not in (None, file.revision):
            raise JobFailed(
                f"The file of LoRA {name!r} has changed since the job was submitted; submit it "
                "again to use the new one.",
                field="loras",
                value=name,
            )
        if key not in self._adapters:
            adapter = self._load(file, find, noise)
            # another request may have loaded it while this one waited for a module
            self._adapters.setdefault(key, adapter)
        self._adapters[key] = self._adapters.pop(key)  # the most recently used
        self._users[key] += 1
        self._evict()
        return key

    def _load(self, file: LoRAFile, find: Find, noise: Noise) -> Adapter:
        size = file.path.stat().st_size
        if size > self._budget:
            raise ModelLoadFailed(
                f"LoRA {file.name!r} has {size >> 20} MB, but all LoRAs of this model may have "
                f"{self._budget >> 20} MB together. Raise the model's lora_mb.",
                field="loras",
                value=file.name,
            )
        adapter = self._loader.load(file, find, noise)
        log.info("loaded LoRA %s, %d KB", file.name, adapter.nbytes >> 10)
        return adapter

    def _evict(self) -> None:
        idle = [key for key in self._adapters if not self._users[key]]
        while idle and self.nbytes > self._budget:
            log.info("LoRA %s makes room for others", idle[0][0])
            del self._adapters[idle.pop(0)]


def adapter_shelf(entry: ModelEntry, modules: Collection[str]) -> AdapterShelf:
    """The shelf of a configured model.

    Args:
        entry: the model.
        modules: names of its modules.
    """
    pipeline = str(entry.checkpoint.index.get("_class_name", ""))
    loader = AdapterLoader(pipeline, modules, torch.device(entry.device))
    return AdapterShelf(entry.loras, loader, entry.lora_bytes)
