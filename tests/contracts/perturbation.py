"""The contract of a call spec: what one row holds never reaches another row.

Two calls as a model's own code makes them are merged by the spec. Then each tensor of the second
is changed in turn, also those inside containers: the first call's result must stay what it is
alone, and the second's must become what the changed call gives alone. An argument that a spec
wrongly calls per-row shows up as a difference; so does a missing mask. A change of what all rows
share must keep the calls apart, and `check_needed` proves that it has to.
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
from omnistage.runtime.engine.diffusion.collate import collator_for, run_merged
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


def check_merge(
    first: ModuleCall, second: ModuleCall, *, layout: frozenset[str] = frozenset()
) -> list[str]:
    """Check the contract for two calls; returns the arguments that were changed.

    Args:
        first, second: the calls.
        layout: arguments that cannot change without others, and are left as they are.
    """
    assert first.key is not None
    assert first.key == second.key, "the spec says these calls cannot share a forward"
    assert first.spec is not None
    packed = isinstance(first.key, tuple) and "packed" in first.key  # each row brings its own
    compare("nothing", first, second)
    changed = []
    for name, arguments in perturbed(second.arguments):
        if name in layout:
            continue
        other = described(replace(second, arguments=arguments))
        if other.key == first.key:
            assert packed or name not in first.spec.shared, f"{name}: its value is not compared"
            compare(name, first, other)
        else:
            assert name in first.spec.shared | first.spec.flags.keys()
        changed.append(name)
    return changed


def check_needed(name: str, first: ModuleCall, second: ModuleCall) -> None:
    """Check that the calls, which differ in a shared or flagged argument, must not merge.

    Without the claim they would, and then the contract finds a difference or the module fails.
    """
    assert first.key != second.key
    with torch.inference_mode():
        second.run_alone()
    try:
        compare(name, weakened(first, name), weakened(second, name))
    except (AssertionError, RuntimeError, ValueError, IndexError):
        return
    raise AssertionError(
        f"{first.method}: rows may well differ in {name}; the spec keeps them apart"
    )


def weakened(call: ModuleCall, name: str) -> ModuleCall:
    """The call with a spec that takes a shared or flagged argument for one that is per row."""
    spec = call.spec
    assert spec is not None
    flags = {key: flag for key, flag in spec.flags.items() if key != name}
    rows, shared = spec.rows | {name}, spec.shared - {name}
    return replace(call, spec=replace(spec, rows=rows, shared=shared, flags=flags))


def described(call: ModuleCall) -> ModuleCall:
    """The same call, with its key anew."""
    twin = replace(call, key=None)
    collator_for(call.request.mode, call.spec).describe(twin)
    return twin


def perturbed(arguments: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All arguments with one tensor changed but still valid, and the changed argument's name."""
    for name, value in arguments.items():
        for changed in _changed(name, value):
            yield name, {**arguments, name: changed}


def _changed(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield from _changed_tensor(name, value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from ({**value, key: changed} for changed in _changed(name, item))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            for changed in _changed(name, item):
                yield type(value)([*value[:i], changed, *value[i + 1 :]])


def _changed_tensor(name: str, value: torch.Tensor) -> Iterator[torch.Tensor]:
    if value.ndim == 2 and (value.dtype is torch.bool or "mask" in name):
        visible = value != 0
        if bool((visible.sum(1) > 1).all()):  # hide the last token that is visible
            last = visible.cumsum(1).argmax(1, keepdim=True)
            yield value.scatter(1, last, torch.zeros_like(last, dtype=value.dtype))
    elif value.is_floating_point():
        noise = torch.linspace(0.8, 1.2, value.numel()).reshape(value.shape)
        yield value * noise + 0.01
    elif value.ndim:
        yield value.roll(1, min(value.ndim - 1, 1))


def compare(name: str, first: ModuleCall, second: ModuleCall) -> None:
    """Check that two calls get in one forward what each gets alone.

    Raises:
        AssertionError: one differs; the message names `name`, which was changed.
    """
    with torch.inference_mode():
        merged = run_merged([first, second])
        alone = [first.run_alone(), second.run_alone()]
    for which, got, want in zip(("first", "second"), merged, alone, strict=True):
        for ours, theirs in zip(tensors(got), tensors(want), strict=True):
            assert ours.shape == theirs.shape
            scale = max(float(theirs.abs().max()), 1e-6)
            diff = float((ours - theirs).abs().max())
            assert diff <= RELATIVE * scale, (
                f"{first.method}: with {name} changed in the second call, "
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
