"""Adding adapters to the layers of a module for one forward pass, to each row its own.

While it lasts, forward hooks on the adapted layers add what the adapters change; before and after
it the module is as it was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import nn

from .lora_load import Adapter, LayerChange
from .lora_shelf import Lent

Loras = tuple[Lent, ...]

Hook = Callable[[Any, tuple[Any, ...], torch.Tensor], torch.Tensor]


@runtime_checkable
class RowMap(Protocol):
    """A packed forward that can say which row each entry on a layer's dim 0 belongs to."""

    def row_map(
        self, module: Any, calls: Sequence[Mapping[str, Any]]
    ) -> Callable[[str], torch.Tensor]:
        """By layer name: `[entries]`, indices of rows in the order of the calls."""


_layers: WeakKeyDictionary[nn.Module, dict[str, nn.Module]] = WeakKeyDictionary()
"""Layers of modules by name: finding each anew would cost milliseconds a forward."""


@contextmanager
def same_for_all(module: nn.Module, name: str, loras: Loras) -> Iterator[None]:
    """Adapters for everything a module computes, exactly as PEFT's layers would add them.

    Args:
        module: what is about to be called.
        name: its name in its model.
        loras: the adapters.
    """
    parts: dict[str, list[tuple[LayerChange, float]]] = {}
    for lent in loras:
        for layer, change in lent.adapter.changes.get(name, {}).items():
            parts.setdefault(layer, []).append((change, change.scale(lent.strength)))
    with _hooked(module, {layer: _all_rows(own) for layer, own in parts.items()}):
        yield


@contextmanager
def row_by_row(
    module: nn.Module,
    name: str,
    rows: Sequence[Loras],
    row_map: Callable[[str], torch.Tensor] | None = None,
) -> Iterator[None]:
    """Each row its own adapters.

    Args:
        module: what is about to be called.
        name: its name in its model.
        rows: the adapters of each row.
        row_map: which row each entry on a layer's dim 0 belongs to; None: entries are rows.
    """
    with _hooked(module, _row_hooks(name, rows, row_map)):
        yield


@contextmanager
def _hooked(module: nn.Module, hooks: Mapping[str, Hook]) -> Iterator[None]:
    layers = _layers.get(module)
    if layers is None:
        layers = _layers[module] = dict(module.named_modules())
    handles = [layers[name].register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _all_rows(parts: Sequence[tuple[LayerChange, float]]) -> Hook:
    def hook(layer: Any, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        x, dtype = args[0], out.dtype
        for change, scale in parts:
            x = x.to(_dtype(change))
            out = out + change.up(change.down(x)) * scale
        return out.to(dtype)

    return hook


def _row_hooks(
    module: str, rows: Sequence[Loras], row_map: Callable[[str], torch.Tensor] | None
) -> dict[str, Hook]:
    """A hook for every layer that some row's adapters change."""
    strengths: dict[Adapter, list[float]] = {}
    for i, loras in enumerate(rows):
        for lent in loras:
            strengths.setdefault(lent.adapter, [0.0] * len(rows))[i] = lent.strength
    parts: dict[str, list[Part]] = {}
    known: dict[Hashable, Part] = {}
    for adapter, by_row in strengths.items():
        for layer, change in adapter.changes.get(module, {}).items():
            owners = None if row_map is None else row_map(layer)
            key = (adapter, id(owners), change.alpha, change.divisor)
            if key not in known:  # most layers of an adapter agree
                known[key] = _part(change, by_row, owners)
            parts.setdefault(layer, []).append(replace(known[key], change=change))
    return {layer: _some_rows(own) for layer, own in parts.items()}


@dataclass(frozen=True, slots=True)
class Part:
    """A change of a layer for some of the entries on its dim 0.

    Attributes:
        entries: how many there are.
        where: those that are changed.
        scales: of each of these.
    """

    change: LayerChange
    entries: int
    where: slice | torch.Tensor
    scales: torch.Tensor


def _part(change: LayerChange, strengths: Sequence[float], owners: torch.Tensor | None) -> Part:
    scales = torch.tensor([change.scale(strength) for strength in strengths])
    if owners is not None:
        scales = scales[owners.cpu()]
    where = scales.nonzero()[:, 0]
    first, last = int(where[0]), int(where[-1])
    weight: Any = change.down.weight
    return Part(
        change,
        len(scales),
        slice(first, last + 1) if last - first + 1 == len(where) else where.to(weight.device),
        scales[where].to(weight),
    )


def _some_rows(parts: Sequence[Part]) -> Hook:
    def hook(layer: Any, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        x, entries = args[0], parts[0].entries
        if x.shape[0] != entries or out.shape[0] != entries:
            raise RuntimeError(
                f"a layer with adapters got {x.shape[0]} entries where its rows have {entries}"
            )
        for part in parts:
            change = part.change
            added = change.up(change.down(x[part.where].to(_dtype(change))))
            scales = part.scales.view(-1, *[1] * (added.ndim - 1))
            # in place: what a linear layer or a convolution returns is nobody else's
            if isinstance(part.where, slice):
                out[part.where].add_((added * scales).to(out.dtype))
            else:
                out.index_add_(0, part.where, (added * scales).to(out.dtype))
        return out

    return hook


def _dtype(change: LayerChange) -> torch.dtype:
    weight: Any = change.down.weight
    return weight.dtype
