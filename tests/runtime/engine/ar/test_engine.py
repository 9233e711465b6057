"""What happens to requests: company, cancels, refusals, sampling, streaming."""

import json
import random

import pytest

from omnistage.runtime.protocol.conversation import Conversation, Message
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.tests.fakes import tiny_models

from .conftest import text_of, tokens_of
from .test_parity import INPUTS

pytestmark = pytest.mark.ar


@pytest.fixture
def chat(engine):
    return engine(tiny_models.chat_model)


def history(*turns):
    return {"history": Conversation(tuple(Message(r, (t,)) for r, t in turns)).to_frame()}


def test_sampled_text_is_the_same_alone_and_in_company(chat):
    requests = {
        str(i): {"prompt": f"say {i}", "temperature": 1.0, "seed": i, "max_tokens": 10 + i}
        for i in range(6)
    }
    alone = {name: tokens_of(chat.alone(name, **given)) for name, given in requests.items()}
    for name, given in requests.items():
        chat.submit(name, **given)
    assert {name: tokens_of(end) for name, end in chat.run().items()} == alone
    other = tokens_of(chat.alone("x", **{**requests["5"], "seed": 77}))
    assert other != alone["5"]


def test_two_hundred_requests_with_fifty_cancels(chat):
    rng = random.Random(3)
    given = {
        str(i): {
            "prompt": "red " * rng.randint(1, 60),
            "max_tokens": rng.randint(1, 40),
            "temperature": 0.0,
        }
        for i in range(200)
    }
    cancelled = set(rng.sample(sorted(given), 50))
    waiting = list(given)
    while waiting or chat.core.busy:
        for _ in range(min(len(waiting), rng.randint(0, 6))):
            name = waiting.pop()
            chat.submit(name, **given[name])
        chat.step()
        ready = [n for n in cancelled if n not in waiting]
        if ready and rng.random() < 0.5:
            chat.core.cancel(rng.choice(ready))
    for name in cancelled:
        chat.core.cancel(name)
    ends = chat.run()
    assert set(ends) == set(given), "every request ends"
    assert chat.core.stats()["kv_usage"] == 0
    done = [name for name, end in ends.items() if end.kind == "done"]
    assert len(done) >= 150
    for name in rng.sample([n for n in done if n not in cancelled], 25):
        assert tokens_of(chat.alone(name, **given[name])) == tokens_of(ends[name])


def test_each_request_has_exactly_one_end(chat):
    for i in range(4):
        chat.submit(str(i), prompt="red", max_tokens=5)
    chat.core.cancel("1")
    chat.run()
    finals = [e.task for e in chat.all_events if e.kind in ("done", "failed", "cancelled")]
    assert sorted(finals) == ["0", "1", "2", "3"]


def test_text_streams_and_adds_up(chat):
    end = chat.alone("a", prompt="red", max_tokens=24, temperature=0.0)
    pieces = [e for e in chat.all_events if e.kind == "text"]
    assert "".join(e.text for e in pieces) == text_of(end)
    assert len(pieces) > 1
    assert [e.total for e in pieces[:-1]] == [24] * (len(pieces) - 1)


def test_more_requests_than_sequences_are_queued_and_all_answered(engine):
    narrow = engine(tiny_models.chat_model, max_num_seqs=2)
    for i in range(9):
        narrow.submit(str(i), prompt=f"say {i}", max_tokens=6)
    narrow.step()
    assert narrow.core.stats()["waiting"] == 7
    assert all(end.kind == "done" for end in narrow.run().values())


def test_a_higher_priority_goes_first(engine):
    narrow = engine(tiny_models.chat_model, max_num_seqs=1)
    narrow.submit("running", prompt="a", max_tokens=8)
    narrow.step()
    narrow.submit("low", prompt="b", max_tokens=2)
    narrow.submit("high", prompt="c", max_tokens=2, priority=5)
    assert list(narrow.run())[-2:] == ["high", "low"]


def test_history_and_prompt_make_the_prompt_that_the_template_makes(chat, checkpoints):
    from transformers import AutoTokenizer

    end = chat.alone(
        "a",
        history(("user", "hello"), ("assistant", "yes")),
        system="be brief",
        prompt="and now?",
        max_tokens=4,
    )
    tokenizer = AutoTokenizer.from_pretrained(checkpoints(tiny_models.chat_model)[0])
    turns = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "and now?"},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert tokens_of(end)[0] == tokenizer.encode(text)
    said = Conversation.from_frame(end.outputs["history"])
    assert [m.role for m in said.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert said.messages[-1].text == text_of(end)


def test_linked_text_is_the_prompt(chat):
    linked = {"prompt": Frame({"kind": "text", "text": "red circle"})}
    ends = [
        chat.alone("a", linked, max_tokens=6, temperature=0.0),
        chat.alone("b", prompt="red circle", max_tokens=6, temperature=0.0),
    ]
    assert tokens_of(ends[0]) == tokens_of(ends[1])


def test_a_json_schema_is_followed(chat):
    schema = {
        "type": "object",
        "properties": {"red": {"type": "boolean"}},
        "required": ["red"],
        "additionalProperties": False,
    }
    end = chat.alone("a", prompt="red?", json_schema=json.dumps(schema), max_tokens=60)
    assert end.outputs["text"].header["finish_reason"] == "stop"
    assert set(json.loads(text_of(end))) == {"red"}


def test_stop_texts_end_the_answer(chat):
    free = text_of(chat.alone("a", prompt="red", max_tokens=30, temperature=0.0))
    stop = free[len(free) // 2]
    ended = chat.alone("b", prompt="red", max_tokens=30, temperature=0.0, stop=[stop])
    assert text_of(ended) == free[: free.index(stop)]
    assert ended.outputs["text"].header["finish_reason"] == "stop"


REFUSED = {
    "empty prompt": ({}, {"prompt": " "}, "prompt"),
    "too long": ({}, {"prompt": "x " * 600}, "prompt"),
    "no question": (history(("user", "a"), ("assistant", "b")), {}, "prompt"),
    "unknown role": (
        {"history": Frame({"kind": "chat", "messages": [{"role": "king", "content": []}]})},
        {"prompt": "a"},
        "history[0].role",
    ),
    "unknown layer": ({}, {"prompt": "a", "hidden_layers": [17]}, "hidden_layers"),
    "schema that refers to nothing": (
        {},
        {"prompt": "a", "json_schema": '{"$ref": "#/nowhere"}'},
        "json_schema",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_field_and_loses_nothing_else(chat, case):
    inputs, params, field = REFUSED[case]
    chat.submit("mate", prompt="red", max_tokens=8, temperature=0.0)
    chat.submit("refused", inputs, **params)
    ends = chat.run()
    assert ends["refused"].kind == "failed"
    assert isinstance(ends["refused"].error, InvalidRequest)
    assert ends["refused"].error.field == field
    assert ends["mate"].kind == "done"


def test_media_beyond_the_limit_or_the_model_are_refused(engine, chat):
    omni = engine(tiny_models.qwen25_omni)
    frame = INPUTS["images"]["images"]
    parts = [{"type": "image", "tensor": "0"}] * 17
    picture = (frame.tensors["images"].array[0] * 255).astype("uint8")
    many = Frame(
        {"kind": "chat", "messages": [{"role": "user", "content": parts}]},
        {"0": Tensor.of(picture)},
    )
    end = omni.alone("a", {"history": many})
    assert end.error.field == "image"
    assert "16" in end.error.allowed
    one = Frame(
        {"kind": "chat", "messages": [{"role": "user", "content": parts[:1]}]},
        {"0": Tensor.of(picture)},
    )
    assert chat.alone("b", {"history": one}).error.field == "image"
    with pytest.raises(InvalidRequest, match="no input 'images'"):
        chat.stage.check_inputs({"images": "images"})


@pytest.mark.parametrize("schema", ["{", "[1]", '{"type": "no such type"}'])
def test_what_is_no_schema_is_refused_before_work_starts(chat, schema):
    with pytest.raises(InvalidRequest) as refusal:
        chat.stage.check_params({"prompt": "a", "json_schema": schema})
    assert refusal.value.field == "json_schema"


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repetition_penalty"])
def test_numbers_that_are_none_are_refused_before_work_starts(chat, name):
    with pytest.raises(InvalidRequest) as refusal:
        chat.stage.check_params({"prompt": "a", name: float("nan")})
    assert refusal.value.field == name
