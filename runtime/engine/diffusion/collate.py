"""Merging calls by their spec, running them as one, and splitting the result.

Three collators, best first: packed (rows of any shape, concatenated as tokens), grouped (equal
shapes stacked, ragged text padded with its mask) and single. Which of them may run a call
follows from its spec and from the best mode the request allows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
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
        call.key = None
        try:
            _check_padded(call.spec, call.arguments)
            parts = tuple(
                (name, _fact(call.spec, name, value, call.rows))
                for name, value in sorted(call.arguments.items())
                if name not in call.spec.pad.values()
            )
        except _RunsAlone:
            return
        call.key = (id(call.module), call.method, "grouped", parts)

    def run(self, calls: Sequence[ModuleCall]) -> list[Any]:
        """See `Collator`."""
        spec = calls[0].spec
        assert spec is not None
        rows = [call.rows for call in calls]
        merged = merge(spec, [call.arguments for call in calls], rows)
        name = calls[0].method[1]
        module = calls[0].module
        result = (module if name == "__call__" else getattr(module, name))(**merged)
        lengths = [call.arguments[spec.trim].shape[1] if spec.trim else None for call in calls]
        return split(result, rows, lengths, ragged=bool(spec.ragged_lists))


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


def merge(
    spec: CallSpec, calls: Sequence[Mapping[str, Any]], rows: Sequence[int]
) -> dict[str, Any]:
    """Arguments of one call that does the work of all.

    Args:
        spec: the spec of the calls.
        calls: the arguments of each.
        rows: rows of each call.
    """
    padded = [dict(call) for call in calls]
    for text, mask in spec.pad.items():
        _pad_right(padded, text, mask)
    merged = dict(padded[0])
    for name in spec.rows | spec.pad.keys() | {mask for mask in spec.pad.values() if mask}:
        if merged.get(name) is not None:
            merged[name] = _stack([call[name] for call in padded], rows)
    for name in spec.joined:
        if merged.get(name) is not None:
            merged[name] = torch.cat([call[name] for call in padded])
    for name in spec.lists | spec.ragged_lists:
        if merged.get(name) is not None:
            merged[name] = [entry for call in padded for entry in call[name]]
    return merged


def split(
    result: Any, rows: Sequence[int], lengths: Sequence[int | None], *, ragged: bool = False
) -> list[Any]:
    """Cut a merged result back into one result per call.

    Args:
        result: tensors, or containers and output classes of them, with rows on dim 0.
        rows: rows of each call.
        lengths: cut dim 1 back to this length where a call was padded; None leaves it.
        ragged: lists in the result hold one entry per row.

    Raises:
        TypeError: the result holds something that has no rows.
    """
    starts = [sum(rows[:i]) for i in range(len(rows))]
    return [
        _cut(result, _Rows(slice(start, start + n), sum(rows), length, ragged))
        for start, n, length in zip(starts, rows, lengths, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Rows:
    """One call's part of a merged result; see `split`."""

    where: slice
    total: int
    length: int | None
    ragged: bool


def _cut(value: Any, own: _Rows) -> Any:
    if isinstance(value, torch.Tensor):
        if value.ndim == 0 or value.shape[0] != own.total:
            raise TypeError(f"a result of shape {tuple(value.shape)} has no {own.total} rows")
        rows = value[own.where]
        return rows if own.length is None or rows.ndim < 2 else rows[:, : own.length]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if own.ragged and isinstance(value, list):
        if len(value) != own.total:
            raise TypeError(f"a result of {len(value)} entries has no {own.total} rows")
        return value[own.where]
    if isinstance(value, (list, tuple)):
        return type(value)(_cut(item, own) for item in value)
    if isinstance(value, dict):  # transformers' and diffusers' output classes are dicts
        return type(value)(**{k: _cut(v, own) for k, v in value.items()})
    if isinstance(getattr(value, "parameters", None), torch.Tensor):  # a VAE's posterior
        return type(value)(value.parameters[own.where], getattr(value, "deterministic", False))
    raise TypeError(f"a result of type {type(value).__name__} cannot be split into rows")


def _stack(values: Sequence[Any], rows: Sequence[int]) -> Any:
    """The same argument of several calls, row below row, inside its containers."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([_expand(value, n) for value, n in zip(values, rows, strict=True)])
    if isinstance(first, dict):
        return {key: _stack([value[key] for value in values], rows) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)(_stack(items, rows) for items in zip(*values, strict=True))
    return first


def _expand(value: torch.Tensor, rows: int) -> torch.Tensor:
    """A value that stands for all rows, once for each of them."""
    value = value.reshape(1) if value.ndim == 0 else value
    return value if value.shape[0] == rows else value.expand(rows, *value.shape[1:])


def _pad_right(calls: Sequence[dict[str, Any]], text: str, mask: str | None) -> None:
    """Pad `text` on dim 1 to the longest, in place, making masks where padding needs them."""
    longest = max(call[text].shape[1] for call in calls)
    ragged = any(call[text].shape[1] < longest for call in calls)
    if not ragged and (mask is None or all(call.get(mask) is None for call in calls)):
        return
    for call in calls:
        value = call[text]
        missing = longest - value.shape[1]
        if mask is not None:
            own_mask = call.get(mask)
            if own_mask is None:
                own_mask = torch.ones(value.shape[:2], dtype=torch.bool, device=value.device)
            call[mask] = functional.pad(own_mask, (0, missing))
        call[text] = functional.pad(value, (0, 0) * (value.ndim - 2) + (0, missing))


class _RunsAlone(Exception):
    """A call that cannot share a forward."""


def _check_padded(spec: CallSpec, arguments: Mapping[str, Any]) -> None:
    """Check that ragged text and its masks are what `_pad_right` can pad.

    Raises:
        _RunsAlone: they are not.
    """
    for text, mask in spec.pad.items():
        value, own_mask = arguments.get(text), arguments.get(mask) if mask else None
        if not isinstance(value, torch.Tensor):
            raise _RunsAlone
        if own_mask is not None and own_mask.shape != value.shape[:2]:
            raise _RunsAlone


def _fact(spec: CallSpec, name: str, value: Any, rows: int) -> Hashable:
    """What must be equal between two calls for them to merge, for one argument.

    Raises:
        _RunsAlone: the argument cannot be merged at all.
    """
    flag = spec.flags[name](value) if name in spec.flags and value is not None else None
    fact: Hashable
    if value is not None and name in spec.rows:
        fact = "rows", _row_fact(value, rows)
    elif name in spec.shared:
        fact = "shared", _value_fact(value)
    elif isinstance(value, torch.Tensor) and name in spec.pad:
        fact = "padded", tuple(value.shape[2:]), value.dtype
    elif isinstance(value, torch.Tensor) and name in spec.joined:
        fact = "joined", tuple(value.shape[1:]), value.dtype
    elif (
        isinstance(value, list)
        and name in spec.ragged_lists
        and all(isinstance(v, torch.Tensor) for v in value)
    ):
        fact = "ragged", tuple(sorted({str(v.dtype) for v in value}))
    elif isinstance(value, list) and name in spec.lists and value == value[:1] * len(value):
        fact = "list", repr(value[:1])
    else:
        fact = _plain_fact(value)
    return flag, fact


def _row_fact(value: Any, rows: int) -> Hashable:
    """What rows of one tensor, or of a container of tensors, must have in common."""
    if isinstance(value, torch.Tensor):
        if value.ndim and value.shape[0] not in (1, rows):
            raise _RunsAlone
        return tuple(value.shape[1:]), value.dtype
    if isinstance(value, dict):
        return tuple((key, _row_fact(item, rows)) for key, item in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_row_fact(item, rows) for item in value)
    return _plain_fact(value)


def _value_fact(value: Any) -> Hashable:
    """The value itself, a tensor's as a hash."""
    if not isinstance(value, torch.Tensor):
        return repr(value) if isinstance(value, (list, tuple)) else _plain_fact(value)
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return tuple(value.shape), value.dtype, hash(data.tobytes())


def _plain_fact(value: Any) -> Hashable:
    """A plain value itself.

    Raises:
        _RunsAlone: anything else may hold something for each row.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value).__name__, value
    if isinstance(value, dict):
        return tuple((key, _plain_fact(item)) for key, item in sorted(value.items()))
    if isinstance(value, tuple):
        return tuple(_plain_fact(item) for item in value)
    raise _RunsAlone


def _dtypes(arguments: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    return tuple(
        sorted((n, str(v.dtype)) for n, v in arguments.items() if isinstance(v, torch.Tensor))
    )


def _size(call: ModuleCall) -> tuple[int, int]:
    """Rows and tokens of a call: of its primary argument, or of its first tensor."""
    arguments = call.arguments
    primary = arguments.get(call.spec.primary) if call.spec is not None else None
    if isinstance(primary, list):  # one tensor per row, [channels, (frames,) height, width]
        return len(primary), sum(int(row[0].numel()) for row in primary)
    if not isinstance(primary, torch.Tensor):
        tensors = (v for v in arguments.values() if isinstance(v, torch.Tensor) and v.ndim)
        primary = next(tensors, None)
    if primary is None:
        return 1, 1
    rows = primary.shape[0]
    if primary.ndim <= 3:  # [rows, length(, channels)]
        return rows, rows * (primary.shape[1] if primary.ndim > 1 else 1)
    return rows, rows * int(primary[0, 0].numel())  # [rows, channels, (frames,) height, width]
