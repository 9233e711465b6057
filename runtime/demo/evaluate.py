"""Scores a checkpoint: ``python -m omnistage.runtime.demo.evaluate [--checkpoint DIR]``.

Draws prompts that training never saw with the real ``QwenImagePipeline`` and asks the
recogniser what the pictures show. Exits with status 1 if a checked size is below target.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from diffusers import QwenImagePipeline
from PIL import Image

from .captions import Request, held_out_request
from .checkpoint import CHECKPOINT, GUIDANCE, STEPS, load_pipeline
from .recognise import Sight, recognise

COLOURS_TARGET: Final = 0.98
SHAPE_TARGET: Final = 0.90
_SEED: Final = 2024
_BATCH: Final = 20
_CHECKED_SIZES_PX: Final = (64, 128)


@dataclass(frozen=True, slots=True)
class Score:
    """Shares of pictures, 0..1, that show what the prompt says."""

    pictures: int
    background: float
    colour: float
    shape: float
    count: float
    position: float
    everything: float

    @property
    def good(self) -> bool:
        """Whether both colours and the shape reach their targets."""
        colours = min(self.background, self.colour)
        return colours >= COLOURS_TARGET and self.shape >= SHAPE_TARGET


def draw_prompts(
    pipeline: QwenImagePipeline,
    prompts: Sequence[str],
    size_px: int,
    steps: int = STEPS,
    guidance: float = GUIDANCE,
    seed: int = _SEED,
) -> list[Image.Image]:
    """One picture per prompt, with true classifier-free guidance against the empty prompt."""
    pictures: list[Image.Image] = []
    for start in range(0, len(prompts), _BATCH):
        part = list(prompts[start : start + _BATCH])
        pictures += pipeline(
            prompt=part,
            negative_prompt=[""] * len(part) if guidance > 1 else None,
            true_cfg_scale=guidance,
            height=size_px,
            width=size_px,
            num_inference_steps=steps,
            generator=torch.Generator().manual_seed(seed + start),
        ).images
    return pictures


def score(requests: Sequence[Request], pictures: Sequence[Image.Image]) -> Score:
    """Compares what the recogniser sees with what was asked for."""
    rows = [
        _right(request, recognise(picture))
        for request, picture in zip(requests, pictures, strict=True)
    ]
    shares = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    background, colour, shape, count, position = shares
    everything = sum(all(row) for row in rows) / len(rows)
    return Score(len(rows), background, colour, shape, count, position, everything)


def _right(request: Request, sight: Sight) -> list[bool]:
    names = ("background", "colour", "shape", "count", "position")
    return [getattr(sight, name) == getattr(request.scene, name) for name in names]


def _report(scores: dict[int, Score]) -> None:
    print("size   pictures  background  colour   shape   count  position     all")
    for size_px, result in scores.items():
        shares = (result.background, result.colour, result.shape, result.count, result.position)
        print(
            f"{size_px:4d} {result.pictures:10d} {shares[0]:11.1%} {shares[1]:7.1%}"
            f" {shares[2]:7.1%} {shares[3]:7.1%} {shares[4]:9.1%} {result.everything:7.1%}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--prompts", type=int, default=200, help="held-out prompts per size")
    parser.add_argument("--size", type=int, action="append", help="pixels; may be repeated")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--guidance", type=float, default=GUIDANCE)
    parser.add_argument("--seed", type=int, default=_SEED)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sheet", type=Path, help="write the pictures of each size as PNG here")
    parser.add_argument("--json", type=Path, help="write the scores here")
    return parser.parse_args()


def _write_sheet(pictures: Sequence[Image.Image], path: Path) -> None:
    side, columns = pictures[0].width, _BATCH
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * side, rows * side))
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (index % columns * side, index // columns * side))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def main() -> int:
    """Command line."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    pipeline = load_pipeline(arguments.checkpoint)
    rng = random.Random(arguments.seed)
    requests = [held_out_request(rng) for _ in range(arguments.prompts)]
    prompts = [request.text for request in requests]
    scores = {}
    for size_px in arguments.size or (64, 96, 128):
        pictures = draw_prompts(
            pipeline, prompts, size_px, arguments.steps, arguments.guidance, arguments.seed
        )
        scores[size_px] = score(requests, pictures)
        if arguments.sheet:
            _write_sheet(pictures, arguments.sheet / f"{size_px}.png")
    _report(scores)
    if arguments.json:
        shares = {size: {f: getattr(s, f) for f in Score.__slots__} for size, s in scores.items()}
        arguments.json.write_text(json.dumps(shares, indent=1) + "\n")
    failed = [size for size in _CHECKED_SIZES_PX if size in scores and not scores[size].good]
    if failed:
        targets = f"colours {COLOURS_TARGET:.0%}, shape {SHAPE_TARGET:.0%}"
        print(f"below target ({targets}) at {failed} px")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
