"""ControlNets per request: with others, with other strengths, and beside requests without any.

A family is a row of `FAMILIES`. References are diffusers' own blocks, run undisturbed; each stage
has a generator of its own, and so has the encoding of the picture that steers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from omnistage.runtime.bench.pictures import Picture, PictureRequest, make_engine
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.tests.fakes.codecs import fill_batches
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS

from .harness import TOLERANCE, assert_same, run
from .modular import ModularReference

FAMILIES = ("qwen_image_controlnet", "sdxl_controlnet")
CONTROLS: tuple[dict[str, Any] | None, ...] = (
    {"name": "lines"},
    {"name": "lines", "strength": 0.5},
    None,
    {"name": "depth", "start": 0.3, "end": 0.7},
    {"name": "lines"},
)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> ModelEntry:
    folder, other = tmp_path_factory.mktemp(family), tmp_path_factory.mktemp("other")
    CHECKPOINTS[family](folder)
    CHECKPOINTS[family](other, 1)
    made = {"lines": str(folder / "controlnet"), "depth": str(other / "controlnet")}
    return ModelEntry(family, str(folder), controlnets=made)


@pytest.fixture(autouse=True)
def full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    fill_batches(monkeypatch)


@pytest.fixture(scope="module")
def requests() -> list[PictureRequest]:
    random = np.random.default_rng(0)
    widths = (64, 64, 64, 96, 64)
    return [
        PictureRequest(
            "a red circle" if i else "two green stars on white",
            seed=2**64 - 1 - i,
            width=width,
            steps=(3, 3, 4, 5, 3)[i],
            guidance=3.0,
            negative_prompt="grey",
            control=None if control is None else random.random((1, 64, width, 3), np.float32),
            more={} if control is None else {"control": control},
        )
        for i, (width, control) in enumerate(zip(widths, CONTROLS, strict=True))
    ]


@pytest.fixture(scope="module")
def reference(model: ModelEntry, requests: list[PictureRequest]) -> list[Picture]:
    own = ModularReference(model)
    return [own.one(request) for request in requests]


@pytest.fixture(scope="module")
def engine(model: ModelEntry) -> DiffusionEngine:
    return make_engine(model, profile=False)


def test_strict_is_bit_identical(
    engine: DiffusionEngine,
    model: ModelEntry,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    got = run(engine, model, [replace(request, strict=True) for request in requests])
    assert_same(got, reference, tolerance=0)


def test_alone_and_together(
    engine: DiffusionEngine,
    model: ModelEntry,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    start = int(engine.stats()["denoise_forwards"])
    alone = [run(engine, model, [request])[0] for request in requests]
    between = int(engine.stats()["denoise_forwards"])
    together = run(engine, model, requests)
    assert int(engine.stats()["denoise_forwards"]) - between < between - start
    for got in (alone, together):
        assert_same(got, reference, tolerance=TOLERANCE)


def test_staggered(
    engine: DiffusionEngine,
    model: ModelEntry,
    requests: list[PictureRequest],
    reference: list[Picture],
) -> None:
    late = [replace(request, arrive=5 * i) for i, request in enumerate(requests)]
    assert_same(run(engine, model, late), reference, tolerance=TOLERANCE)


def test_every_part_of_it_changes_the_picture(
    engine: DiffusionEngine, model: ModelEntry, requests: list[PictureRequest]
) -> None:
    first = requests[0]
    picture = first.control
    assert picture is not None

    def with_(**control: Any) -> PictureRequest:
        return replace(first, more={"control": {"name": "lines", **control}})

    made = run(
        engine,
        model,
        [
            first,
            replace(first, control=None, more={}),
            replace(first, control=1 - picture),
            with_(name="depth"),
            with_(strength=0.5),
            with_(start=0.5),
            with_(end=0.5),
        ],
    )
    for i, one in enumerate(made):
        for other in made[:i]:
            assert one.latent is not None
            assert other.latent is not None
            assert float((one.latent - other.latent).abs().max()) > 1e-3


def test_it_steers_changes_and_inpainting_too(
    family: str, engine: DiffusionEngine, model: ModelEntry, requests: list[PictureRequest]
) -> None:
    mask = np.zeros((1, 64, 64, 1), np.float32)
    mask[:, 16:48, 16:40] = 1
    source = np.random.default_rng(1).random((1, 64, 64, 3), np.float32)
    changed = replace(
        requests[0], source=source, steps=5, more={"control": {"name": "lines"}, "denoise": 0.6}
    )
    made = [changed, replace(changed, mask=mask)]
    own = ModularReference(model)
    reference = [own.one(request) for request in made]
    bits = 0.51 / 255 if family.startswith("qwen") else 1e-4  # see test_editing
    got = run(engine, model, made)
    assert_same(got, reference, tolerance=TOLERANCE, picture_tolerance=bits)
    strict = run(engine, model, [replace(request, strict=True) for request in made])
    for ours, theirs in zip(strict, reference, strict=True):
        assert ours.latent is not None
        assert theirs.latent is not None
        assert bool((ours.latent == theirs.latent).all())
