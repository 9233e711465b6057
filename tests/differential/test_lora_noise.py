"""Adapters of a model with a transformer for high noise and another for low noise (Wan 2.2).

The reference is diffusers' own pipeline, whose transformers are given the adapters one by one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from omnistage.runtime.bench.pictures import Picture, PictureRequest, make_engine
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.lora_params import HIGH_NOISE, LOW_NOISE
from omnistage.tests.fakes.codecs import fill_batches
from omnistage.tests.fakes.lora_files import lora_weights, save
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS

from .harness import FILM_TOLERANCE, TOLERANCE, assert_same, run
from .modular import ModularReference

LAYERS = ("condition_embedder.time_proj", "blocks.0.attn1.to_q", "blocks.1.ffn.net.2", "proj_out")
ACTS = {"all": (HIGH_NOISE, LOW_NOISE), "high": (HIGH_NOISE,), "low": (LOW_NOISE,)}
ADAPTERS = (
    (("A", 1.0),),
    (("A", 1.0, "high"),),
    (("A", 0.5, "low"),),
    (("A", 1.0, "high"), ("B", -0.5, "low")),
    (("A", 1.0, "high"), ("A", 0.5, "low")),
    (),
)
REQUESTS = [
    PictureRequest("a red circle", steps=6, loras=loras, more={"frames": 5}) for loras in ADAPTERS
]


class AdaptedFilms(ModularReference):
    """The pipeline with the adapters that a request asks for."""

    def __init__(self, model: ModelEntry) -> None:
        super().__init__(model)
        self._transformers = {name: getattr(self._pipeline, name) for name in ACTS["all"]}
        for transformer in self._transformers.values():
            for name, file in model.loras.files().items():
                transformer.load_lora_adapter(load_file(file.path), adapter_name=name)

    def one(self, request: PictureRequest) -> Picture:
        for component, transformer in self._transformers.items():
            strengths = _strengths(request, component)
            if strengths:
                transformer.enable_lora()
                transformer.set_adapters(list(strengths), list(strengths.values()))
            else:
                transformer.disable_lora()
        return super().one(request)


def _strengths(request: PictureRequest, component: str) -> dict[str, float]:
    asked: list[Any] = [(*lora, "all")[:3] for lora in request.loras]
    return {name: strength for name, strength, noise in asked if component in ACTS[noise]}


@pytest.fixture(autouse=True)
def full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    fill_batches(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelEntry:
    folder: Path = tmp_path_factory.mktemp("wan22")
    CHECKPOINTS["wan22"](folder / "model")
    model = ModelEntry("wan22", str(folder / "model"), lora_folders=[str(folder)])
    transformer = ModularReference(model)._pipeline.transformer
    for seed, name in enumerate("AB"):
        save(folder, name, lora_weights(transformer, LAYERS, seed=seed, size=0.3))
    return model


@pytest.fixture(scope="module")
def reference(model: ModelEntry) -> list[Picture]:
    own = AdaptedFilms(model)
    return [own.one(request) for request in REQUESTS]


@pytest.fixture(scope="module")
def engine(model: ModelEntry) -> DiffusionEngine:
    return make_engine(model, profile=False)


def assert_close(got: list[Picture], want: list[Picture]) -> None:
    assert_same(got, want, tolerance=TOLERANCE, picture_tolerance=FILM_TOLERANCE)


def test_each_way_makes_another_film(reference: list[Picture]) -> None:
    latents = [film.latent for film in reference if film.latent is not None]
    assert len(latents) == len(ADAPTERS)
    for i, latent in enumerate(latents):
        assert all(float((latent - other).abs().max()) > 1e-3 for other in latents[:i])


def test_strict_is_bit_identical_to_diffusers(
    engine: DiffusionEngine, model: ModelEntry, reference: list[Picture]
) -> None:
    strict = [replace(request, strict=True) for request in REQUESTS]
    assert_same(run(engine, model, strict), reference, tolerance=0)


def test_alone_and_together(
    engine: DiffusionEngine, model: ModelEntry, reference: list[Picture]
) -> None:
    assert_close([run(engine, model, [request])[0] for request in REQUESTS], reference)
    assert_close(run(engine, model, REQUESTS), reference)
