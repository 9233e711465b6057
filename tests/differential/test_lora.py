"""Requests with other adapters, or none, beside each other: each gets what it gets alone.

The reference is diffusers' own pipeline with its own `load_lora_weights` and `set_adapters`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omnistage.runtime.bench.pictures import (
    PROMPTS,
    Diffusers,
    EngineRun,
    Picture,
    PictureRequest,
    make_engine,
)
from omnistage.runtime.models.catalogue import ModelEntry

from ..fakes.lora_files import QWEN_LAYERS, kohya, lora_weights, save
from .harness import (
    TOLERANCE,
    Case,
    assert_same,
    run_alone,
    run_staggered,
    run_together,
    run_with_neighbours,
)

MODES = ("packed", "grouped", "single")
ADAPTERS = (
    (("A", 1.0),),
    (("A", 0.3),),
    (),
    (("A", 1.0), ("B", -0.5)),
    (("B", 1.0),),
)


class Adapted(Diffusers):
    """The pipeline with the adapters that a request asks for."""

    def __init__(self, model: ModelEntry) -> None:
        super().__init__(model)
        for name, file in model.loras.files().items():
            self._pipeline.load_lora_weights(str(file.path), adapter_name=name)

    def one(self, request: PictureRequest) -> Picture:
        if request.loras:
            self._pipeline.enable_lora()
            names, strengths = zip(*request.loras, strict=True)
            self._pipeline.set_adapters(list(names), list(strengths))
        else:
            self._pipeline.disable_lora()
        return super().one(request)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder: Path = tmp_path_factory.mktemp("loras")
    model = ModelEntry("demo", "demo", lora_folders=[str(folder)])
    transformer = Diffusers(model)._pipeline.transformer
    save(folder, "A", lora_weights(transformer, rank=4, seed=1))
    few = QWEN_LAYERS[5::2]
    save(folder, "B", kohya(lora_weights(transformer, few, rank=9, seed=2, size=0.1), alpha=4.5))
    requests = [
        PictureRequest(
            PROMPTS[i],
            seed=i,
            width=(64, 96, 64)[i % 3],
            steps=(3, 4, 3)[i % 3],
            negative_prompt=(" ", "blue", "")[i % 3],
            loras=loras,
        )
        for i, loras in enumerate(ADAPTERS)
    ]
    return Case("qwen-image", model, requests, Adapted(model).one)


@pytest.fixture(scope="module")
def reference(case: Case) -> list[Picture]:
    return [case.reference(request) for request in case.requests]


def test_adapters_change_the_pictures(case: Case, reference: list[Picture]) -> None:
    for request, picture in zip(case.requests, reference, strict=True):
        plain = case.reference(replace(request, loras=()))
        assert picture.latent is not None
        assert plain.latent is not None
        effect = float((picture.latent - plain.latent).abs().max())
        changed = any(strength for _, strength in request.loras)
        assert effect > 0.02 if changed else effect == 0


def test_strict_is_bit_identical_to_diffusers(case: Case, reference: list[Picture]) -> None:
    assert_same(run_together(case, strict=True), reference, tolerance=0)


def test_requests_without_adapters_keep_their_bits_beside_others(case: Case) -> None:
    def run(requests: list[PictureRequest]) -> list[Picture]:
        return EngineRun(make_engine(case.model, strict=True), requests, case.model.id).run()

    plain = [request for request in case.requests if not request.loras]
    beside = run([*case.requests])
    got = [p for p, r in zip(beside, case.requests, strict=True) if not r.loras]
    assert_same(got, run(plain), tolerance=0)


@pytest.mark.parametrize("mode", MODES)
def test_alone(case: Case, reference: list[Picture], mode: str) -> None:
    assert_same(run_alone(case, mode=mode), reference, tolerance=TOLERANCE)


@pytest.mark.parametrize("mode", MODES)
def test_together(case: Case, reference: list[Picture], mode: str) -> None:
    assert_same(run_together(case, mode=mode), reference, tolerance=TOLERANCE)


@pytest.mark.parametrize("mode", ["packed", "grouped"])
def test_staggered(case: Case, reference: list[Picture], mode: str) -> None:
    assert_same(run_staggered(case, mode=mode), reference, tolerance=TOLERANCE)


@pytest.mark.parametrize("mode", ["packed", "grouped"])
def test_beside_a_neighbour_that_fails(case: Case, reference: list[Picture], mode: str) -> None:
    results, neighbour = run_with_neighbours(case, spoil=True, mode=mode)
    assert_same(results, reference, tolerance=TOLERANCE)
    assert neighbour.error is not None


def test_beside_a_neighbour_that_is_stopped(case: Case, reference: list[Picture]) -> None:
    results, neighbour = run_with_neighbours(case, stop=True)
    assert_same(results, reference, tolerance=TOLERANCE)
    assert neighbour.cancelled
