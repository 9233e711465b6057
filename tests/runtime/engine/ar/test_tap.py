"""Encoders whose inner layers are wanted equal transformers' `hidden_states`."""

import pytest
import torch

from omnistage.runtime.engine.ar.build import core_of
from omnistage.runtime.engine.ar.settings import ARSettings
from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.models.ar_encoder import EncoderStage
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.program import Bundle
from omnistage.runtime.models.wire import to_bundle
from omnistage.tests.fakes import tiny_models

from .conftest import kept

pytestmark = pytest.mark.ar

PROMPTS = [[3, 1, 4, 1, 5], list(range(40))]


def layer_reader(layers):
    """A program that reads some layers of the encoder, as diffusers' pipelines do."""

    def program(context, params, inputs):
        ids = torch.tensor([params["ids"]])
        states = context.module("text_encoder")(ids, torch.ones_like(ids)).hidden_states
        return {"out": Bundle({str(layer): states[layer][0] for layer in layers})}

    return program


@pytest.mark.parametrize("layers", [(-2,), (1, 2), (0, -1)], ids=str)
def test_chosen_layers_are_transformers(layers, checkpoints, engine):
    engine(tiny_models.qwen3_omni)  # see the fixture: the first engine decides
    folder, model = checkpoints(tiny_models.chat_model)
    stage = EncoderStage(layer_reader(layers), folder, width=128, max_tokens=256, layers=layers)
    core = kept(core_of(ARSettings(kv_cache_mb=32), ModelEntry("t", str(folder)), stage, "s"))
    for i, ids in enumerate(PROMPTS):
        core.submit(StageTask(str(i), "t", "s", {"ids": ids}))
    ends = {}
    while core.busy:
        ends |= {e.task: e for e in core.step() if e.kind in ("done", "failed")}
    for i, ids in enumerate(PROMPTS):
        with torch.inference_mode():
            expected = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        mine = to_bundle(ends[str(i)].outputs["out"], torch.device("cpu")).tensors
        for layer in layers:
            reference = expected[layer][0]
            assert (mine[str(layer)] - reference).abs().max() <= 1e-5 * reference.abs().max()
