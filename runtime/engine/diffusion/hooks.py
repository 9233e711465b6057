"""Hooks of diffusers on a module, for the length of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

Install = Callable[[torch.nn.Module], None]
"""Puts hooks on a module or on parts of it."""


@contextmanager
def hooked(module: torch.nn.Module, install: Install) -> Iterator[None]:
    """What `install` puts on the module is there inside, and gone afterwards, come what may."""
    before = hooks_on(module)
    try:
        install(module)
        yield
    finally:
        for path, name in hooks_on(module) - before:
            registry = module.get_submodule(path)._diffusers_hook
            registry.remove_hook(name, recurse=False)  # type: ignore[operator, union-attr]


def adds_hooks(module: torch.nn.Module, install: Install) -> bool:
    """Whether `install` puts anything on the module; it is taken off again."""
    before = hooks_on(module)
    with hooked(module, install):
        return hooks_on(module) != before


def hooks_on(module: torch.nn.Module) -> set[tuple[str, str]]:
    """Path of the part and name of each hook on a module."""
    return {
        (path, name)
        for path, part in module.named_modules()
        for name in getattr(getattr(part, "_diffusers_hook", None), "hooks", ())
    }
