"""Guiders: what they take, what is refused, and that hooks are only there while a call runs."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import guiders
from diffusers.hooks import HookRegistry, LayerSkipConfig, ModelHook
from pydantic import Field, create_model

from omnistage.runtime.engine.diffusion.hooks import adds_hooks, hooked, hooks_on
from omnistage.runtime.models.modular.guider_params import KINDS, check_guider, guider_type
from omnistage.runtime.models.modular.guiders import make_guider, make_own_guider
from omnistage.runtime.models.stage import Params, Stage
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.tests.fakes import denoising
from omnistage.tests.fakes.denoising import request, run

LAYERS = {
    "slg": "skip_layer_guidance_layers",
    "pag": "perturbed_guidance_layers",
    "auto": "auto_guidance_layers",
}


PLAIN: dict[str, Any] = {
    "cfg": guiders.ClassifierFreeGuidance,
    "cfg_zero_star": guiders.ClassifierFreeZeroStarGuidance,
    "apg": guiders.AdaptiveProjectedGuidance,
    "apg_mix": guiders.AdaptiveProjectedMixGuidance,
    "tcfg": guiders.TangentialClassifierFreeGuidance,
    "mag": guiders.MagnitudeAwareGuidance,
    "slg": partial(guiders.SkipLayerGuidance, skip_layer_config=LayerSkipConfig([1])),
    "pag": partial(guiders.PerturbedAttentionGuidance, perturbed_guidance_layers=[1]),
    "auto": partial(guiders.AutoGuidance, auto_guidance_config=LayerSkipConfig([1])),
}


def stage(kinds: frozenset[str] = KINDS) -> Stage:
    guider: Any = (guider_type(kinds), Field(None, description="Another guidance."))
    return Stage("sample", create_model("SampleParams", __base__=Params, guider=guider))


def checked(guider: Any, kinds: frozenset[str] = KINDS) -> Any:
    return stage(kinds).check_params({"guider": guider})["guider"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_defaults_are_those_of_diffusers(kind: str) -> None:
    given = {"kind": kind} | ({LAYERS[kind]: [1]} if kind in LAYERS else {})
    spec = checked(given)
    made = make_guider(spec, guidance=3.0, enabled=True)
    wanted = PLAIN[kind](guidance_scale=3.0)
    assert isinstance(made, type(wanted))
    assert _numbers(made) == _numbers(wanted)


def _numbers(guider: Any) -> dict[str, Any]:
    return {k: v for k, v in guider.config.items() if not k.startswith("_")}


def test_without_one_it_is_classifier_free_guidance() -> None:
    assert checked(None) is None
    own = SimpleNamespace(type_hint=guiders.ClassifierFreeGuidance, config={"guidance_scale": 2.0})
    made = make_own_guider(own, {"guidance_scale": 4.0, "enabled": False})
    assert type(made) is guiders.ClassifierFreeGuidance
    assert made.guidance_scale == 4.0
    assert not made._enabled
    assert make_own_guider(own, {"guidance_scale": None}).guidance_scale == 2.0


@pytest.mark.parametrize(
    ("guider", "words"),
    [
        ({"kind": "seg"}, "'seg'"),
        ({"kind": "cfg", "eta": 1.0}, "eta"),
        ({"kind": "cfg", "start": 0.6, "stop": 0.5}, "lies behind"),
        ({"kind": "cfg", "start": 1.0}, "less than 1"),
        ({"kind": "cfg", "guidance_rescale": 1.5}, "less than or equal to 1"),
        ({"kind": "apg", "adaptive_projected_guidance_momentum": "0.5"}, "valid number"),
        ({"kind": "apg", "eta": float("nan")}, "finite|greater than or equal"),
        ({"kind": "slg"}, "required"),
        ({"kind": "slg", "skip_layer_guidance_layers": []}, "at least 1"),
        ({"kind": "pag", "perturbed_guidance_layers": [-1]}, "greater than or equal to 0"),
        ({"kind": "pag", "perturbed_guidance_layers": [1], "start": 0.1}, "is not inside"),
        ({"kind": "auto", "auto_guidance_layers": [1], "dropout": 0.5}, "dropout"),
        ("cfg", "dictionary"),
    ],
)
def test_what_is_refused(guider: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        checked(guider)


def test_a_family_takes_its_own_kinds_only() -> None:
    own = frozenset({"cfg", "slg"})
    spec = checked({"kind": "slg", "skip_layer_guidance_layers": [1]}, own)
    check_guider(spec, own)
    check_guider(None, frozenset())
    with pytest.raises(InvalidRequest):
        checked({"kind": "apg"}, own)
    with pytest.raises(InvalidRequest, match="'apg' does not run on this model") as caught:
        check_guider({"kind": "apg"}, own)
    assert caught.value.field == "guider"
    assert caught.value.allowed == "cfg, slg"
    with pytest.raises(InvalidRequest, match="built in"):
        check_guider({"kind": "apg"}, frozenset())
    assert checked({"kind": "cfg"}, frozenset({"cfg"}))["kind"] == "cfg"
    for wrong in (frozenset(), frozenset({"seg"})):
        with pytest.raises(ValueError, match="kinds of guiders"):
            guider_type(wrong)


@pytest.mark.parametrize("kind", ["slg", "pag"])
def test_what_comes_on_top_of_guidance_needs_guidance(kind: str) -> None:
    spec = checked({"kind": kind, LAYERS[kind]: [1]})
    with pytest.raises(InvalidRequest, match="on top") as caught:
        make_guider(spec, guidance=1.0, enabled=True)
    assert caught.value.field == "guidance"
    make_guider(spec, guidance=1.0, enabled=False)


def test_layers_that_the_model_does_not_have_are_refused() -> None:
    family = denoising.wan()
    spec = checked({"kind": "auto", "auto_guidance_layers": [77]})
    engine = family.engine(mode="grouped")
    (error,) = run(engine, [request(guider=spec)])
    assert isinstance(error, InvalidRequest)
    assert error.field == "guider"
    assert "77" in error.message
    assert not hooks_on(family.denoiser)


class Doubles(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_hooks_are_gone_after_an_error() -> None:
    module = torch.nn.Sequential(Doubles(), Doubles())
    lasting = HookRegistry.check_if_exists_or_initialize(module[0])
    lasting.register_hook(ModelHook(), "lasting")

    def install(target: torch.nn.Module) -> None:
        for part in target:  # type: ignore[attr-defined]
            HookRegistry.check_if_exists_or_initialize(part).register_hook(ModelHook(), "guest")

    def breaks(target: torch.nn.Module) -> None:
        install(target)
        raise ValueError("half way")

    with hooked(module, install):
        assert hooks_on(module) == {("0", "lasting"), ("0", "guest"), ("1", "guest")}
    with pytest.raises(RuntimeError), hooked(module, install):
        raise RuntimeError
    with pytest.raises(ValueError, match="half way"):
        adds_hooks(module, breaks)
    assert adds_hooks(module, install)
    assert not adds_hooks(module, lambda _: None)
    assert hooks_on(module) == {("0", "lasting")}
    assert module(torch.ones(1)).item() == 4.0
