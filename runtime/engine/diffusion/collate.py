"""Merging calls by their spec, running them as one, and splitting the result.

Three collators, best first: packed (rows of any shape, concatenated as tokens), grouped (equal
shapes stacked, ragged text padded with its mask) and single. Which of them may run a call
follows from its spec and from the best mode the request allows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.nn import functional

from ...models.call_spec import CallSpec
from .call import ModuleCall
from .settings import MergeMode


class Collator(Protocol):
    """Decides which calls may share a forward, and runs them."""

    def describe(self, call: ModuleCall) -> None:
        """Fill in the call's key, rows and tokens."""

    def run(self, calls: Sequence[ModuleCall]) -> list[Any]:
        """One forward pass for calls of equal key; each call's own result, in order."""


def collator_for(mode: MergeMode, spec: CallSpec | None) -> Collator:
    """The best collator a call may use."""
    if spec is None or mode == "single":
        return _SINGLE
    return _PACKED if mode == "packed" and spec.packed is not None else _GROUPED


def run_merged(calls: Sequence[ModuleCall]) -> list[Any]:
    """Run calls of equal key as one forward pass, or a single call as its caller wrote it."""
    if len(calls) == 1:
        return [calls[0].run_alone()]
    call = calls[0]
    return collator_for(call.request.mode, call.spec).run(calls)


class Single:
    """Never merges."""

    def describe(self, call: ModuleCall) -> None:
        """See `Collator`."""
        call.rows, call.tokens = _size(call)
        if call.spec is not None:
            call.arguments = {**call.arguments, **call.spec.fixed}

    def run(self, calls: Sequence[ModuleCall]) -> list[Any]:
        """See `Collator`; runs one after the other."""
        return [call.run_alone() for call in calls]


class Grouped:
    """Stacks rows of equal shape; pads ragged text on the right, with its mask."""

    def describe(self, call: ModuleCall) -> None:
        """See `Collator`."""
        assert call.spec is not None
        call.arguments = {**call.arguments, **call.spec.fixed}
        call.rows, call.tokens = _size(call)
        parts = tuple(
            (name, _fact(call.spec, name, value))
            for name, value in sorted(call.arguments.items())
            if name not in call.spec.pad.values()
        )
        call.key = (id(call.module), call.method, "grouped", parts)

    def run(self, calls: Sequence[ModuleCall]) -> list[Any]:
        """See `Collator`."""
        spec = calls[0].spec
        assert spec is not None
        merged = merge(spec, [call.arguments for call in calls])
        name = calls[0].method[1]
        module = calls[0].module
        result = (module if name == "__call__" else getattr(module, name))(**merged)
        lengths = [call.arguments[spec.trim].shape[1] if spec.trim else None for call in calls]
        return split(result, [call.rows for call in calls], lengths)


class Packed:
    """Rows of any shape in one forward, by the family's own varlen forward."""

    def describe(self, call: ModuleCall) -> None:
        """See `Collator`; a call the packed forward does not accept is grouped instead."""
        assert call.spec is not None
        assert call.spec.packed is not None
        if not call.spec.packed.accepts(call.module, call.arguments):
            _GROUPED.describe(call)
            return
        call.rows, call.tokens = _size(call)
        call.key = (id(call.module), call.method, "packed", _dtypes(call.arguments))

    def run(self, calls: Sequence[ModuleCall]) -> list[Any]:
        """See `Collator`."""
        call = calls[0]
        assert call.spec is not None
        assert call.spec.packed is not None
        if "packed" not in (call.key if isinstance(call.key, tuple) else ()):
            return _GROUPED.run(calls)
        return call.spec.packed.run(call.module, [c.arguments for c in calls])


_SINGLE, _GROUPED, _PACKED = Single(), Grouped(), Packed()


def merge(spec: CallSpec, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Arguments of one call that does the work of all."""
    padded = [dict(call) for call in calls]
    for text, mask in spec.pad.items():
        _pad_right(padded, text, mask)
    merged = dict(padded[0])
    for name in spec.rows | spec.pad.keys() | set(spec.pad.values()):
        if merged.get(name) is not None:
            merged[name] = torch.cat([call[name] for call in padded])
    for name in spec.lists:
        if merged.get(name) is not None:
            merged[name] = [entry for call in padded for entry in call[name]]
    return merged


def split(result: Any, rows: Sequence[int], lengths: Sequence[int | None]) -> list[Any]:
    """Cut a merged result back into one result per call.

    Args:
        result: tensors, or containers and output classes of them, with rows on dim 0.
        rows: rows of each call.
        lengths: cut dim 1 back to this length where a call was padded; None leaves it.

    Raises:
        TypeError: the result holds something that has no rows.
    """
    starts = [sum(rows[:i]) for i in range(len(rows))]
    return [
        _cut(result, slice(start, start + n), sum(rows), length)
        for start, n, length in zip(starts, rows, lengths, strict=True)
    ]


def _cut(value: Any, where: slice, total: int, length: int | None) -> Any:
    if isinstance(value, torch.Tensor):
        if value.ndim == 0 or value.shape[0] != total:
            raise TypeError(f"a result of shape {tuple(value.shape)} has no {total} rows")
        own = value[where]
        return own if length is None or own.ndim < 2 else own[:, :length]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_cut(item, where, total, length) for item in value)
    if isinstance(value, dict):  # transformers' and diffusers' output classes are dicts
        kept = {k: _cut(v, where, total, length) for k, v in value.items()}
        return type(value)(**kept)
    if isinstance(getattr(value, "parameters", None), torch.Tensor):  # a VAE's posterior
        return type(value)(value.parameters[where], getattr(value, "deterministic", False))
    raise TypeError(f"a result of type {type(value).__name__} cannot be split into rows")


def _pad_right(calls: Sequence[dict[str, Any]], text: str, mask: str) -> None:
    """Pad `text` on dim 1 to the longest, in place, making masks where padding needs them."""
    longest = max(call[text].shape[1] for call in calls)
    ragged = any(call[text].shape[1] < longest for call in calls)
    if not ragged and all(call.get(mask) is None for call in calls):
        return
    for call in calls:
        value, own_mask = call[text], call.get(mask)
        missing = longest - value.shape[1]
        if own_mask is None:
            own_mask = torch.ones(value.shape[:2], dtype=torch.bool, device=value.device)
        call[mask] = functional.pad(own_mask, (0, missing))
        call[text] = functional.pad(value, (0, 0) * (value.ndim - 2) + (0, missing))


def _fact(spec: CallSpec, name: str, value: Any) -> Hashable:
    """What must be equal between two calls for them to merge, for one argument."""
    if isinstance(value, torch.Tensor) and name in spec.pad:
        return "padded", tuple(value.shape[2:]), value.dtype
    if isinstance(value, torch.Tensor) and name in spec.rows:
        return "rows", tuple(value.shape[1:]), value.dtype
    if isinstance(value, list) and name in spec.lists and all(v == value[0] for v in value):
        return "list", repr(value[0])
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return "empty" if value == {} else ("same", id(value))


def _dtypes(arguments: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    return tuple(
        sorted((n, str(v.dtype)) for n, v in arguments.items() if isinstance(v, torch.Tensor))
    )


def _size(call: ModuleCall) -> tuple[int, int]:
    """Rows and tokens of a call: of its primary argument, or of its first tensor."""
    arguments = call.arguments
    primary = arguments.get(call.spec.primary) if call.spec is not None else None
    if not isinstance(primary, torch.Tensor):
        tensors = (v for v in arguments.values() if isinstance(v, torch.Tensor) and v.ndim)
        primary = next(tensors, None)
    if primary is None:
        return 1, 1
    rows = primary.shape[0]
    if primary.ndim <= 3:  # [rows, length(, channels)]
        return rows, rows * (primary.shape[1] if primary.ndim > 1 else 1)
    return rows, rows * int(primary[0, 0].numel())  # [rows, channels, (frames,) height, width]
