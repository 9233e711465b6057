"""The shipped workflows, as they are, through ComfyUI's HTTP queue.

`UPDATE_THUMBNAILS=1 pytest tests/e2e/test_workflows.py` makes their thumbnails anew.
"""

from __future__ import annotations

import math
import os
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from omnistage.runtime.bench.comfyui import WORKFLOWS, Comfy, workflow
from omnistage.runtime.bench.servers import Runtime
from omnistage.runtime.demo.speech.pitch import pitch_hz
from omnistage.runtime.demo.speech.recogniser import hear, load_recogniser
from omnistage.runtime.demo.speech.vocabulary import DIGITS
from omnistage.runtime.demo.speech.voices import PITCH_BORDER_HZ

from .comfy import small

pytestmark = pytest.mark.e2e

PICTURES = {
    "text_to_image": 1,
    "several_prompts": 4,
    "variations": 6,
    "image_to_image": 2,
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

SIDE_PX = 384


def thumbnail(pictures: list[Image.Image]) -> Image.Image:
    """The pictures side by side, in rows of at most three, on a square."""
    columns = min(3, math.ceil(len(pictures) ** 0.5))
    cell_px = SIDE_PX // columns
    rows = math.ceil(len(pictures) / columns)
    sheet = Image.new("RGB", (SIDE_PX, SIDE_PX), "white")
    top_px = (SIDE_PX - rows * cell_px) // 2
    for i, picture in enumerate(pictures):
        place = (i % columns * cell_px, top_px + i // columns * cell_px)
        sheet.paste(picture.resize((cell_px, cell_px), Image.Resampling.LANCZOS), place)
    return sheet


@pytest.mark.parametrize("name", PICTURES)
def test_a_shipped_workflow_gives_pictures_of_the_models_own_size(
    comfy: Comfy, runtime: Runtime, name: str
):
    fields = runtime.models["demo"]["stages"]["sample"]["params"]["properties"]
    size = (fields["width"]["default"], fields["height"]["default"])
    pictures = comfy.run(workflow(name))
    assert [picture.size for picture in pictures] == [size] * PICTURES[name]
    if os.environ.get("UPDATE_THUMBNAILS"):
        thumbnail(pictures).save(WORKFLOWS / f"{name}.jpg", quality=90)
    assert all(any(low < high for low, high in p.getextrema()) for p in pictures)  # none is blank


def card(texts: list[str]) -> Image.Image:
    """Texts below each other on a square."""
    sheet = Image.new("RGB", (SIDE_PX, SIDE_PX), "#202020")
    lines = [line for text in texts for line in (*textwrap.wrap(text, 30), "")]
    font = ImageFont.load_default(20)
    ImageDraw.Draw(sheet).multiline_text((16, 16), "\n".join(lines), "white", font, spacing=6)
    return sheet


@pytest.mark.parametrize("name", TEXTS)
def test_a_shipped_workflow_gives_texts(comfy: Comfy, name: str):
    texts = comfy.texts(comfy.finished(comfy.queue(workflow(name))))
    assert len(texts) == TEXTS[name]
    if os.environ.get("UPDATE_THUMBNAILS"):
        card(texts).save(WORKFLOWS / f"{name}.jpg", quality=90)
    assert all(text.strip() for text in texts)


def who_said(sound: np.ndarray) -> tuple[str, str]:
    """The voice and the words of a sound `[T]`."""
    wave = torch.from_numpy(sound)
    voice = "chelsie" if pitch_hz(wave) > PITCH_BORDER_HZ else "ethan"
    return voice, " ".join(hear(load_recogniser(), wave))


def sounds_of(comfy: Comfy, entry: dict[str, Any]) -> list[np.ndarray]:
    found = comfy.sounds(entry)
    assert {(len(samples), rate) for samples, rate in found} == {(1, 24000)}
    return [samples[0] for samples, _ in found]


def waveform(sounds: list[np.ndarray], texts: list[str]) -> Image.Image:
    """Sounds as curves below each other on a square, each with what it says."""
    sheet = Image.new("RGB", (SIDE_PX, SIDE_PX), "#202020")
    draw = ImageDraw.Draw(sheet)
    height_px = SIDE_PX // len(sounds)
    for i, (sound, text) in enumerate(zip(sounds, texts, strict=True)):
        middle = i * height_px + (height_px - 40) // 2 + 8
        for x, part in enumerate(np.array_split(sound, SIDE_PX - 32)):
            half = float(np.abs(part).max()) * (height_px - 72) / 2
            draw.line([(16 + x, middle - half), (16 + x, middle + half)], "#7fb2ff")
        place = (SIDE_PX // 2, (i + 1) * height_px - 24)
        draw.text(place, text, "white", ImageFont.load_default(18), anchor="mm")
    return sheet


@pytest.mark.parametrize("name", SOUNDS)
def test_a_shipped_workflow_says_the_right_words_in_the_right_voice(comfy: Comfy, name: str):
    sounds = sounds_of(comfy, comfy.finished(comfy.queue(workflow(name))))
    if os.environ.get("UPDATE_THUMBNAILS"):
        texts = [text for _, text in SOUNDS[name]]
        waveform(sounds, texts).save(WORKFLOWS / f"{name}.jpg", quality=90)
    assert [who_said(sound) for sound in sounds] == SOUNDS[name]


def test_the_demo_voice_cannot_hear_and_says_so_in_its_own_voice(comfy: Comfy):
    entry = comfy.finished(comfy.queue(workflow(ANSWERED)))
    (sound,) = sounds_of(comfy, entry)
    if os.environ.get("UPDATE_THUMBNAILS"):
        waveform([sound], ["sorry"]).save(WORKFLOWS / f"{ANSWERED}.jpg", quality=90)
    assert comfy.texts(entry) == ["sorry"]
    voice, words = who_said(sound)
    assert voice == "chelsie"  # and not the one that asked
    assert words
    assert not set(words.split()) & set(DIGITS), "it repeats what it cannot have heard"


def test_every_shipped_workflow_is_run():
    run = PICTURES.keys() | TEXTS.keys() | SOUNDS.keys() | {ANSWERED}
    assert {path.stem for path in WORKFLOWS.glob("*.json")} == run


@pytest.mark.parametrize("size", [(64, 64), (128, 64), (64, 96), (80, 112)])
def test_delivered_is_what_was_asked_for(comfy: Comfy, size: tuple[int, int]):
    (picture,) = comfy.run(small(width=size[0], height=size[1]))
    assert picture.size == size
