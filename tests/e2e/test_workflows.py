"""The shipped workflows, as they are, through ComfyUI's HTTP queue.

`UPDATE_THUMBNAILS=1 pytest tests/e2e/test_workflows.py` makes their thumbnails anew.
"""

from __future__ import annotations

import math
import os
import textwrap

import pytest
from PIL import Image, ImageDraw, ImageFont

from omnistage.runtime.bench.comfyui import WORKFLOWS, Comfy, workflow
from omnistage.runtime.bench.servers import Runtime

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


def test_every_shipped_workflow_is_run():
    assert {path.stem for path in WORKFLOWS.glob("*.json")} == PICTURES.keys() | TEXTS.keys()


@pytest.mark.parametrize("size", [(64, 64), (128, 64), (64, 96), (80, 112)])
def test_delivered_is_what_was_asked_for(comfy: Comfy, size: tuple[int, int]):
    (picture,) = comfy.run(small(width=size[0], height=size[1]))
    assert picture.size == size
