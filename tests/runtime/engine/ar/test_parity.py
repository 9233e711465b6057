"""Token for token what transformers generates, and its hidden states, for every kind of input."""

import numpy as np
import pytest
import torch
from PIL import Image

from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.tests.fakes import tiny_models

from .conftest import tokens_of

pytestmark = pytest.mark.ar

STEPS = 12
QUESTION = "what is it?"
FPS = 2.0
RATE = 16000
OMNI = (tiny_models.qwen25_omni, tiny_models.qwen3_omni)


def random_media():
    rng = np.random.default_rng(0)
    return {
        "images": rng.random((2, 48, 56, 3)).astype(np.float32),
        "audio": (rng.standard_normal(RATE) * 0.1).astype(np.float32),
        "video": (rng.random((4, 56, 56, 3)) * 255).astype(np.uint8),
    }


MEDIA = random_media()
INPUTS = {
    "text": {},
    "images": {
        "images": Frame({"kind": "images"}, {"images": Tensor.of(MEDIA["images"])}),
    },
    "audio": {
        "audio": Frame(
            {"kind": "audio", "rate": RATE}, {"waveform": Tensor.of(MEDIA["audio"][None, None])}
        ),
    },
    "video": {
        "video": Frame({"kind": "video", "fps": FPS}, {"frames": Tensor.of(MEDIA["video"])}),
    },
}


def processed(folder, kind, question=QUESTION):
    """The inputs of transformers' model for a question."""
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    media = {}
    if kind == "images":
        pixels = (MEDIA["images"] * 255).round().astype(np.uint8)
        media["images"] = [Image.fromarray(picture) for picture in pixels]
    elif kind == "audio":
        media = {"audio": [MEDIA["audio"]], "audio_kwargs": {"sampling_rate": RATE}}
    elif kind == "video":
        media = {"videos": [MEDIA["video"]], "videos_kwargs": {"do_sample_frames": False}}
    parts = [{"type": kind.removesuffix("s")}] * (2 if kind == "images" else 1)
    content = [*(parts if media else ()), {"type": "text", "text": question}]
    text = processor.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    return processor(text=text, return_tensors="pt", **media)


@torch.inference_mode()
def reference(model, inputs):
    """Generated ids, and hidden states of every token that was an input, first and last layer."""
    made = model.generate(
        **inputs,
        max_new_tokens=STEPS,
        do_sample=False,
        return_dict_in_generate=True,
        output_hidden_states=True,
    )
    layers = {
        layer: torch.cat([step[layer][0] for step in made.hidden_states]) for layer in (0, -1)
    }
    return made.sequences[0, inputs["input_ids"].shape[1] :].tolist(), layers


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("make", OMNI, ids=lambda make: make.__name__)
def test_an_omni_thinker_equals_transformers(make, kind, engine, checkpoints):
    folder, model = checkpoints(make)
    event = engine(make).alone(
        kind,
        INPUTS[kind],
        prompt=QUESTION,
        temperature=0.0,
        max_tokens=STEPS,
        hidden_layers=[0, -1],
    )
    inputs = processed(folder, kind)
    ids, layers = reference(model, inputs)
    prompt, generated = tokens_of(event)
    assert prompt == inputs["input_ids"][0].tolist()
    assert generated == ids[: len(generated)]
    for layer, expected in layers.items():
        rows = torch.from_numpy(event.outputs["hidden"].tensors[f"layer_{layer}"].array)
        assert len(rows) == len(prompt) + len(generated) - 1
        difference = (rows - expected[: len(rows)]).abs().max()
        assert difference <= 1e-5 * expected.abs().max()


def test_sound_at_another_rate_is_heard_at_the_models(engine):
    time = np.arange(2 * RATE) / (2 * RATE)
    wave = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    given = {"prompt": QUESTION, "temperature": 0.0, "max_tokens": 1, "hidden_layers": [-1]}

    def prompt_tokens(samples, rate):
        frame = Frame({"kind": "audio", "rate": rate}, {"waveform": Tensor.of(samples[None, None])})
        event = engine(tiny_models.qwen25_omni).alone("a", {"audio": frame}, **given)
        return event.outputs["text"].header["prompt_tokens"]

    assert prompt_tokens(wave, 2 * RATE) == prompt_tokens(wave[::2].copy(), RATE)
