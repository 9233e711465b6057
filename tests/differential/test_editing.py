"""Editing: image to image and inpainting, through VAE Encode, and what may be left as it was.

A family is a row of `CASES`. References are diffusers' own blocks, run undisturbed; each stage has
a generator of its own, so theirs is set back between the two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from omnistage.runtime.bench.pictures import Picture, PictureRequest, make_engine
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.modular.family import ModularFamily
from omnistage.runtime.models.modular.params import UnguidedTextParams
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS

from .harness import PICTURE_TOLERANCE, TOLERANCE, assert_same, run
from .modular import ModularReference

SIZES = ((64, 64), (96, 64), (64, 64))
STRENGTHS = (0.6, 0.5, 0.8)
CASES = {
    "qwen_image": "changes",
    "flux": "changes",
    "z_image": "changes",
    "sd3": "changes",
    "sdxl": "changes",
    "anima": "changes",
    "qwen_image inpaint": "inpaints",
    "sdxl inpaint": "inpaints",
    "qwen_image_edit inpaint": "inpaints",
}
EIGHT_BITS = {"qwen_image inpaint", "qwen_image_edit inpaint"}
"""Where diffusers gives pictures of 8 bits and nothing else."""
ROUNDING = 0.51 / 255


@pytest.fixture(scope="module", autouse=True)
def small_pictures() -> Any:
    """Qwen-Image-Edit would enlarge each picture to a million pixels."""
    from diffusers.modular_pipelines.qwenimage import encoders

    def small(area: int, ratio: float) -> tuple[int, int, None]:
        return (96 if ratio > 1 else 64, 64, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "calculate_dimensions", small)
        yield


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(case: str, tmp_path_factory: pytest.TempPathFactory) -> ModelEntry:
    family = case.partition(" ")[0]
    folder = tmp_path_factory.mktemp(family)
    CHECKPOINTS[family](folder)
    return ModelEntry(family, str(folder))


@pytest.fixture(scope="module")
def engine(model: ModelEntry) -> DiffusionEngine:
    return make_engine(model, profile=False)


@pytest.fixture(scope="module")
def requests(case: str, model: ModelEntry) -> list[PictureRequest]:
    random = np.random.default_rng(0)
    made = []
    family = model.checkpoint.family
    assert isinstance(family, ModularFamily)
    for i, (width, height) in enumerate(SIZES):
        mask = np.zeros((1, height, width, 1), np.float32)
        mask[:, 16:48, 16 : 40 + 8 * i] = 1
        source = random.random((1, height, width, 3), np.float32)
        made.append(
            PictureRequest(
                ("a red circle", "two green stars on white", "blue")[i],
                seed=2**64 - 1 - i,
                width=width,
                height=height,
                steps=5,
                guidance=3.0,
                negative_prompt="" if issubclass(family.text, UnguidedTextParams) else "grey",
                source=source,
                references=source if family.needs_reference else None,
                mask=mask if CASES[case] == "inpaints" else None,
                more={"denoise": STRENGTHS[i]},
            )
        )
    return made


@pytest.fixture(scope="module")
def reference(model: ModelEntry, requests: list[PictureRequest]) -> list[Picture]:
    own = ModularReference(model)
    return [own.one(request) for request in requests]


def bits(pictures: list[Picture]) -> list[Picture]:
    """With pictures of 8 bits."""
    return [replace(p, picture=(p.picture * 255).round() / 255) for p in pictures]


def test_strict_is_bit_identical(
    case: str,
    engine: DiffusionEngine,
    model: ModelEntry,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    got = run(engine, model, [replace(request, strict=True) for request in requests])
    assert_same(bits(got) if case in EIGHT_BITS else got, reference, tolerance=0)


def test_alone_and_together(
    case: str,
    engine: DiffusionEngine,
    model: ModelEntry,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    alone = [run(engine, model, [request])[0] for request in requests]
    plain = replace(requests[0], source=None, mask=None, more={}, seed=5)  # in their company
    *together, _ = run(engine, model, [*requests, plain])
    tolerance = ROUNDING if case in EIGHT_BITS else PICTURE_TOLERANCE
    for got in (alone, together):
        assert_same(got, reference, tolerance=TOLERANCE, picture_tolerance=tolerance)
