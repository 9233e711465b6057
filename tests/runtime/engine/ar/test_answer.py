"""An answer that is there already: it is read, and what is kept of it is as if it were written."""

import pytest
import torch

from omnistage.tests.fakes import tiny_models

from .conftest import text_of, tokens_of

pytestmark = pytest.mark.ar

ANSWER = "a red circle on white"


@pytest.fixture(params=[tiny_models.chat_model, tiny_models.qwen25_omni_speaking])
def case(request, engine, checkpoints):
    return engine(request.param), checkpoints(request.param)[1]


def hidden_of(model, ids):
    """The last layer's states of all tokens but the last, by transformers."""
    model = getattr(model, "thinker", model)
    with torch.inference_mode():
        made = model(input_ids=torch.tensor([ids[:-1]]), output_hidden_states=True)
    return made.hidden_states[-1][0]


def test_it_is_the_answer_with_the_states_of_its_own_tokens(case):
    engine, model = case
    given = {"prompt": "what is it?", "temperature": 0.0, "max_tokens": 4}
    written = engine.alone("written", **given, hidden_layers=[-1])
    event = engine.alone("read", **given, answer=ANSWER, hidden_layers=[-1])
    prompt, answer = tokens_of(event)
    assert prompt == tokens_of(written)[0]
    tokenizer = engine.core._program._tokenizer
    assert answer == [*tokenizer.encode(ANSWER), tokenizer.eos_token_id]
    facts = event.outputs["text"].header
    assert (text_of(event), facts["finish_reason"]) == (ANSWER, "stop")
    assert facts["completion_tokens"] == len(answer)
    rows = torch.from_numpy(event.outputs["hidden"].tensors["layer_-1"].array)
    expected = hidden_of(model, [*prompt, *answer])
    assert rows.shape == expected.shape
    assert (rows - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_it_says_nothing_of_what_vllm_makes_up(case):
    engine, _ = case
    engine.alone("read", prompt="what is it?", answer=ANSWER)
    assert not [event for event in engine.all_events if event.kind == "text"]


def test_its_parts_are_the_whole(engine):
    speaking = engine(tiny_models.qwen25_omni_speaking)
    event = speaking.alone("read", prompt="what is it?", answer=ANSWER)
    parts = [e.outputs["hidden"] for e in speaking.all_events if e.kind == "part"]
    prompt, answer = tokens_of(event)
    assert parts[0].header["prompt_tokens"] == len(prompt)
    ids = [i for part in parts for i in part.tensors["token_ids"].array.tolist()]
    assert ids == [*prompt, *answer]
