"""The contract of a call spec: what one row holds never reaches another row.

Two calls as a model's own code makes them are merged by the spec. Then each tensor argument of
the second is changed in turn: the first call's result must stay what it is alone, and the
second's must become what the changed call gives alone. An argument that a spec wrongly calls
per-row shows up as a difference; so does a missing mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from omnistage.runtime.bench.pictures import EngineRun, PictureRequest, make_engine
from omnistage.runtime.engine.diffusion import engine as engine_module
from omnistage.runtime.engine.diffusion.batch import Batch
from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.engine.diffusion.collate import run_merged
from omnistage.runtime.models.call_spec import Method
from omnistage.runtime.models.catalogue import ModelEntry

RELATIVE = 2e-5


def record_calls(
    model: ModelEntry, requests: Sequence[PictureRequest], monkeypatch: Any
) -> dict[Method, list[ModuleCall]]:
    """The first call of each method that each request makes, in the model's own code."""
    found: dict[Method, list[ModuleCall]] = {}

    class Recorder(Batch):
        def run(self) -> int:
            for call in self.calls:
                own = found.setdefault(call.method, [])
                if all(other.request.task.id != call.request.task.id for other in own):
                    own.append(call)
            return super().run()

    monkeypatch.setattr(engine_module, "pick", lambda calls, **_: Recorder([next(iter(calls))]))
    engine = make_engine(model, profile=False)
    results = EngineRun(engine, requests, model.id).run()
    assert all(result.error is None for result in results)
    monkeypatch.undo()
    return found


def check_merge(first: ModuleCall, second: ModuleCall) -> list[str]:
    """Check the contract for two calls; returns the arguments that were changed."""
    assert first.key == second.key, "the spec says these calls cannot share a forward"
    changed = []
    _compare("", first, second)
    for name, value in perturbed(second.arguments):
        _compare(name, first, replace(second, arguments={**second.arguments, name: value}))
        changed.append(name)
    return changed


def perturbed(arguments: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor argument, changed but still valid."""
    for name, value in arguments.items():
        if not isinstance(value, torch.Tensor):
            continue
        if value.is_floating_point():
            noise = torch.linspace(0.8, 1.2, value.numel()).reshape(value.shape)
            yield name, value * noise + 0.01
        elif value.dtype is not torch.bool and "mask" not in name and value.ndim > 1:
            yield name, value.roll(1, 1)


def _compare(name: str, first: ModuleCall, second: ModuleCall) -> None:
    with torch.inference_mode():
        merged = run_merged([first, second])
        alone = [first.run_alone(), second.run_alone()]
    for which, got, want in zip(("first", "second"), merged, alone, strict=True):
        for ours, theirs in zip(tensors(got), tensors(want), strict=True):
            assert ours.shape == theirs.shape
            scale = max(float(theirs.abs().max()), 1e-6)
            diff = float((ours - theirs).abs().max())
            assert diff <= RELATIVE * scale, (
                f"{first.method}: with {name or 'nothing'} changed in the second call, "
                f"the {which} differs by {diff} of {scale}"
            )


def tensors(result: Any) -> list[torch.Tensor]:
    """All float tensors of a result, however nested."""
    if isinstance(result, torch.Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, Mapping):
        return [t for value in result.values() for t in tensors(value)]
    if isinstance(result, (list, tuple)):
        return [t for value in result for t in tensors(value)]
    parameters = getattr(result, "parameters", None)
    return [parameters] if isinstance(parameters, torch.Tensor) else []
