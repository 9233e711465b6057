"""Refusing a prompt before it is queued."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omnistage.comfy_nodes.planner import plan
from omnistage.comfy_nodes.precheck import problems, refusal, unknown_model
from omnistage.runtime.models.qwen_image import QwenImage
from omnistage.runtime.protocol.messages import ModelInfo

from .prompts import graph, queued

STAGES = {name: stage.info() for name, stage in QwenImage().graph({}).stages.items()}
MODELS = {"demo": ModelInfo("demo", "qwen-image", "r1", STAGES)}


def problems_of(made: dict[str, Any], models=MODELS, picture=None):
    results = plan(queued(made), lambda _: picture).results
    return list(problems(made, results, models))


def found(**changes: dict[str, Any]):
    return [(p.node, p.input, p.message) for p in problems_of(graph(**changes))]


def test_a_good_prompt_has_no_problems():
    assert found() == []


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("width", 100, "a multiple of 16"),
        ("height", 8192, "at least 16, at most 2048, a multiple of 16"),
        ("count", 65, "at most 64"),
        ("steps", 1001, "at most 1000"),
        ("guidance", 100.5, "at most 100"),
        ("scheduler", "sigmoid", "allowed: default"),
    ],
)
def test_a_value_out_of_range_names_node_input_value_and_range(field, value, words):
    ((node, name, message),) = found(_3={field: value})
    assert (node, name) == ("3", field)
    assert f"{field} = {value!r} " in message
    assert words in message


def test_a_text_over_the_limit_is_refused_by_its_length():
    ((node, name, message),) = found(_2={"prompt": "x" * 20_001})
    assert (node, name) == ("2", "prompt")
    assert "at most 20000 characters" in message
    assert len(message) < 500


def test_a_parameter_the_model_does_not_know():
    poor = {"sample": {"properties": {"count": {}, "seed": {}}}}
    stage = STAGES["sample"].__class__(poor["sample"], {}, (), {})
    models = {"demo": ModelInfo("demo", "x", "r", {**STAGES, "sample": stage})}
    assert {p.input for p in problems_of(graph(), models)} == {"width", "height", "steps"}


def test_a_stage_the_model_does_not_have():
    stages = {name: stage for name, stage in STAGES.items() if name != "vae_decode"}
    models = {"demo": ModelInfo("demo", "x", "r", stages)}
    ((node, message),) = [(p.node, p.message) for p in problems_of(graph(), models)]
    assert node == "4"
    assert message.startswith("model 'demo' has no vae_decode; it has ")


def test_an_unknown_model_is_answered_with_the_known_ones():
    assert unknown_model("x", ["a", "b"]) == "model 'x' is not on this runtime; it has a, b"
    assert unknown_model("x", []).endswith("it has none")


def test_the_refusal_has_comfyuis_form():
    made = graph(_3={"width": 100})
    body = refusal(problems_of(made), made)
    assert body["error"]["type"] == "prompt_outputs_failed_validation"
    assert "width = 100" in body["error"]["details"]
    (error,) = body["node_errors"]["3"]["errors"]
    assert error["extra_info"] == {"input_name": "width"}
    assert body["node_errors"]["3"]["class_type"] == "OmniStageSample"


def test_a_value_from_a_literal_node_is_checked_too():
    made = graph(_3={"steps": ["9", 0]}) | {
        "9": {"class_type": "PrimitiveInt", "inputs": {"value": 2000}}
    }
    ((node, name),) = [(p.node, p.input) for p in problems_of(made)]
    assert (node, name) == ("3", "steps")


def test_a_size_that_comes_from_a_picture_is_left_to_the_runtime():
    """Which picture it is does not matter to the check, so neither does its size."""
    made = graph(_3={"latent": ["8", 0], "width": 0, "height": 100}) | {
        "7": {"class_type": "LoadImage", "inputs": {"image": "cat.png"}},
        "8": {"class_type": "OmniStageVAEEncode", "inputs": {"model": ["1", 0], "image": ["7", 0]}},
    }
    assert [p.input for p in problems_of(made, picture=torch.zeros(1, 1, 1, 3))] == ["height"]
