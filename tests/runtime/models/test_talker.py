"""The rows that a Talker is conditioned with, whichever way its input comes."""

import numpy as np
import pytest
import torch

from omnistage.runtime.models.checkpoint import Checkpoint
from omnistage.runtime.models.qwen_omni import talker_layers
from omnistage.runtime.models.talker import talker_of
from omnistage.runtime.models.torchvision_ops import make_torchvision_importable
from omnistage.runtime.models.weight_rows import weight_rows
from omnistage.runtime.protocol.errors import InvalidRequest, ModelLoadFailed
from omnistage.runtime.protocol.frames import Frame, Tensor

make_torchvision_importable()

from omnistage.tests.fakes import tiny_models  # noqa: E402  # imports transformers

MAKES = (tiny_models.qwen25_omni_speaking, tiny_models.qwen3_omni_speaking)
PARAMS = {
    "voice": "ethan",
    "temperature": 0.9,
    "top_p": 0.8,
    "top_k": 40,
    "repetition_penalty": 1.05,
    "seed": 3,
    "max_seconds": 2.0,
}
REPLY = 9
EMBEDDING = "thinker.model.embed_tokens.weight"


@pytest.fixture(scope="module", params=MAKES, ids=lambda make: make.__name__)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("speaking")
    return request.param(folder), Checkpoint.open(folder)


def prompt_ids(checkpoint):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder)
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)


def hidden(checkpoint, seed=0):
    """The whole hidden states of a made-up answer."""
    rng = np.random.default_rng(seed)
    prompt = prompt_ids(checkpoint)
    layers = talker_layers(checkpoint.index)
    shape = (len(prompt) + REPLY - 1, tiny_models.WIDTH)
    tensors = {
        f"layer_{n}": Tensor.of(rng.standard_normal(shape).astype(np.float32)) for n in layers
    }
    ids = np.array([*prompt, *rng.integers(0, 250, REPLY)], np.int64)
    header = {"kind": "hidden", "layers": list(layers), "prompt_tokens": len(prompt)}
    return Frame(header, {"token_ids": Tensor.of(ids), **tensors})


def cut(frame, *ends):
    """A frame in parts that end at those rows."""
    starts = (0, *ends)
    for start, end in zip(starts, (*ends, None), strict=True):
        tensors = {
            name: Tensor.of(tensor.array[start:end].copy())
            for name, tensor in frame.tensors.items()
        }
        yield Frame(frame.header if start == 0 else {"kind": "hidden"}, tensors)


def rows_of(talker, parts):
    (request,) = talker.prepare(PARAMS, {"hidden": parts[0]})
    pushed = [request.rows.push(part) for part in parts]
    return request, torch.cat([*pushed, request.rows.end()])


def test_parts_make_the_rows_that_the_whole_makes(made):
    _, checkpoint = made
    talker, whole = talker_of(checkpoint), hidden(checkpoint)
    count = whole.header["prompt_tokens"]
    request, expected = rows_of(talker, [whole])
    for ends in [(count,), (count, count + 1, count + 4), (count + 2,)]:
        again, rows = rows_of(talker, list(cut(whole, *ends)))
        assert again.prompt == request.prompt
        assert torch.equal(rows, expected)


def test_the_prompts_rows_do_for_all_but_the_first_of_the_reply(made):
    _, checkpoint = made
    talker, whole = talker_of(checkpoint), hidden(checkpoint)
    (first, _) = cut(whole, whole.header["prompt_tokens"])
    request, _ = rows_of(talker, [whole])
    (again,) = talker.prepare(PARAMS, {"hidden": first})
    assert len(again.rows.push(first)) == len(request.prompt["prompt_token_ids"]) - 1


def test_the_voice_decides_either_a_row_or_a_code(made):
    _, checkpoint = made
    talker, whole = talker_of(checkpoint), hidden(checkpoint)
    request, rows = rows_of(talker, [whole])
    (other,) = talker.prepare({**PARAMS, "voice": "chelsie"}, {"hidden": whole})
    others = torch.cat([other.rows.push(whole), other.rows.end()])
    differ = (rows != others).any(dim=1).sum()
    ids, other_ids = request.prompt["prompt_token_ids"], other.prompt["prompt_token_ids"]
    differ += sum(a != b for a, b in zip(ids, other_ids, strict=True))
    assert differ == 1


WRONG = {
    "no prompt": lambda frame: Frame({**frame.header, "prompt_tokens": 0}, frame.tensors),
    "prompt longer than the rows": lambda frame: Frame(
        {**frame.header, "prompt_tokens": 1000}, frame.tensors
    ),
    "another width": lambda frame: Frame(
        frame.header,
        {
            name: tensor if name == "token_ids" else Tensor.of(tensor.array[:, :5].copy())
            for name, tensor in frame.tensors.items()
        },
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_hidden_states_that_cannot_be_the_thinkers_are_refused(case, made):
    _, checkpoint = made
    with pytest.raises(InvalidRequest) as refused:
        talker_of(checkpoint).prepare(PARAMS, {"hidden": WRONG[case](hidden(checkpoint))})
    assert refused.value.field == "hidden"


def test_a_missing_layer_is_named_with_those_that_are_needed(made):
    _, checkpoint = made
    frame = hidden(checkpoint)
    less = Frame(frame.header, {"token_ids": frame.tensors["token_ids"]})
    with pytest.raises(InvalidRequest) as refused:
        talker_of(checkpoint).prepare(PARAMS, {"hidden": less})
    assert refused.value.allowed == ", ".join(map(str, talker_layers(checkpoint.index)))


def test_a_few_rows_of_a_checkpoint(made):
    model, checkpoint = made
    weight = model.thinker.get_input_embeddings().weight
    assert torch.equal(weight_rows(checkpoint, EMBEDDING, [7, 3]), weight[[7, 3]])


@pytest.mark.parametrize(("name", "row"), [(EMBEDDING, 10_000), ("no.such.weight", 0)])
def test_rows_that_are_not_there_are_named(name, row, made):
    _, checkpoint = made
    with pytest.raises(ModelLoadFailed, match=str(row) if row else name):
        weight_rows(checkpoint, name, [row])
