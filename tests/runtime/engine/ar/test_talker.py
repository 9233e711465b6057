"""Speech code for code as transformers makes it, while the Thinker still writes."""

import json
import random
import shutil

import numpy as np
import pytest
import torch

from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.tests.fakes import tiny_models

from .conftest import Engine
from .test_parity import INPUTS, processed

pytestmark = pytest.mark.ar

REPLY = 12
CODES = 24
"""At most, or as many frames of them."""
QUESTIONS = {
    "short": ("text", "hi"),
    "long": ("text", "tell me of the red circle and the blue square on white " * 6),
    "picture": ("images", "what is it?"),
    "sound": ("audio", "what is it?"),
}
BLOCK_BYTES = 2 * 2 * 1 * 32 * 4 * 128
"""Of the Talkers: keys and values, layers, heads, head width, bytes of a float, tokens."""
PENALTY = 1.05
GREEDY = {"temperature": 0.0, "repetition_penalty": PENALTY}
VOICES = ("chelsie", "ethan")


class Speaker:
    """A Thinker and a Talker, driven together, parts handed from one to the other."""

    def __init__(self, thinker, talker, rate):
        self.thinker, self.talker, self.rate = thinker, talker, rate
        self.ask = {"temperature": 0.0, "max_tokens": REPLY}

    def begin(self, name, question, **params):
        kind, text = QUESTIONS[question]
        self.thinker.submit(f"{name}?", INPUTS[kind], prompt=text, **self.ask)
        self.talker.submit(name, followed=("hidden",), **self.cut(params))

    def cut(self, params):
        return {"max_seconds": CODES / self.rate, **params}

    def run(self, rng=None):
        """The final events of the Talker; with `rng`, parts are late."""
        late, ends = [], {}
        while self.thinker.core.busy or self.talker.core.busy or late:
            if rng is None or rng.random() < 0.4:
                late += handed_over(self.thinker.step())
            while late and (rng is None or rng.random() < 0.3):
                self.talker.core.feed(*late.pop(0))
            for event in self.talker.step():
                if event.kind in ("done", "failed", "cancelled"):
                    ends[event.task] = event
        self.thinker.core.check_integrity()
        self.talker.core.check_integrity()
        self.events, self.talker.events, self.thinker.events = self.talker.events, [], []
        return ends

    def hidden(self, question):
        """All hidden states of the answer to a question, by its name or in full."""
        kind, text = QUESTIONS.get(question, ("text", question))
        event = self.thinker.alone("whole", INPUTS[kind], prompt=text, **self.ask)
        return event.outputs["hidden"]

    def say(self, question, **params):
        """The codes of an answer that had ended before."""
        hidden = {"hidden": self.hidden(question)}
        return codes_of(self.talker.alone("a", hidden, **self.cut(params)))


def handed_over(events):
    """What the Talker's core is to be fed with."""
    for event in events:
        name = event.task.removesuffix("?")
        if event.kind == "part":
            yield name, "hidden", event.outputs["hidden"]
        elif event.kind == "done":
            yield name, "hidden", None


def codes_of(event):
    assert event.kind == "done", event.error
    return event.outputs["codes"].tensors["codes"].array.tolist()


class Ear(torch.nn.Module):
    """In the place of a codec: hears the codes."""

    dtype = torch.float

    def forward(self, codes, **_):
        self.codes = codes
        return torch.zeros(1)

    chunked_decode = forward


@torch.inference_mode()
def heard(model, codec, folder, question, voice, **options):
    """The codes that transformers makes."""
    kind, text = QUESTIONS[question]
    inputs = dict(processed(folder, kind, text))
    if "pixel_values" in inputs:  # Qwen2.5's generate() would give it to the Talker
        inputs["thinker_pixel_values"] = inputs.pop("pixel_values")
    own, ear = getattr(model, codec), Ear()
    setattr(model, codec, ear)
    try:
        model.generate(
            **inputs,
            speaker=voice,
            thinker_max_new_tokens=REPLY,
            thinker_do_sample=False,
            talker_do_sample=False,
            talker_repetition_penalty=PENALTY,
            **options,
        )
    finally:
        setattr(model, codec, own)
    return ear.codes[0]


def heard25(model, folder, question, voice):
    stop = [tiny_models.CODES + 2, tiny_models.CODES]
    options = {"talker_eos_token_id": stop, "talker_max_new_tokens": CODES}
    return heard(model, "token2wav", folder, question, voice.title(), **options).tolist()


def heard3(model, folder, question, voice):
    # A code that was never an input has no frame there, either.
    options = {"thinker_eos_token_id": None, "talker_max_new_tokens": CODES + 1}
    return heard(model, "code2wav", folder, question, voice, **options).T.tolist()


MODELS = {
    "qwen2.5": (tiny_models.qwen25_omni_speaking, heard25, 50.0),
    "qwen3": (tiny_models.qwen3_omni_speaking, heard3, 12.5),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]


@pytest.fixture
def speaker(model, engine):
    make, _, rate = model
    return Speaker(engine(make), engine(make, stage="talker"), rate)


@pytest.fixture(scope="module")
def expected(model, checkpoints):
    """Transformers' codes by question and voice."""
    make, hear, _ = model
    folder, whole = checkpoints(make)
    return {
        (question, voice): hear(whole, folder, question, voice)
        for question in QUESTIONS
        for voice in VOICES
    }


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_codes_equal_transformers(question, voice, speaker, expected):
    assert speaker.say(question, voice=voice, **GREEDY) == expected[question, voice]


@pytest.mark.parametrize("seed", range(3))
def test_together_with_parts_that_are_late_they_are_the_same(seed, speaker, expected):
    for question, voice in expected:
        speaker.begin(f"{question} {voice}", question, voice=voice, **GREEDY)
    ends = speaker.run(random.Random(seed))
    for question, voice in expected:
        assert codes_of(ends[f"{question} {voice}"]) == expected[question, voice]


def test_the_voices_differ(expected):
    differ = [q for q in QUESTIONS if expected[q, "chelsie"] != expected[q, "ethan"]]
    assert "short" in differ


def test_parts_joined_are_the_whole(speaker):
    speaker.begin("a", "picture", voice="ethan", **GREEDY)
    whole = speaker.run(random.Random(0))["a"].outputs["codes"]
    parts = [e.outputs["codes"] for e in speaker.events if e.kind == "part"]
    assert len(parts) > 1
    joined = np.concatenate([part.tensors["codes"].array for part in parts])
    assert joined.tolist() == whole.tensors["codes"].array.tolist()
    assert {part.header["voice"] for part in parts} == {whole.header["voice"]} == {"ethan"}


def test_parts_of_hidden_states_joined_are_the_whole(speaker):
    whole = speaker.hidden("sound")
    parts = [e.outputs["hidden"] for e in speaker.thinker.all_events if e.kind == "part"]
    assert len(parts) > 1
    assert parts[0].header["prompt_tokens"] == whole.header["prompt_tokens"]
    assert len(parts[0].tensors["token_ids"].array) == whole.header["prompt_tokens"]
    for name, tensor in whole.tensors.items():
        joined = np.concatenate([part.tensors[name].array for part in parts])
        assert np.array_equal(joined, tensor.array)


def test_sampled_codes_are_the_same_alone_and_in_company(speaker):
    wanted = {
        f"{question} {voice}": {"voice": voice, "seed": seed}
        for seed, question in enumerate(QUESTIONS)
        for voice in VOICES
    }
    alone = {name: speaker.say(name.split()[0], **given) for name, given in wanted.items()}
    for name, given in wanted.items():
        speaker.begin(name, name.split()[0], **given)
    ends = speaker.run(random.Random(1))
    assert {name: codes_of(end) for name, end in ends.items()} == alone
    again = {**wanted["short ethan"], "seed": 99}
    assert speaker.say("short", **again) != alone["short ethan"]


def test_speech_ends_where_the_model_says_or_is_cut_with_a_reason(speaker):
    hidden = {"hidden": speaker.hidden("short")}
    seen = set()
    for seed in range(12):
        params = speaker.cut({"seed": seed, "temperature": 2.0})
        end = speaker.talker.alone("a", hidden, **params)
        codes, reason = codes_of(end), end.outputs["codes"].header["finish_reason"]
        assert len(codes) == CODES if reason == "length" else len(codes) < CODES
        assert not {tiny_models.CODES, tiny_models.CODES + 2} & set(np.ravel(codes))
        seen.add(reason)
    assert seen == {"stop", "length"}


def test_the_tokens_that_end_a_thought_do_not_end_speech(
    model, speaker, checkpoints, expected, tmp_path
):
    """They are other tokens, and may have the numbers of codes."""
    make, _, rate = model
    codes = expected["short", "chelsie"]
    folder = shutil.copytree(checkpoints(make)[0], tmp_path / "model")
    ends = sorted({int(np.ravel(code)[0]) for code in codes})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    entry = ModelEntry("tiny", str(folder), vllm={"max_model_len": 512, "max_num_seqs": 8})
    talker = Engine(entry, "talker")
    assert Speaker(speaker.thinker, talker, rate).say("short", voice="chelsie", **GREEDY) == codes


def test_one_is_cancelled_and_the_others_say_the_same(speaker, expected):
    for question in QUESTIONS:
        speaker.begin(question, question, voice="ethan", **GREEDY)
    while not speaker.talker.core.stats()["running"]:
        for fed in handed_over(speaker.thinker.step()):
            speaker.talker.core.feed(*fed)
        speaker.talker.step()
    speaker.talker.core.cancel("short")
    ends = speaker.run(random.Random(2))
    assert ends.pop("short").kind == "cancelled"
    assert {q: codes_of(end) for q, end in ends.items()} == {
        question: expected[question, "ethan"] for question in QUESTIONS if question != "short"
    }


def test_hidden_states_that_do_not_suffice_are_refused(speaker):
    kind, text = QUESTIONS["short"]
    event = speaker.thinker.alone("a", INPUTS[kind], prompt=text, hidden_layers=[0], max_tokens=3)
    end = speaker.talker.alone("a", {"hidden": event.outputs["hidden"]})
    assert isinstance(end.error, InvalidRequest)
    assert end.error.field == "hidden_layers"
    assert end.error.allowed in ("0, -1", "0, 2")


def test_an_unknown_voice_is_refused_with_the_list(speaker):
    with pytest.raises(InvalidRequest) as refused:
        speaker.talker.task("a", voice="nobody")
    assert refused.value.field == "voice"
    assert refused.value.allowed == "chelsie, ethan"


def test_preempted_it_says_the_same(model, speaker, engine):
    pressed = engine(model[0], stage="talker", kv_cache_memory_bytes=BLOCK_BYTES * 6)
    text = "the red circle and the blue square on white " * 6
    ends = {}
    for talker in (speaker.talker, pressed):
        for i in range(8):
            hidden = {"hidden": speaker.hidden(f"tell me {i} {text}")}
            talker.submit(f"{i}", hidden, **speaker.cut({"seed": i, "temperature": 1.0}))
        ends[talker] = {name: codes_of(end) for name, end in talker.run().items()}
    assert pressed.core.stats()["preemptions"] > 0
    assert ends[pressed] == ends[speaker.talker]
