"""Every family alone, together, staggered, and beside neighbours that fail or are stopped."""

from __future__ import annotations

from functools import cache

import pytest

from omnistage.runtime.bench.pictures import PROMPTS, Diffusers, Picture, PictureRequest
from omnistage.runtime.models.catalogue import ModelEntry

from .harness import (
    TOLERANCE,
    Case,
    assert_same,
    run_alone,
    run_staggered,
    run_together,
    run_with_neighbours,
)

DEMO = ModelEntry("demo", "demo")
MODES = ("packed", "grouped", "single")


@cache
def qwen_image() -> Case:
    sizes = ((64, 64), (96, 64), (64, 64), (128, 96), (64, 64))
    requests = [
        PictureRequest(
            PROMPTS[i],
            seed=2**64 - 1 - i,
            width=width,
            height=height,
            steps=(5, 5, 6, 4, 7)[i],  # few: rounding grows with them, by the model's doing
            guidance=(4.0, 2.5, 1.0, 4.0, 7.0)[i],
            negative_prompt=(" ", "blue", " ", "", "a star")[i],
        )
        for i, (width, height) in enumerate(sizes)
    ]
    return Case("qwen-image", DEMO, requests, Diffusers(DEMO).one)


CASES = [qwen_image]


@pytest.fixture(scope="module", params=CASES, ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param()


@pytest.fixture(scope="module")
def reference(case: Case) -> list[Picture]:
    return [case.reference(request) for request in case.requests]


def test_strict_is_bit_identical_to_the_reference(case: Case, reference: list[Picture]) -> None:
    assert_same(run_together(case, strict=True), reference, tolerance=0)


@pytest.mark.parametrize("mode", MODES)
def test_alone(case: Case, reference: list[Picture], mode: str) -> None:
    assert_same(run_alone(case, mode=mode), reference, tolerance=TOLERANCE)


@pytest.mark.parametrize("mode", MODES)
def test_together(case: Case, reference: list[Picture], mode: str) -> None:
    assert_same(run_together(case, mode=mode), reference, tolerance=TOLERANCE)


def test_staggered(case: Case, reference: list[Picture]) -> None:
    assert_same(run_staggered(case), reference, tolerance=TOLERANCE)


@pytest.mark.parametrize("policy", ["fcfs", "fair", "priority"])
def test_every_policy(case: Case, reference: list[Picture], policy: str) -> None:
    assert_same(run_staggered(case, policy=policy), reference, tolerance=TOLERANCE)


@pytest.mark.parametrize("mode", ["packed", "grouped"])
def test_beside_a_neighbour_that_fails(case: Case, reference: list[Picture], mode: str) -> None:
    results, neighbour = run_with_neighbours(case, spoil=True, mode=mode)
    assert_same(results, reference, tolerance=TOLERANCE)
    assert neighbour.error is not None
    assert neighbour.picture is None


def test_beside_a_neighbour_that_is_stopped(case: Case, reference: list[Picture]) -> None:
    results, neighbour = run_with_neighbours(case, stop=True)
    assert_same(results, reference, tolerance=TOLERANCE)
    assert neighbour.cancelled
    assert neighbour.picture is None
