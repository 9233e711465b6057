"""The engines of a runtime: one for all diffusion, one for each autoregressive stage."""

from __future__ import annotations

from collections.abc import Callable

from ..config import Config
from ..executor import ar, diffusion
from ..executor.core_spec import CoreSpec
from ..executor.executor import Executor
from ..executor.group import EngineGroup
from ..executor.inline import InlineExecutor
from ..executor.process import ProcessExecutor
from ..models.catalogue import Catalogue

_EXECUTORS: dict[str, Callable[[CoreSpec], Executor]] = {
    "process": ProcessExecutor,
    "inline": InlineExecutor,
}


def build_engines(config: Config, catalogue: Catalogue) -> EngineGroup:
    """The engines as configured; an AR stage's is started when it is first needed."""
    host = _EXECUTORS[config.engine.executor]

    def make(engine: str) -> Executor:
        if engine == "diffusion":
            return host(diffusion.core_spec(config.engine.diffusion, catalogue.entries()))
        model, stage = engine.removeprefix("ar/").rsplit("/", 1)
        return host(ar.core_spec(engine, config.engine.ar, catalogue[model], stage))

    idle_s = config.engine.ar.idle_unload_s or None
    return EngineGroup(make, eager=("diffusion",), idle_s=idle_s)
