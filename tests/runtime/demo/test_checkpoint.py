"""The embedded checkpoint: small, loadable by diffusers alone, and it draws what it is told."""

import pytest
from diffusers import QwenImagePipeline

from omnistage.runtime.demo.captions import Scene
from omnistage.runtime.demo.checkpoint import (
    CHECKPOINT,
    MAX_CHECKPOINT_BYTES,
    checkpoint_bytes,
    load_pipeline,
)
from omnistage.runtime.demo.evaluate import draw_prompts
from omnistage.runtime.demo.recognise import recognise

PROMPTS = {
    "a red circle on a blue background": Scene("circle", "red", "blue"),
    "two green stars on white": Scene("star", "green", "white", count=2),
    "red circle, blue background": Scene("circle", "red", "blue"),
    "an orange ring on a black background": Scene("ring", "orange", "black"),
    "blue background with a small white star on the left": Scene(
        "star", "white", "blue", size="small", position="left"
    ),
    "yellow triangle, purple background": Scene("triangle", "yellow", "purple"),
}


@pytest.fixture(scope="module")
def pipeline():
    return load_pipeline()


def test_fits_in_the_repository():
    assert checkpoint_bytes(CHECKPOINT) <= MAX_CHECKPOINT_BYTES


def test_is_the_real_pipeline(pipeline):
    assert type(pipeline) is QwenImagePipeline
    assert type(pipeline.transformer).__name__ == "QwenImageTransformer2DModel"
    assert type(pipeline.text_encoder).__name__ == "Qwen2_5_VLForConditionalGeneration"


@pytest.fixture(scope="module")
def sights(pipeline):
    return [recognise(picture) for picture in draw_prompts(pipeline, list(PROMPTS), 64)]


def test_colours_are_as_told(sights):
    for sight, scene in zip(sights, PROMPTS.values(), strict=True):
        assert (sight.background, sight.colour) == (scene.background, scene.colour)


def test_shapes_have_not_become_worse(sights):
    """A floor, not the aim: the aim, and how far it is, stand in runtime/demo/README.md."""
    right = sum(
        (sight.shape, sight.count) == (scene.shape, scene.count)
        for sight, scene in zip(sights, PROMPTS.values(), strict=True)
    )
    assert right >= len(PROMPTS) - 1
