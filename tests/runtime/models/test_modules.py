"""Sizes of components before they are loaded, and building them when they are needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKLQwenImage
from safetensors.torch import save_file

from omnistage.runtime.models.component_source import ComponentSource
from omnistage.runtime.models.location import DEMO, model_folder
from omnistage.runtime.models.modules import (
    Component,
    Modules,
    pretrained,
    weight_bytes,
)
from omnistage.runtime.protocol.errors import ModelLoadFailed

VAE = model_folder(DEMO) / "vae"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_component_takes_what_it_says(dtype: str) -> None:
    component = pretrained(ComponentSource("vae", VAE), AutoencoderKLQwenImage, dtype=dtype)
    assert component.modules == ("vae",)
    module = component.build()["vae"]
    assert component.nbytes == sum(p.nbytes for p in module.parameters())
    assert {p.device.type for p in module.parameters()} == {"cpu"}
    assert not module.training


def test_shards_count_together_and_only_floats_change_their_type(tmp_path: Path) -> None:
    save_file(
        {"a": torch.zeros(3, 2), "n": torch.zeros(5, dtype=torch.int64)}, tmp_path / "1.safetensors"
    )
    save_file({"b": torch.zeros(4, dtype=torch.bfloat16)}, tmp_path / "2.safetensors")
    assert weight_bytes(tmp_path, "float32") == 6 * 4 + 5 * 8 + 4 * 4
    assert weight_bytes(tmp_path, "float16") == 6 * 2 + 5 * 8 + 4 * 2


def test_a_damaged_header_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"junk")
    with pytest.raises(ModelLoadFailed, match=r"weights\.safetensors is corrupt"):
        weight_bytes(tmp_path, "float32")


def test_modules_are_built_when_they_are_asked_for_and_once() -> None:
    built = []

    def build() -> dict[str, torch.nn.Module]:
        built.append(1)
        return {"one": torch.nn.Identity(), "twin": torch.nn.Identity()}

    modules = Modules({"both": Component(("one", "twin"), 0, build)})
    assert list(modules) == ["one", "twin"]
    assert "twin" in modules
    assert not built
    assert modules["one"] is modules["one"]
    assert modules["twin"] is not None
    assert built == [1]
