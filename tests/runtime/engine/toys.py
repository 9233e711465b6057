"""A toy model for the engine's own tests: a linear layer called in a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from omnistage.runtime.engine.core import EngineEvent, StageTask
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.engine.diffusion.settings import EngineSettings
from omnistage.runtime.models.call_spec import CallSpec
from omnistage.runtime.models.program import Bundle, LoadedModel, StageContext


class Layer(torch.nn.Module):
    """Counts its forwards and remembers their rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(4) * 0.5)
        self.rows: list[int] = []

    def forward(self, x: torch.Tensor, return_dict: bool = True) -> Any:
        self.rows.append(x.shape[0])
        if not torch.isfinite(x).all():
            raise ValueError("x is not finite")
        return {"y": x @ self.weight} if return_dict else (x @ self.weight,)


SPEC = CallSpec(primary="x", rows=frozenset({"x"}), deferred=True)


def halve(
    context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
) -> dict[str, Bundle]:
    """Each step halves x; a pair of calls a step, of which the second is a decoy."""
    x = torch.full((1, 4), float(params.get("value", 1.0)))
    layer = context.module("layer")
    context.begin_steps(params["steps"])
    for _ in range(params["steps"]):
        (half,) = layer(x, return_dict=False)
        (other,) = layer(x * 2, return_dict=False)
        x = half + other * 0
        context.end_step()
    return {"x": Bundle({"x": x}, {"kind": "toy"})}


def follow(
    context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
) -> dict[str, Bundle]:
    """Halves what comes, part by part, with a deferred call open while it waits."""
    layer, done = context.module("layer"), []
    (early,) = layer(torch.ones(1, 4), return_dict=False)
    for part in context.parts("x"):
        (half,) = layer(part.tensors["x"], return_dict=False)
        done.append(half + early * 0)
        context.emit(x=Bundle({"x": done[-1]}, {"kind": "toy"}))
    return {"x": Bundle({"x": torch.cat(done)}, {"kind": "toy"})}


def broken(
    context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
) -> dict[str, Bundle]:
    """Fails between two calls."""
    context.module("layer")(torch.ones(1, 4))
    raise RuntimeError("the program has a bug")


def toy_engine(
    layer: Layer | None = None, *, load: Callable[[], LoadedModel] | None = None, **settings: Any
) -> DiffusionEngine:
    """An engine that serves the toy as model `toy`, and whose clock tells a second more each time.

    So every forward takes as long, and who goes next does not depend on the machine.
    """
    module = layer or Layer()
    model = LoadedModel(
        modules={"layer": module},
        specs={("layer", "__call__"): SPEC},
        programs={"halve": halve, "follow": follow, "broken": broken},
        denoiser=("layer", "__call__"),
    )
    settings.setdefault("profile", False)
    loads = {"toy": load or (lambda: model)}
    return DiffusionEngine(loads, EngineSettings(**settings), clock=itertools.count().__next__)


def toy_task(name: str, stage: str = "halve", **params: Any) -> StageTask:
    """A task for the toy."""
    return StageTask(name, "toy", stage, {"steps": 3, **params})


def run(engine: DiffusionEngine) -> dict[str, list[EngineEvent]]:
    """Step until idle; events by task."""
    events: dict[str, list[EngineEvent]] = {}
    while engine.busy:
        for event in engine.step():
            events.setdefault(event.task, []).append(event)
        engine.check_integrity()
    return events
