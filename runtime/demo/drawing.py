"""Draws a :class:`Scene` at any size with PIL, antialiased.

Owns the geometry of shapes, sizes and positions. Knows nothing of words or models.
"""

from __future__ import annotations

import math
import random
from typing import Final

from PIL import Image, ImageDraw

from .captions import COLOURS, Scene

Point = tuple[float, float]
Colour = tuple[int, int, int]

_SUPERSAMPLING: Final = 4
_SINGLE_RADIUS: Final = {"small": 0.19, "normal": 0.27, "large": 0.35}
_PAIR_RADIUS: Final = {"small": 0.165, "normal": 0.195, "large": 0.22}
_PAIR_OFFSET: Final = 0.245
_MARGIN: Final = 0.03
_DIRECTIONS: Final = {
    "centre": (0, 0),
    "left": (-1, 0),
    "right": (1, 0),
    "top": (0, -1),
    "bottom": (0, 1),
}
_RING_HOLE: Final = 0.55
_STAR_WAIST: Final = 0.42
_SQUARE_HALF_SIDE: Final = 0.86
_CIRCLE_RADIUS: Final = 0.96


def draw(scene: Scene, size_px: int, rng: random.Random | None = None) -> Image.Image:
    """Draws ``scene`` as an RGB picture of ``size_px`` squared.

    With ``rng``, place and size vary by a percent or two; without, the picture is fixed.
    """
    side = size_px * _SUPERSAMPLING
    picture = Image.new("RGB", (side, side), COLOURS[scene.background])
    canvas = ImageDraw.Draw(picture)
    radius, centres = layout(scene, rng)
    for x, y in centres:
        draw_shape(
            canvas,
            scene.shape,
            (x * side, y * side),
            radius * side,
            COLOURS[scene.colour],
            COLOURS[scene.background],
        )
    return picture.resize((size_px, size_px), Image.Resampling.BOX)


def layout(scene: Scene, rng: random.Random | None = None) -> tuple[float, list[Point]]:
    """Radius and centres of the objects, as fractions of the picture's side.

    A pair stands side by side, or one above the other when it is on the left or right.
    """
    radius = (_SINGLE_RADIUS if scene.count == 1 else _PAIR_RADIUS)[scene.size]
    shift = 0.5 - radius - _MARGIN
    x_direction, y_direction = _DIRECTIONS[scene.position]
    x, y = 0.5 + shift * x_direction, 0.5 + shift * y_direction
    if rng is not None:
        radius *= rng.uniform(0.98, 1.02)
        x, y = x + rng.uniform(-0.007, 0.007), y + rng.uniform(-0.007, 0.007)
    if scene.count == 1:
        return radius, [(x, y)]
    if x_direction:
        return radius, [(x, y - _PAIR_OFFSET), (x, y + _PAIR_OFFSET)]
    return radius, [(x - _PAIR_OFFSET, y), (x + _PAIR_OFFSET, y)]


def draw_shape(
    canvas: ImageDraw.ImageDraw,
    shape: str,
    centre: Point,
    radius: float,
    colour: Colour,
    background: Colour,
) -> None:
    """Draws one filled shape; a ring's hole is painted in the background colour."""
    match shape:
        case "circle":
            canvas.ellipse(_box(centre, radius * _CIRCLE_RADIUS), fill=colour)
        case "ring":
            canvas.ellipse(_box(centre, radius * _CIRCLE_RADIUS), fill=colour)
            canvas.ellipse(_box(centre, radius * _RING_HOLE), fill=background)
        case "square":
            canvas.rectangle(_box(centre, radius * _SQUARE_HALF_SIDE), fill=colour)
        case "triangle":
            canvas.polygon(_triangle(centre, radius), fill=colour)
        case "diamond":
            canvas.polygon(_corners(centre, [radius] * 4), fill=colour)
        case "star":
            canvas.polygon(_corners(centre, [radius, radius * _STAR_WAIST] * 5), fill=colour)
        case _:
            raise ValueError(f"unknown shape {shape!r}")


def _box(centre: Point, half_side: float) -> tuple[float, float, float, float]:
    x, y = centre
    return x - half_side, y - half_side, x + half_side, y + half_side


def _triangle(centre: Point, radius: float) -> list[Point]:
    """An upright triangle that fills its box better than one inscribed in the circle."""
    x, y = centre
    return [(x, y - radius), (x + radius, y + 0.8 * radius), (x - radius, y + 0.8 * radius)]


def _corners(centre: Point, radii: list[float]) -> list[Point]:
    """Corners at equal angles, the first straight up."""
    x, y = centre
    step = 2 * math.pi / len(radii)
    return [
        (x + radius * math.sin(step * index), y - radius * math.cos(step * index))
        for index, radius in enumerate(radii)
    ]
