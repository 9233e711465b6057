"""The embedded voice: small, loadable by transformers alone, and it says what it is told."""

import json

import pytest
import torch

from omnistage.runtime.demo.speech.checkpoint import (
    CHECKPOINT,
    GUIDANCE,
    MAX_CHECKPOINT_BYTES,
    STEPS,
    checkpoint_bytes,
)
from omnistage.runtime.demo.speech.codec import CODE_SAMPLES
from omnistage.runtime.demo.speech.pitch import pitch_hz
from omnistage.runtime.demo.speech.recogniser import hear, load_recogniser
from omnistage.runtime.demo.speech.serving import ServedCodec
from omnistage.runtime.demo.speech.speaking import Speaker
from omnistage.runtime.demo.speech.vocabulary import DIGITS
from omnistage.runtime.demo.speech.voices import PITCH_BORDER_HZ, VOICES
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.location import VOICE
from omnistage.runtime.models.voices import voices_of

SPOKEN = {
    ("say 3 1 4", "Chelsie"): "three one four",
    ("count from two to five", "Ethan"): "two three four five",
    ("please read 7 0 7", "Chelsie"): "seven zero seven",
}


@pytest.fixture(scope="module")
def speaker():
    return Speaker()


@pytest.fixture(scope="module")
def recogniser():
    return load_recogniser()


def say(speaker, prompt, voice):
    return speaker.answer([{"role": "user", "content": prompt}], voice, seed=0)


@pytest.fixture(scope="module")
def answers(speaker):
    return {asked: say(speaker, *asked) for asked in SPOKEN}


def test_fits_in_the_repository():
    assert checkpoint_bytes(CHECKPOINT) <= MAX_CHECKPOINT_BYTES


def test_is_laid_out_like_qwens():
    config = json.loads((CHECKPOINT / "config.json").read_text())
    assert config["architectures"] == ["Qwen2_5OmniModel"]
    assert config["dtype"] == "bfloat16"
    assert voices_of(config, CHECKPOINT) == ("chelsie", "ethan")
    parts = [config["thinker_config"]["text_config"], config["talker_config"]]
    assert all("dtype" not in part for part in parts)


def test_brings_the_settings_it_is_to_be_served_with():
    graph = ModelEntry("voice", VOICE).graph
    assert graph["thinker"].check_params({"prompt": "say 3"})["top_k"] == 1
    own = {"steps": STEPS, "guidance": GUIDANCE, "chunk": 48, "left_context": 12}
    assert own.items() <= graph["codec_decode"].check_params({}).items()
    assert graph["codec_decode"].check_params({"steps": 10})["steps"] == 10


def test_writes_the_answer(answers):
    assert {asked: answer.text for asked, answer in answers.items()} == SPOKEN


def test_says_the_answer(answers, recogniser):
    heard = {asked: " ".join(hear(recogniser, answer.wave)) for asked, answer in answers.items()}
    assert heard == SPOKEN


def test_each_code_is_20_ms(answers):
    for answer in answers.values():
        assert len(answer.wave) == CODE_SAMPLES * len(answer.codes)


def test_says_the_same_in_the_chunks_that_it_is_served_in(answers, recogniser):
    codec = ServedCodec()
    for (prompt, voice), answer in answers.items():
        wave = codec.sound(answer.codes, voice, seed=0)
        assert len(wave) == len(answer.wave)
        assert " ".join(hear(recogniser, wave)) == SPOKEN[prompt, voice]


def test_codes_in_another_order_say_something_else(answers, recogniser):
    (prompt, voice), answer = next(iter(answers.items()))
    order = torch.randperm(len(answer.codes), generator=torch.Generator().manual_seed(0))
    wave = ServedCodec().sound(answer.codes[order], voice, seed=0)
    assert " ".join(hear(recogniser, wave)) != SPOKEN[prompt, voice]


def test_voices_differ_in_pitch(answers):
    for (_, voice), answer in answers.items():
        high = VOICES[voice].pitch_hz > PITCH_BORDER_HZ
        assert (pitch_hz(answer.wave) > PITCH_BORDER_HZ) == high


@pytest.mark.parametrize("prompt", ["hello", "who was Napoleon?"])
def test_small_talk_is_answered_without_digits(speaker, recogniser, prompt):
    answer = say(speaker, prompt, "Chelsie")
    assert answer.text in ("hello", "sorry")
    heard = hear(recogniser, answer.wave)
    assert heard
    assert not set(heard) & set(DIGITS)
