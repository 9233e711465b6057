"""The demo model under a budget and with its weights offloaded, against an engine without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from omnistage.runtime.bench.pictures import MODEL, EngineRun, Picture, make_engine, requests
from omnistage.runtime.engine.diffusion.build import build_core
from omnistage.runtime.engine.diffusion.settings import EngineSettings

STRICT = requests(1, steps=2, strict=True)


@pytest.fixture(scope="module")
def expected() -> Picture:
    (picture,) = EngineRun(make_engine(profile=False), STRICT).run()
    return picture


def assert_equal(got: Picture, expected: Picture) -> None:
    for ours, theirs in ((got.latent, expected.latent), (got.picture, expected.picture)):
        assert ours is not None
        assert theirs is not None
        assert torch.equal(ours, theirs)


def test_strict_results_are_the_same_bits_before_and_after_eviction(expected: Picture) -> None:
    engine = make_engine(profile=False, memory_mb=12)  # the transformer alone takes 12.3 MB
    for _ in range(2):
        (picture,) = EngineRun(engine, STRICT).run()
        assert_equal(picture, expected)
    stats = engine.stats()
    assert stats["loads"] == 6
    assert stats["evictions"] == 5
    assert stats["peak_resident_bytes"] <= 12 << 20


def test_offloaded_in_groups_it_draws_the_same(expected: Picture) -> None:
    entry = replace(MODEL, offload="group")
    engine = build_core(EngineSettings(profile=False), [entry])
    (picture,) = EngineRun(engine, STRICT).run()
    assert picture.latent is not None
    assert expected.latent is not None
    assert (picture.latent - expected.latent).abs().max() <= 2e-6 * expected.latent.abs().max()
    transformer = engine._residency.module(MODEL.id, "transformer")
    assert transformer is not None
    hooked = [m for m in transformer.modules() if hasattr(m, "_diffusers_hook")]
    assert len(hooked) > 10
