"""Scales of fp8 weights: all spellings and shapes, and what cannot be right."""

from __future__ import annotations

import json

import pytest
import torch

from omnistage.runtime.models.descale import check_notes, descaled
from omnistage.runtime.protocol.errors import ModelLoadFailed

WEIGHT = torch.tensor([[1.0, -2.0], [4.0, 0.5]]).to(torch.float8_e4m3fn)


def run(**tensors):
    named = {name.replace("_dot_", "."): tensor for name, tensor in tensors.items()}
    return descaled(named, torch.float32, file="x")


@pytest.mark.parametrize("word", ["scale_weight", "weight_scale"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_scale(word, shape):
    out = run(**{"a_dot_weight": WEIGHT, f"a_dot_{word}": torch.full(shape, 3.0)})
    assert torch.equal(out["a.weight"], WEIGHT.float() * 3)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_a_scale_for_each_row(shape):
    scale = torch.tensor([2.0, 10.0]).reshape(shape)
    out = run(a_dot_weight=WEIGHT, a_dot_weight_scale=scale)
    assert out["a.weight"].tolist() == [[2, -4], [40, 5]]


def test_notes_are_left_out_and_the_rest_kept():
    note = torch.tensor(list(json.dumps({"format": "float8_e4m3fn"}).encode()), dtype=torch.uint8)
    out = run(
        a_dot_weight=WEIGHT,
        a_dot_comfy_quant=note,
        a_dot_input_scale=torch.ones(()),
        scaled_fp8=torch.zeros(2),
        bias=torch.ones(2, dtype=torch.bfloat16),
    )
    assert out.keys() == {"a.weight", "bias"}
    assert out["a.weight"].dtype == torch.float32
    assert out["bias"].dtype == torch.bfloat16


def test_a_scale_of_blocks_is_refused():
    with pytest.raises(ModelLoadFailed, match=r"scale of shape \(2, 2\) for a.weight"):
        run(a_dot_weight=WEIGHT, a_dot_weight_scale=torch.ones(2, 2))


def test_a_scale_without_its_weight_is_refused():
    with pytest.raises(ModelLoadFailed, match=r"no a.weight"):
        run(a_dot_weight_scale=torch.ones(()))


def test_other_formats_are_refused():
    note = torch.tensor(list(b'{"format": "mxfp8"}'), dtype=torch.uint8)
    with pytest.raises(ModelLoadFailed, match="mxfp8"):
        run(a_dot_weight=WEIGHT, a_dot_comfy_quant=note)
    layers = {"layers": {"a": {"format": "nvfp4"}}}
    with pytest.raises(ModelLoadFailed, match="nvfp4"):
        check_notes({"_quantization_metadata": json.dumps(layers)}, file="x")
    layers["layers"]["a"]["format"] = "float8_e4m3fn"
    check_notes({"_quantization_metadata": json.dumps(layers)}, file="x")
