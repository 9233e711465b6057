"""What diffusers' blocks hand to each other, as bundles that travel between stages.

A block's tensors keep their names; a list of tensors becomes `name.0`, `name.1` ...; plain
values become facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..program import Bundle

_ITEM = re.compile(r"(.+)\.(\d+)")
_DTYPE = "torch."


def to_bundle(values: Mapping[str, Any], kind: str) -> Bundle:
    """Values of a block's state as a bundle of a kind; None is left out.

    Raises:
        TypeError: a value is neither a tensor, a list of tensors nor plain.
    """
    tensors: dict[str, torch.Tensor] = {}
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif _is_tensors(value):
            tensors |= {f"{name}.{i}": tensor for i, tensor in enumerate(value)}
        elif isinstance(value, torch.dtype):
            plain[name] = str(value)
        elif value is not None:
            plain[name] = _plain(name, value)
    return Bundle(tensors, {"kind": kind, "values": plain})


def from_bundle(bundle: Bundle, names: Iterable[str]) -> dict[str, Any]:
    """The values of those names that a bundle has."""
    wanted = set(names)
    values: dict[str, Any] = {}
    lists: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in bundle.tensors.items():
        item = _ITEM.fullmatch(name)
        if item is None:
            values[name] = tensor
        else:
            lists.setdefault(item[1], {})[int(item[2])] = tensor
    values |= {name: [items[i] for i in sorted(items)] for name, items in lists.items()}
    for name, value in bundle.facts.get("values", {}).items():
        is_dtype = isinstance(value, str) and value.startswith(_DTYPE)
        values[name] = getattr(torch, value.removeprefix(_DTYPE)) if is_dtype else value
    return {name: value for name, value in values.items() if name in wanted}


def _is_tensors(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(isinstance(item, torch.Tensor) for item in value)
    )


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    raise TypeError(f"{name} is of type {type(value).__name__}, which does not travel")
