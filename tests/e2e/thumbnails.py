"""Thumbnails for ComfyUI's list of templates, of what a workflow makes."""

from __future__ import annotations

import math
import os
import textwrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from omnistage.runtime.bench.comfyui import WORKFLOWS

SIDE_PX = 384


def keep(name: str, picture: Image.Image) -> None:
    """Make it a workflow's thumbnail, if `UPDATE_THUMBNAILS` is set."""
    if os.environ.get("UPDATE_THUMBNAILS"):
        picture.save(WORKFLOWS / f"{name}.jpg", quality=90)


def sheet_of(pictures: list[Image.Image]) -> Image.Image:
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


def card(texts: list[str]) -> Image.Image:
    """Texts below each other on a square."""
    sheet = Image.new("RGB", (SIDE_PX, SIDE_PX), "#202020")
    lines = [line for text in texts for line in (*textwrap.wrap(text, 30), "")]
    font = ImageFont.load_default(20)
    ImageDraw.Draw(sheet).multiline_text((16, 16), "\n".join(lines), "white", font, spacing=6)
    return sheet


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
