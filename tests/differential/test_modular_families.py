"""Every modular family alone, together, staggered, and beside neighbours that fail or are stopped.

A family is a row of `FAMILIES`. References are diffusers' own blocks, run undisturbed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from omnistage.runtime.bench.pictures import Picture, PictureRequest, make_engine
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.tests.fakes.codecs import fill_batches
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS

from .harness import FILM_TOLERANCE, PICTURE_TOLERANCE, TOLERANCE, DisturbedRun, assert_same, run
from .modular import ModularReference

PROMPTS = ("a red circle", "two green stars on white", "blue", "a red circle on a black square")


@dataclass(frozen=True)
class Row:
    """One family in the suite.

    Attributes:
        guidance: of its requests, and one that differs.
        more: further parameters of all requests.
        references: pictures that each request is about.
        fewer: those of one request that has fewer; None: none has.
        channels: of these pictures.
        sounds: whether films have sound.
        negatives: whether the family takes negative prompts.
        prompts: of its requests.
        merges: whether requests of one size share forward passes.
        packs: whether those of other sizes share them, too.
        wide: the width of the one that is wider.
        tells: whether sampling tells of its steps.
    """

    guidance: tuple[float, float] = (3.0, 5.0)
    more: Mapping[str, Any] = field(default_factory=dict)
    references: int = 0
    fewer: int | None = None
    channels: int = 3
    sounds: bool = False
    negatives: bool = True
    prompts: tuple[str, ...] = PROMPTS
    merges: bool = True
    packs: bool = False
    wide: int = 96
    tells: bool = True


FAMILIES = {
    "qwen_image": Row(packs=True),
    "qwen_image_edit": Row(references=1, packs=True),
    "qwen_image_edit_plus": Row(references=3, fewer=1, packs=True),
    "qwen_image_edit_2511": Row(references=2, fewer=1, packs=True),
    "qwen_image_layered": Row(more={"layers": 2}, references=1, channels=4),
    "flux": Row(negatives=False, packs=True),
    "flux_kontext": Row(references=1, fewer=0, negatives=False, packs=True),
    "flux2": Row(negatives=False),
    "flux2_klein": Row(guidance=(1.0, 1.0), negatives=False),
    "flux2_klein_base": Row(references=1),
    "z_image": Row(),
    "sd3": Row(),
    "sdxl": Row(),
    "wan": Row(more={"frames": 5}),
    "wan22": Row(more={"frames": 5}),
    "wan_i2v": Row(more={"frames": 5}, references=1),
    "wan22_i2v": Row(more={"frames": 5}, references=1),
    "ltx2": Row(more={"frames": 9, "stg": 1.0, "stg_layers": [1]}, sounds=True),
    "ltx": Row(more={"frames": 9}),
    "ltx_i2v": Row(more={"frames": 9}, references=1),
    "ernie_image": Row(),
    "hunyuan15": Row(
        prompts=('a sign: "red"', *PROMPTS[1:]), more={"frames": 5}, references=1, fewer=0
    ),
    "anima": Row(),
    "krea2": Row(),
    "krea2_turbo": Row(guidance=(1.0, 1.0), negatives=False),
    "ideogram4": Row(negatives=False),
    "helios": Row(more={"frames": 65}, references=1, fewer=0, tells=False),
    "helios_pyramid": Row(more={"frames": 33}, wide=128, tells=False),
    "helios_pyramid_distilled": Row(more={"frames": 33}, wide=128, tells=False),
    "qwen_image_21": Row(prompts=(*PROMPTS[:3], "a blue circle")),
    "qwen_image_21_turbo": Row(
        guidance=(1.0, 1.0), references=1, channels=4, negatives=False, merges=False
    ),
    "flux3": Row(references=1, fewer=0, merges=False),
    "ltx25": Row(
        more={"frames": 9, "stg": 1.0, "stg_layers": [1]}, references=1, fewer=0, sounds=True
    ),
    "echo": Row(more={"frames": 9}, references=1, fewer=0, sounds=True, negatives=False),
    "flux3_distilled": Row(guidance=(1.0, 1.0), negatives=False, merges=False),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> ModelEntry:
    folder = tmp_path_factory.mktemp(family)
    CHECKPOINTS[family](folder)
    return ModelEntry(family, str(folder))


@pytest.fixture(scope="module", autouse=True)
def small_references() -> Any:
    """The editing families enlarge each reference picture to a million pixels."""
    from diffusers.modular_pipelines.qwenimage import encoders
    from diffusers.modular_pipelines.qwenimage21 import encoders as encoders_21
    from diffusers.pipelines.flux import pipeline_flux_kontext

    def small(area: int, ratio: float) -> tuple[int, int, None]:
        return (96 if ratio > 1 else 64, 64, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "calculate_dimensions", small)
        patch.setattr(encoders_21, "calculate_dimensions", small)
        patch.setattr(pipeline_flux_kontext, "PREFERRED_KONTEXT_RESOLUTIONS", [(64, 64), (96, 64)])
        yield


@pytest.fixture(autouse=True)
def full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    fill_batches(monkeypatch)


@pytest.fixture(scope="module")
def requests(family: str) -> list[PictureRequest]:
    row = FAMILIES[family]
    sizes = ((64, 64), (row.wide, 64), (64, 64), (64, 64))
    random = np.random.default_rng(0)
    counts = [row.references] * len(sizes)
    if row.fewer is not None:
        counts[2] = row.fewer
    return [
        PictureRequest(
            row.prompts[i],
            seed=2**64 - 1 - i,
            width=width,
            height=height,
            steps=(3, 3, 4, 3)[i],
            guidance=row.guidance[i == 2],
            negative_prompt="grey" if row.negatives else "",
            references=random.random((counts[i], height, width, row.channels), np.float32)
            if counts[i]
            else None,
            more=row.more,
        )
        for i, (width, height) in enumerate(sizes)
    ]


@pytest.fixture(scope="module")
def reference(model: ModelEntry, requests: list[PictureRequest]) -> list[Picture]:
    own = ModularReference(model)
    return [own.one(request) for request in requests]


@pytest.fixture(scope="module")
def engine(model: ModelEntry) -> DiffusionEngine:
    return make_engine(model, profile=False)


def assert_close(family: str, got: list[Picture], want: list[Picture]) -> None:
    pictures = FILM_TOLERANCE if "frames" in FAMILIES[family].more else PICTURE_TOLERANCE
    assert_same(got, want, tolerance=TOLERANCE, picture_tolerance=pictures)
    assert_same_sound(got, want, tolerance=TOLERANCE)


def assert_same_sound(got: list[Picture], want: list[Picture], *, tolerance: float) -> None:
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.sound is None) == (theirs.sound is None)
        if ours.sound is not None and theirs.sound is not None:
            assert ours.sound.shape == theirs.sound.shape
            difference = (ours.sound - theirs.sound).abs().max()
            assert difference <= tolerance * theirs.sound.abs().max()


def denoise_forwards(engine: DiffusionEngine) -> int:
    return int(engine.stats()["denoise_forwards"])


def test_strict_is_bit_identical(
    engine: DiffusionEngine,
    model: ModelEntry,
    requests: list[PictureRequest],
    reference: list[Picture],
    family: str,
) -> None:
    strict = [replace(request, strict=True) for request in requests]
    pictures = run(engine, model, strict)
    assert_same(pictures, reference, tolerance=0)
    assert_same_sound(pictures, reference, tolerance=0)
    assert all((picture.sound is not None) == FAMILIES[family].sounds for picture in pictures)


def test_alone_and_together(
    engine: DiffusionEngine,
    model: ModelEntry,
    family: str,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    start = denoise_forwards(engine)
    alone = [run(engine, model, [request])[0] for request in requests]
    between = denoise_forwards(engine)
    together = run(engine, model, requests)
    end = denoise_forwards(engine)
    assert_close(family, alone, reference)
    assert_close(family, together, reference)
    if FAMILIES[family].merges:
        assert end - between < between - start
    if FAMILIES[family].packs:
        assert end - between == max(request.steps for request in requests)
    distinct = {float(picture.latent.abs().sum()) for picture in together}
    assert len(distinct) == len(requests)


def test_staggered(
    engine: DiffusionEngine,
    model: ModelEntry,
    family: str,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    late = [replace(request, arrive=5 * i) for i, request in enumerate(requests)]
    assert_close(family, run(engine, model, late), reference)


@pytest.mark.parametrize("fate", ["fails", "is stopped"])
def test_beside_a_neighbour_that(
    fate: str,
    engine: DiffusionEngine,
    model: ModelEntry,
    family: str,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    all_of_them = [*requests, replace(requests[0], seed=99)]
    last = len(requests)
    *results, neighbour = DisturbedRun(
        engine,
        all_of_them,
        model.id,
        model.graph,
        spoil=[last] if fate == "fails" else [],
        stop={last: 2 * FAMILIES[family].tells} if fate == "is stopped" else None,
    ).run()
    assert_close(family, results, reference)
    assert neighbour.picture is None
    assert neighbour.cancelled or neighbour.error is not None
