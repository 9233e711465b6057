"""Recognises what a generated picture shows, by classic geometry and no learning.

Pixels are split by palette colour, the object's mask is cut into connected parts, and each
part is compared with drawn templates of every shape. Knows nothing of models or prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .captions import COLOURS, MAX_COUNT, SHAPES, Scene
from .drawing import draw

Mask = NDArray[np.bool_]

_GRID: Final = 32
_BORDER: Final = 1 / 24
_MIN_PART: Final = 0.3
_MIN_AREA: Final = 0.004
_SIDE: Final = 0.06
_NAMES: Final = tuple(COLOURS)
_PALETTE: Final = np.array(list(COLOURS.values()), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a picture shows; ``shape`` is empty and ``count`` 0 if there is no object."""

    background: str
    colour: str = ""
    shape: str = ""
    count: int = 0
    position: str = ""


def recognise(picture: Image.Image) -> Sight:
    """Names the background, and the colour, shape, number and place of the objects."""
    pixels = np.asarray(picture.convert("RGB"), dtype=np.float32)
    labels = np.square(pixels[:, :, None] - _PALETTE).sum(-1).argmin(-1)
    background = int(_votes(_border(labels)).argmax())
    votes = _votes(_core(labels, background))
    if votes.max() < _MIN_AREA * labels.size:
        return Sight(_NAMES[background])
    colour = int(votes.argmax())
    parts = _large_parts(_object_mask(pixels, colour, background))
    if not parts:
        return Sight(_NAMES[background], _NAMES[colour])
    return Sight(
        background=_NAMES[background],
        colour=_NAMES[colour],
        shape=_shape(parts),
        count=len(parts),
        position=_position(parts),
    )


def _votes(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.bincount(labels.ravel(), minlength=len(_NAMES))


def _border(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    width = max(1, round(_BORDER * len(labels)))
    frame = np.ones(labels.shape, dtype=bool)
    frame[width:-width, width:-width] = False
    return labels[frame]


def _core(labels: NDArray[np.intp], background: int) -> NDArray[np.intp]:
    """Labels of non-background pixels whose four neighbours agree: no blurred edges."""
    inner = labels[1:-1, 1:-1]
    same = inner != background
    for neighbours in (labels[:-2, 1:-1], labels[2:, 1:-1], labels[1:-1, :-2], labels[1:-1, 2:]):
        same &= inner == neighbours
    return inner[same]


def _object_mask(pixels: NDArray[np.float32], colour: int, background: int) -> Mask:
    """Pixels nearer to the object's colour than to the background's."""
    near_object = np.square(pixels - _PALETTE[colour]).sum(-1)
    near_background = np.square(pixels - _PALETTE[background]).sum(-1)
    return near_object < near_background


def _large_parts(mask: Mask) -> list[Mask]:
    """Connected parts, largest first, without specks."""
    parts = sorted(_connected_parts(mask), key=lambda part: -int(part.sum()))
    if not parts or parts[0].sum() < _MIN_AREA * mask.size:
        return []
    least = _MIN_PART * parts[0].sum()
    return [part for part in parts if part.sum() >= least]


def _connected_parts(mask: Mask) -> list[Mask]:
    """Four-connected parts, by flood fill."""
    todo = {(int(y), int(x)) for y, x in zip(*mask.nonzero(), strict=True)}
    parts = []
    while todo:
        part = np.zeros_like(mask)
        front = [todo.pop()]
        while front:
            y, x = front.pop()
            part[y, x] = True
            for neighbour in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                if neighbour in todo:
                    todo.remove(neighbour)
                    front.append(neighbour)
        parts.append(part)
    return parts


def _shape(parts: list[Mask]) -> str:
    """The shape whose template overlaps the parts best, on average over the parts."""
    normalised = [_normalise(part) for part in parts[:MAX_COUNT]]
    scores = {
        shape: sum(_overlap(part, template) for part in normalised)
        for shape, template in _templates().items()
    }
    return max(scores, key=lambda shape: scores[shape])


def _position(parts: list[Mask]) -> str:
    """Where the middle of all parts' common box lies."""
    rows, columns = np.any(parts, axis=0).nonzero()
    side = len(parts[0])
    x = float(columns.min() + columns.max() + 1) / (2 * side) - 0.5
    y = float(rows.min() + rows.max() + 1) / (2 * side) - 0.5
    if max(abs(x), abs(y)) < _SIDE:
        return "centre"
    if abs(x) > abs(y):
        return "right" if x > 0 else "left"
    return "bottom" if y > 0 else "top"


@cache
def _templates() -> dict[str, NDArray[np.float32]]:
    """A normalised mask of every shape."""
    templates = {}
    for shape in SHAPES:
        drawn = draw(Scene(shape, "white", "black", size="large"), 128)
        pixels = np.asarray(drawn, dtype=np.float32).mean(-1)
        templates[shape] = _normalise(pixels > 128)
    return templates


def _normalise(mask: Mask) -> NDArray[np.float32]:
    """The mask's bounding box, stretched to a grid of soft values 0..1."""
    rows, columns = mask.nonzero()
    box = mask[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    picture = Image.fromarray(box.astype(np.uint8) * 255)
    grid = picture.resize((_GRID, _GRID), Image.Resampling.BILINEAR)
    return np.asarray(grid, dtype=np.float32) / np.float32(255)


def _overlap(part: NDArray[np.float32], template: NDArray[np.float32]) -> float:
    """Soft intersection over union."""
    return float(np.minimum(part, template).sum() / np.maximum(part, template).sum())


def matches(sight: Sight, scene: Scene) -> bool:
    """Whether the picture shows the scene, its size aside."""
    expected = Sight(scene.background, scene.colour, scene.shape, scene.count, scene.position)
    return sight == expected
