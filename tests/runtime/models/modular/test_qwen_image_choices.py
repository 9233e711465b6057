"""The choices of Qwen-Image's sample stage: schedulers of the checkpoint, and guiders."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omnistage.runtime.bench.pictures import make_engine
from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.protocol.errors import InvalidRequest

ENTRY = ModelEntry("demo", "demo")
PAG = {"kind": "pag", "perturbed_guidance_layers": [1], "perturbed_guidance_stop": 1.0}


def result(engine: DiffusionEngine, stage: str, inputs: Any, **params: Any) -> dict[str, Any]:
    checked = ENTRY.graph[stage].check_params(params)
    engine.submit(StageTask(f"{stage}-{params}", "demo", stage, checked, inputs))
    events = []
    while engine.busy:
        events += engine.step()
    if events[-1].error is not None:
        raise events[-1].error
    return dict(events[-1].outputs)


def test_each_choice_is_another_picture() -> None:
    engine = make_engine(ENTRY, profile=False)
    conditioning = result(engine, "text_encode", {}, prompt="a star", negative_prompt=" ")
    choices: list[dict[str, Any]] = [
        {},
        {"guider": {"kind": "cfg"}},
        {"scheduler": "euler"},
        {"scheduler": "unipc"},
        {"guider": {"kind": "cfg", "stop": 0.5}},
        {"guider": PAG},
    ]
    pictures = []
    for choice in choices:
        latent = result(engine, "sample", conditioning, steps=6, **choice)["latent"]
        pictures.append(torch.from_numpy(latent.tensors["samples"].array.copy()))
        assert pictures[-1].isfinite().all(), choice
    usual, same, euler, *others = pictures
    assert torch.equal(usual, same)
    assert torch.equal(usual, euler)
    for i, other in enumerate(others):
        assert (other - usual).abs().max() > 1e-3, choices[3 + i]
        assert all(not torch.equal(other, another) for another in others[:i])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scheduler", "heun"),
        ("scheduler", "lcm"),
        ("guider", {"kind": "slg", "skip_layer_guidance_layers": [1]}),
        ("guider", {"kind": "auto", "auto_guidance_layers": [1]}),
        ("guider", {"kind": "cfg_zero_star"}),
    ],
)
def test_what_does_not_run_is_refused_before_it_starts(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ENTRY.graph["sample"].check_params({field: value})
    assert caught.value.field == field
