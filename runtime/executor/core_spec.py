"""How to build an engine core, as plain data that can cross a process border."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ..engine.core import EngineCore


@dataclass(frozen=True, slots=True)
class CoreSpec:
    """An entry point and the JSON it is called with.

    Attributes:
        entry: `module:function`; the function takes `config` and returns an `EngineCore`.
        engine: the engine's name.
    """

    entry: str
    config: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "engine"

    def build(self) -> EngineCore:
        """Import the entry point and build the core (slow: imports torch)."""
        return cast(EngineCore, entry_point(self.entry)(self.config))

    def to_json(self) -> dict[str, Any]:
        """Wire form."""
        return {"entry": self.entry, "config": dict(self.config), "engine": self.engine}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CoreSpec:
        """Read the wire form."""
        return cls(body["entry"], body["config"], body["engine"])


def entry_point(name: str) -> Callable[..., Any]:
    """The function that `module:function` names; imports the module."""
    module, _, function = name.partition(":")
    return cast(Callable[..., Any], getattr(importlib.import_module(module), function))
