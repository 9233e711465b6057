"""How calls of one module may share a forward pass, said declaratively.

A spec is a claim about a module's numerics. The contract tests prove it: each argument is
perturbed in one row, and no other row may change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class PackedForward(Protocol):
    """A forward pass over rows of any shape, concatenated as tokens."""

    def accepts(self, module: Any, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments can be packed."""

    def run(self, module: Any, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
        """One forward pass for all calls; returns each call's own result."""


@dataclass(frozen=True, slots=True)
class CallSpec:
    """Which arguments of a module's method are per row, shared, or ragged.

    Other arguments must be plain values, or tuples and dicts of them, and equal. A call with
    anything else that is not named here runs alone.

    Attributes:
        primary: the argument that tells rows and tokens.
        rows: tensors with one entry per row on dim 0, or containers of such tensors;
            concatenated. A tensor without dims, or with one entry, stands for all rows.
        joined: tensors with any number of entries on dim 0, in the order of the rows (all
            images of all prompts, say); concatenated.
        lists: lists with one entry per row; concatenated, all entries must be equal.
        ragged_lists: lists with one tensor per row, of any shapes; concatenated. Where a spec
            has some, lists in the result hold one entry per row, too.
        shared: tensors or plain values that all rows have in common; must be equal in value.
        flags: what the module decides once for all rows from the value of an argument, as a
            function of that value; must be equal.
        pad: ragged tensors `[rows, length, ...]` by name, with the name of the mask
            `[rows, length]` that hides what is padded on the right of dim 1; None where
            another argument tells the lengths.
        fixed: arguments set on every call, alone or merged.
        trim: cut dim 1 of the outputs back to the call's own length of this argument.
        deferred: the call returns `(tensor,)`, and may be left pending until it is used.
        packed: a varlen forward, if the family has one.
    """

    primary: str
    rows: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    ragged_lists: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    flags: Mapping[str, Callable[[Any], Hashable]] = field(default_factory=dict)
    pad: Mapping[str, str | None] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    trim: str | None = None
    deferred: bool = False
    packed: PackedForward | None = None


Method = tuple[str, str]
"""A module's name in its model, and the method that is called (`__call__`, `decode` ...)."""

SpecTable = Mapping[Method, CallSpec]
"""Specs of a model's modules; a method that is not in it interleaves and never merges."""

Preview = Callable[[Mapping[str, Any], Any], Any]
"""(a denoiser call's arguments, its result) -> estimated clean latents `[rows, C, h, w]`."""
