"""LoRA per request: which calls with adapters share a forward, and how each row gets its own."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from ...models.lora_load import Adapter
from ...models.lora_rows import RowMap, row_by_row, same_for_all
from ...models.lora_shelf import Lent
from .call import ModuleCall
from .collate import run_merged

log = logging.getLogger(__name__)

_EXACT = 0.02
"""Share of an adapter's effect that mixing may add as error: a row that gets the adapter of another
is off by about all of it."""

_ROUNDING = 3.0
"""Or this many times the difference that merging makes without any adapters."""


def keep_apart(call: ModuleCall) -> None:
    """Let a call share forwards with the same adapters only, unless mixing them is known to work.

    What is not known yet is tried when the call runs; see `try_mixing`.
    """
    kind = _kind(call)
    if call.loras and not all(lent.adapter.mixes.get(kind) for lent in call.loras):
        call.key = None if call.key is None else (*_parts(call), call.loras)


def applied(calls: Sequence[ModuleCall]) -> AbstractContextManager[None]:
    """The adapters of calls that share a forward, on the rows of each."""
    first, name = calls[0], calls[0].method[0]
    if not any(call.loras for call in calls):
        return nullcontext()
    if all(call.loras == first.loras for call in calls):
        return same_for_all(first.module, name, first.loras)
    rows = [call.loras for call in calls for _ in range(call.rows)]
    if "packed" not in _parts(first):
        return row_by_row(first.module, name, rows)
    packed: Any = first.spec and first.spec.packed
    row_map = packed.row_map(first.module, [call.arguments for call in calls])
    return row_by_row(first.module, name, rows, row_map)


def try_mixing(call: ModuleCall) -> None:
    """Find out whether the call's adapters may be mixed with others in one forward.

    The call runs with each adapter and without, alone and as two calls that share a forward. It
    has to be the same, or else the layers' dim 0 is not what it seems.
    """
    kind = _kind(call)
    for lent in call.loras:
        if call.key is not None and kind not in lent.adapter.mixes:
            mixes = lent.adapter.mixes[kind] = _mixes(call, lent.adapter)
            log.info("LoRA %s %s in %s", lent.adapter.name, "mixes" if mixes else "is apart", kind)


def _mixes(call: ModuleCall, adapter: Adapter) -> bool:
    if "packed" in _parts(call) and not (call.spec and isinstance(call.spec.packed, RowMap)):
        return False
    calls = [replace(call, loras=loras) for loras in ((Lent(adapter, 1.0),), ())]
    try:
        alone = [one.run_alone() for one in calls]
        with applied(calls):
            together = run_merged(calls)
        error = max(map(_difference, alone, together))
        if error <= _EXACT * _difference(*alone):
            return True
        plain = run_merged([calls[1], calls[1]])[1]
        return error <= _ROUNDING * _difference(alone[1], plain)
    except Exception as error:  # noqa: BLE001 - the border to the model's code
        log.info("LoRA %s cannot be mixed with others: %s", adapter.name, error)
        return False


def _kind(call: ModuleCall) -> Hashable:
    return (call.method, *_parts(call)[2:3])


def _parts(call: ModuleCall) -> tuple[Any, ...]:
    return call.key if isinstance(call.key, tuple) else ()


def _difference(a: Any, b: Any) -> float:
    """The largest between two results."""
    return max(
        (float((x - y).abs().max()) for x, y in zip(_tensors(a), _tensors(b), strict=True)),
        default=0.0,
    )


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        if result.is_floating_point() and result.numel():
            yield result.float()
    elif isinstance(result, dict):  # output classes, too
        yield from _tensors(list(result.values()))
    elif isinstance(result, (list, tuple)):
        for item in result:
            yield from _tensors(item)
