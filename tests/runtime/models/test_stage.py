from __future__ import annotations

from typing import Any

import pytest

from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.families.qwen_image import QwenImage
from omnistage.runtime.models.stage import Params, Stage, StageGraph
from omnistage.runtime.protocol.errors import InvalidRequest

GRAPH = QwenImage().graph({})
SAMPLE = GRAPH["sample"]


def test_defaults_are_filled_in() -> None:
    assert SAMPLE.check_params({})["steps"] == 50
    assert SAMPLE.check_params({"seed": 2**64 - 1})["seed"] == 2**64 - 1


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("width", 0, "at least 16"),
        ("height", 100, "multiple of 16"),
        ("width", 4096, "at most"),
        ("steps", 0, "at least 1"),
        ("guidance", float("nan"), "at least"),
        ("guidance", float("inf"), "at least"),
        ("seed", -1, "at least 0"),
        ("seed", 2**64, "at most"),
        ("seed", 1.5, "integer"),
        ("steps", "20", "integer"),
        ("denoise", 0.0, "more than 0"),
        ("count", 0, "at least 1"),
        ("scheduler", "magic", "default"),
        ("colour", "red", "width"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(
    field: str, value: Any, allowed: str | None
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SAMPLE.check_params({field: value})
    error = caught.value
    assert error.field == field
    assert field in error.message
    if allowed is not None:
        assert allowed in (error.allowed or "")
    import json

    json.dumps(error.to_json(), allow_nan=False)


def test_inputs_are_typed() -> None:
    SAMPLE.check_inputs({"conditioning": "conditioning"})
    with pytest.raises(InvalidRequest, match="needs the input 'conditioning'"):
        SAMPLE.check_inputs({})
    with pytest.raises(InvalidRequest, match="takes conditioning, not images"):
        SAMPLE.check_inputs({"conditioning": "images"})
    with pytest.raises(InvalidRequest, match="no input 'mask'"):
        SAMPLE.check_inputs({"conditioning": "conditioning", "mask": "images"})


def test_an_unknown_stage_lists_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="no stage 'draw'") as caught:
        GRAPH["draw"]
    assert "text_encode" in (caught.value.allowed or "")


def test_a_graph_with_a_hole_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="no stage produces"):
        StageGraph.of(Stage("sample", Params, inputs={"conditioning": "conditioning"}))


def test_a_checkpoint_sets_its_own_defaults_and_limits() -> None:
    words = {"sample": {"width": {"default": 64, "minimum": 32, "maximum": 128}}}
    sample = QwenImage().graph(words)["sample"]
    assert sample.check_params({})["width"] == 64
    for wrong in (16, 144, 100):
        with pytest.raises(InvalidRequest, match="width"):
            sample.check_params({"width": wrong})


def test_the_demo_describes_itself() -> None:
    info = ModelEntry("demo", "demo").info()
    width = info.stages["sample"].params["properties"]["width"]
    assert (width["default"], width["maximum"]) == (64, 128)
    assert info.stages["sample"].optional == ("control", "latent")
