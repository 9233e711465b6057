"""Requests with guiders of their own, alone and in company, give what diffusers gives.

- strict mode is bit-identical to diffusers' blocks, run alone with the module itself
- everything else stays within 2e-5 of the largest value
- whatever happens, nothing of a guider stays on the shared module
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffusers
import pytest
import torch
from diffusers import guiders
from diffusers.hooks import LayerSkipConfig
from pydantic import TypeAdapter

from omnistage.runtime.engine.diffusion.hooks import hooks_on
from omnistage.runtime.models.modular.guider_params import KINDS, guider_type
from omnistage.runtime.protocol.errors import OmniStageError
from omnistage.tests.fakes import denoising
from omnistage.tests.fakes.denoising import Denoising, request, run

from .harness import TOLERANCE

ANY = TypeAdapter(guider_type(KINDS))

MADE: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "cfg": ({"kind": "cfg"}, lambda: diffusers.ClassifierFreeGuidance(3.0)),
    "cfg, in part": (
        {"kind": "cfg", "start": 0.3, "stop": 0.8, "guidance_rescale": 0.5},
        lambda: diffusers.ClassifierFreeGuidance(3.0, start=0.3, stop=0.8, guidance_rescale=0.5),
    ),
    "cfg, original": (
        {"kind": "cfg", "use_original_formulation": True},
        lambda: diffusers.ClassifierFreeGuidance(3.0, use_original_formulation=True),
    ),
    "cfg_zero_star": (
        {"kind": "cfg_zero_star"},
        lambda: diffusers.ClassifierFreeZeroStarGuidance(3.0),
    ),
    "apg": (
        {"kind": "apg", "adaptive_projected_guidance_rescale": 1.0},
        lambda: diffusers.AdaptiveProjectedGuidance(3.0, adaptive_projected_guidance_rescale=1.0),
    ),
    "apg, with momentum": (
        {"kind": "apg", "adaptive_projected_guidance_momentum": -0.5, "eta": 0.2},
        lambda: diffusers.AdaptiveProjectedGuidance(
            3.0, adaptive_projected_guidance_momentum=-0.5, eta=0.2
        ),
    ),
    "apg_mix": (
        {"kind": "apg_mix", "adaptive_projected_guidance_start_step": 2},
        lambda: diffusers.AdaptiveProjectedMixGuidance(
            3.0, adaptive_projected_guidance_start_step=2
        ),
    ),
    "tcfg": ({"kind": "tcfg"}, lambda: diffusers.TangentialClassifierFreeGuidance(3.0)),
    "mag": ({"kind": "mag", "alpha": 2.0}, lambda: guiders.MagnitudeAwareGuidance(3.0, alpha=2.0)),
    "slg": (
        {
            "kind": "slg",
            "skip_layer_guidance_layers": [1],
            "skip_layer_guidance_start": 0.0,
            "skip_layer_guidance_stop": 1.0,
        },
        lambda: diffusers.SkipLayerGuidance(
            3.0,
            skip_layer_config=LayerSkipConfig([1]),
            skip_layer_guidance_start=0.0,
            skip_layer_guidance_stop=1.0,
        ),
    ),
    "pag": (
        {
            "kind": "pag",
            "perturbed_guidance_layers": [1],
            "perturbed_guidance_start": 0.0,
            "perturbed_guidance_stop": 1.0,
        },
        lambda: diffusers.PerturbedAttentionGuidance(
            3.0,
            perturbed_guidance_layers=[1],
            perturbed_guidance_start=0.0,
            perturbed_guidance_stop=1.0,
        ),
    ),
    "auto": (
        {"kind": "auto", "auto_guidance_layers": [0]},
        lambda: diffusers.AutoGuidance(3.0, auto_guidance_config=LayerSkipConfig([0])),
    ),
}

COMMON = ["cfg", "cfg, in part", "cfg, original", "apg", "apg, with momentum", "apg_mix", "tcfg"]
FAMILIES: dict[Callable[[], Denoising], list[str]] = {
    denoising.qwen_image: [*COMMON, "mag", "pag"],
    denoising.wan: [*COMMON, "cfg_zero_star", "slg", "auto"],
}
"""What runs on a family; diffusers' own is broken for the rest."""


@pytest.fixture(params=FAMILIES, ids=lambda make: make.__name__, scope="module")
def kit(request: pytest.FixtureRequest) -> tuple[Denoising, list[dict[str, Any]], list[Any]]:
    """The family, a request with each guider and two with none, and what diffusers gives."""
    return made(request.param)


def made(make: Callable[[], Denoising]) -> tuple[Denoising, list[dict[str, Any]], list[Any]]:
    family, requests, wanted = make(), [], []
    for i, name in enumerate(FAMILIES[make]):
        given, guider = MADE[name]
        params = {"prompt": i % 3, "seed": i, "steps": 3 + i % 2}
        spec = ANY.validate_python(given).model_dump()
        requests.append(request(guider=spec, **params))
        wanted.append(family.reference(guider=guider(), **params))
        assert not hooks_on(family.denoiser), "diffusers cleans up after itself, run alone"
    for i in (0, 1):
        params = {"prompt": i, "seed": 40 + i, "steps": 5}
        requests.insert(4 * i + 1, request(**params))
        wanted.insert(4 * i + 1, family.reference(**params))
    return family, requests, wanted


def assert_same(got: list[Any], want: list[Any], tolerance: float, but: int | None = None) -> None:
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        if i == but:
            continue
        assert isinstance(ours, torch.Tensor), f"request {i}: {ours!r}"
        assert theirs.isfinite().all(), f"request {i}"
        difference = float((ours - theirs).abs().max())
        assert difference <= tolerance * float(theirs.abs().max()), f"request {i}: {difference}"


def test_strict_is_bit_identical(kit: Any) -> None:
    family, requests, wanted = kit
    assert_same(run(family.engine(strict=True), requests), wanted, 0.0)
    assert not hooks_on(family.denoiser)


def test_guiders_make_a_difference(kit: Any) -> None:
    """Else the rest of these tests would prove nothing."""
    family, requests, _ = kit
    engine = family.engine(mode="grouped")
    for params in requests:
        if params["guider"] in (None, ANY.validate_python({"kind": "cfg"}).model_dump()):
            continue
        own, plain = run(engine, [params, {**params, "guider": None}])
        assert (own - plain).abs().max() > 1e-3 * plain.abs().max(), params["guider"]


def test_alone(kit: Any) -> None:
    family, requests, wanted = kit
    engine = family.engine(mode="grouped")
    assert_same([run(engine, [params])[0] for params in requests], wanted, TOLERANCE)
    assert not hooks_on(family.denoiser)


@pytest.mark.parametrize("stagger", [0, 3])
def test_together(kit: Any, stagger: int) -> None:
    family, requests, wanted = kit
    engine = family.engine(mode="grouped")
    assert_same(run(engine, requests, stagger=stagger), wanted, TOLERANCE)
    assert engine.stats()["mean_batch"] > 1, "nothing was merged"
    assert not hooks_on(family.denoiser)


def test_beside_one_that_is_stopped(kit: Any) -> None:
    family, requests, wanted = kit
    kinds = [params["guider"]["kind"] if params["guider"] else None for params in requests]
    stopped = next(i for i, kind in enumerate(kinds) if kind in ("pag", "slg"))
    results = run(family.engine(mode="grouped"), requests, stop={stopped: 1})
    assert results[stopped] is None
    assert_same(results, wanted, TOLERANCE, but=stopped)
    assert not hooks_on(family.denoiser)


@pytest.mark.parametrize("kind", ["slg", "auto"])
def test_beside_one_whose_guider_fails(kind: str) -> None:
    """Skipped layers of Qwen-Image fail in diffusers, while the hooks are on."""
    family, requests, wanted = made(denoising.qwen_image)
    broken = request(guider=ANY.validate_python(MADE[kind][0]).model_dump())
    results = run(family.engine(mode="grouped"), [*requests, broken])
    assert isinstance(results[-1], OmniStageError)
    assert_same(results[:-1], wanted, TOLERANCE)
    assert not hooks_on(family.denoiser)
