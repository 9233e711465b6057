"""Qwen-Image's text encode on vLLM equals the same stage on transformers' module."""

import json

import pytest
import torch

from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.wire import to_bundle
from omnistage.runtime.protocol.frames import Frame
from omnistage.tests.fakes import tiny_models

from .conftest import Engine

pytestmark = pytest.mark.ar

PROMPTS = ["a red circle on a blue background", "star", "two green squares, " * 12]


@pytest.fixture(scope="session")
def encoder(checkpoints, tmp_path_factory):
    """An engine for the text_encode stage of a Qwen-Image folder with the tiny encoder."""
    folder, model = checkpoints(tiny_models.text_encoder)
    image = tmp_path_factory.mktemp("qwen_image")
    for part in ("transformer", "vae", "scheduler"):
        (image / part).mkdir()
    index = {
        "_class_name": "QwenImagePipeline",
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "tokenizer": ["transformers", "AutoTokenizer"],
    }
    (image / "model_index.json").write_text(json.dumps(index))
    for part in ("text_encoder", "tokenizer"):
        (image / part).symlink_to(folder)
    entry = ModelEntry("tiny", str(image), engine="ar")
    checkpoint = entry.checkpoint
    program = checkpoint.family.load(checkpoint, dtype="float32", device="cpu").programs
    return Engine(entry, "text_encode"), program["text_encode"], model


class Context:
    strict = False

    def __init__(self, model):
        self.model = model

    def module(self, name):
        return self.model


@torch.inference_mode()
def reference(encode, model, **params):
    return encode(Context(model), {"negative_prompt": "", **params}, {})["conditioning"].tensors


@pytest.mark.parametrize("negative", ["", "blurry and ugly"])
def test_embeddings_and_masks_are_the_modules(encoder, negative):
    engine, encode, model = encoder
    for i, prompt in enumerate(PROMPTS):
        engine.submit(str(i), prompt=prompt, negative_prompt=negative)
    ends = engine.run()
    for i, prompt in enumerate(PROMPTS):
        assert ends[str(i)].kind == "done", ends[str(i)].error
        mine = to_bundle(ends[str(i)].outputs["conditioning"], torch.device("cpu")).tensors
        expected = reference(encode, model, prompt=prompt, negative_prompt=negative)
        assert mine.keys() == expected.keys()
        for name, tensor in expected.items():
            if tensor is None:
                continue
            assert (mine[name] - tensor).abs().max() <= 1e-5 * tensor.abs().max()


def test_linked_text_is_encoded(encoder):
    engine, encode, model = encoder
    end = engine.alone("a", {"prompt": Frame({"kind": "text", "text": "star"})})
    mine = to_bundle(end.outputs["conditioning"], torch.device("cpu")).tensors["prompt_embeds"]
    expected = reference(encode, model, prompt="star")["prompt_embeds"]
    assert (mine - expected).abs().max() <= 1e-5 * expected.abs().max()
