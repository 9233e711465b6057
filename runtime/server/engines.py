"""The engines of a runtime: one for all diffusion, one for each autoregressive stage."""

from __future__ import annotations

from ..config import Config
from ..executor import ar, diffusion
from ..executor.child import start_worker
from ..executor.executor import Executor
from ..executor.forked import ForkServer
from ..executor.group import EngineGroup
from ..executor.inline import InlineExecutor
from ..executor.process import ProcessExecutor
from ..models.catalogue import Catalogue


def build_engines(config: Config, catalogue: Catalogue) -> EngineGroup:
    """The engines as configured; an AR stage's is started when it is first needed."""
    inline = config.engine.executor == "inline"
    fork_server = ForkServer(ar.PRELOAD)

    def make(engine: str) -> Executor:
        if engine == "diffusion":
            start = start_worker
            spec = diffusion.core_spec(config.engine.diffusion, catalogue.entries())
        else:
            start = fork_server.start_worker
            model, stage = engine.removeprefix("ar/").rsplit("/", 1)
            spec = ar.core_spec(engine, config.engine.ar, catalogue[model], stage)
        return InlineExecutor(spec) if inline else ProcessExecutor(spec, start=start)

    idle_s = config.engine.ar.idle_unload_s or None
    return EngineGroup(make, eager=("diffusion",), idle_s=idle_s, on_stop=fork_server.stop)
