"""The recogniser reads what the drawing code draws."""

import random

import pytest
from PIL import Image

from omnistage.runtime.demo.captions import COLOURS, Scene, random_scene
from omnistage.runtime.demo.drawing import draw
from omnistage.runtime.demo.recognise import matches, recognise


@pytest.mark.parametrize("size_px", [64, 96, 128])
def test_drawn_scenes_are_recognised(size_px):
    rng = random.Random(size_px)
    scenes = [random_scene(rng) for _ in range(120)]
    right = sum(matches(recognise(draw(scene, size_px, rng)), scene) for scene in scenes)
    assert right >= 0.99 * len(scenes)


def test_other_scene_does_not_match():
    picture = draw(Scene("star", "red", "blue"), 64)
    assert matches(recognise(picture), Scene("star", "red", "blue"))
    assert not matches(recognise(picture), Scene("circle", "red", "blue"))
    assert not matches(recognise(picture), Scene("star", "red", "blue", count=2))


def test_empty_picture_shows_only_a_background():
    sight = recognise(Image.new("RGB", (64, 64), COLOURS["pink"]))
    assert (sight.background, sight.shape, sight.count) == ("pink", "", 0)


def test_noise_does_not_crash():
    rng = random.Random(0)
    noise = Image.frombytes("RGB", (64, 64), rng.randbytes(64 * 64 * 3))
    assert recognise(noise).background in COLOURS
