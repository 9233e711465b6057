"""The shipped workflows, as they are, through ComfyUI's HTTP queue.

`UPDATE_THUMBNAILS=1 pytest tests/e2e/test_workflows.py` makes their thumbnails anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omnistage.runtime.bench.comfyui import WORKFLOWS, Comfy, Graph, with_inputs, workflow
from omnistage.runtime.bench.servers import Runtime
from omnistage.runtime.demo.speech.pitch import pitch_hz
from omnistage.runtime.demo.speech.recogniser import hear, load_recogniser
from omnistage.runtime.demo.speech.vocabulary import DIGITS
from omnistage.runtime.demo.speech.voices import PITCH_BORDER_HZ
from omnistage.tests.fakes.workflow_models import SMALL

from .comfy import levels_apart, small
from .thumbnails import card, keep, sheet_of, waveform

pytestmark = pytest.mark.e2e

PICTURES = {
    "text_to_image": 1,
    "several_prompts": 4,
    "variations": 6,
    "image_to_image": 2,
    "inpaint": 2,
    "guider_scheduler": 3,
    "enhance_prompt": 1,
}
TEXTS = {"chat": 2}
SOUNDS = {
    "text_to_speech": [("chelsie", "three one four one five nine")],
    "chat_with_voice": [("chelsie", "two three four five"), ("ethan", "seven zero seven")],
    "picture_read_aloud": [("chelsie", "red circle on blue")],
}
"""Who is heard to say what."""
ANSWERED = "speech_to_speech"


def sounds_of(comfy: Comfy, entry: dict[str, Any]) -> list[np.ndarray]:
    """The sounds `[T]` that a finished prompt saved."""
    found = comfy.sounds(entry)
    assert {(len(samples), rate) for samples, rate in found} == {(1, 24000)}
    return [samples[0] for samples, _ in found]


def who_said(sound: np.ndarray) -> tuple[str, str]:
    """The voice and the words of a sound `[T]`."""
    wave = torch.from_numpy(sound)
    voice = "chelsie" if pitch_hz(wave) > PITCH_BORDER_HZ else "ethan"
    return voice, " ".join(hear(load_recogniser(), wave))


@pytest.mark.parametrize("name", PICTURES)
def test_a_shipped_workflow_gives_pictures_of_the_models_own_size(
    comfy: Comfy, runtime: Runtime, name: str
):
    fields = runtime.models["demo"]["stages"]["sample"]["params"]["properties"]
    size = (fields["width"]["default"], fields["height"]["default"])
    pictures = comfy.run(workflow(name))
    assert [picture.size for picture in pictures] == [size] * PICTURES[name]
    keep(name, sheet_of(pictures))
    assert all(any(low < high for low, high in p.getextrema()) for p in pictures)  # none is blank


def reseeded(name: str) -> Graph:
    """A shipped workflow with another seed: ComfyUI would not save again what it has just saved."""
    return with_inputs(workflow(name), "OmniStageSample", seed=4)


def test_inpainting_keeps_what_the_mask_leaves(comfy: Comfy):
    before, after = (np.asarray(picture, np.int16) for picture in comfy.run(reseeded("inpaint")))
    change = np.abs(before - after).max(axis=-1)
    assert change[:, :24].mean() < 2.5  # the VAE sees what is drawn anew from some way off
    assert change[:, 32:].mean() > 20


def test_a_guider_and_a_scheduler_make_other_pictures(comfy: Comfy):
    own, guided, scheduled = comfy.run(reseeded("guider_scheduler"))
    assert levels_apart(own, guided) > 20
    assert levels_apart(own, scheduled) > 2  # half the steps of a better scheduler come close


@pytest.mark.parametrize("name", TEXTS)
def test_a_shipped_workflow_gives_texts(comfy: Comfy, name: str):
    texts = comfy.texts(comfy.finished(comfy.queue(workflow(name))))
    assert len(texts) == TEXTS[name]
    keep(name, card(texts))
    assert all(text.strip() for text in texts)


@pytest.mark.parametrize("name", SOUNDS)
def test_a_shipped_workflow_says_the_right_words_in_the_right_voice(comfy: Comfy, name: str):
    sounds = sounds_of(comfy, comfy.finished(comfy.queue(workflow(name))))
    keep(name, waveform(sounds, [text for _, text in SOUNDS[name]]))
    assert [who_said(sound) for sound in sounds] == SOUNDS[name]


def test_the_demo_voice_cannot_hear_and_says_so_in_its_own_voice(comfy: Comfy):
    entry = comfy.finished(comfy.queue(workflow(ANSWERED)))
    (sound,) = sounds_of(comfy, entry)
    keep(ANSWERED, waveform([sound], ["sorry"]))
    assert comfy.texts(entry) == ["sorry"]
    voice, words = who_said(sound)
    assert voice == "chelsie"  # and not the one that asked
    assert words
    assert not set(words.split()) & set(DIGITS), "it repeats what it cannot have heard"


def test_every_shipped_workflow_is_run():
    here = PICTURES.keys() | TEXTS.keys() | SOUNDS.keys() | {ANSWERED}
    assert {path.stem for path in WORKFLOWS.glob("*.json")} == here | SMALL.keys()


@pytest.mark.parametrize("size", [(64, 64), (128, 64), (64, 96), (80, 112)])
def test_delivered_is_what_was_asked_for(comfy: Comfy, size: tuple[int, int]):
    (picture,) = comfy.run(small(width=size[0], height=size[1]))
    assert picture.size == size
