"""The configs that come along: each makes its class, and files of that model are told by them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import diffusers
import pytest
import torch
import transformers

from omnistage.runtime.models.file_kind import kind_of
from omnistage.runtime.models.file_signatures import PARTS
from omnistage.runtime.models.model_files import shipped_configs
from omnistage.runtime.models.single_file import _check_cover, _converted
from omnistage.runtime.models.tensor_file import read_tensor_file
from omnistage.tests.fakes import original_names as original
from omnistage.tests.fakes import weight_files as files

CONFIGS = Path(__file__).parents[3] / "runtime" / "models" / "configs"
PREFIX = "model.diffusion_model."
BILLIONS = {
    "flux-dev": 11.90,
    "flux-schnell": 11.89,
    "flux2-klein-4b": 3.88,
    "flux2-klein-9b": 9.08,
    "qwen-image": 20.43,
    "sd3-medium": 2.03,
    "sd3.5-large": 8.06,
    "sd3.5-medium": 2.24,
    "sdxl": 2.57,
    "wan2.1-t2v-1.3b": 1.42,
    "wan2.1-t2v-14b": 14.29,
    "z-image-turbo": 6.16,
}
"""Parameters of the published denoisers."""


def modules(model):
    """(component, class) of a model's modules."""
    index = json.loads((CONFIGS / model / "model_index.json").read_text())
    for component, entry in index.items():
        if isinstance(entry, list) and (CONFIGS / model / component / "config.json").is_file():
            library = {"diffusers": diffusers, "transformers": transformers}[entry[0]]
            yield component, getattr(library, entry[1])


@cache
def empty(model, component):
    """A component on the meta device."""
    cls = dict(modules(model))[component]
    folder = CONFIGS / model / component
    with torch.device("meta"):
        if hasattr(cls, "load_config"):
            return cls.from_config(cls.load_config(folder))
        return cls(cls.config_class.from_pretrained(folder))


def denoiser(model):
    return empty(model, "unet" if model == "sdxl" else "transformer")


@pytest.mark.parametrize("model", sorted(BILLIONS))
def test_the_denoiser_is_of_the_published_size(model):
    count = sum(parameter.numel() for parameter in denoiser(model).parameters())
    assert count / 1e9 == pytest.approx(BILLIONS[model], abs=0.006)


def test_every_config_is_tested():
    assert shipped_configs() == sorted(BILLIONS)


@pytest.mark.parametrize("model", sorted(BILLIONS))
def test_every_component_has_only_settings_its_class_knows(model, caplog):
    for component, cls in modules(model):
        module = empty(model, component)
        config = json.loads((CONFIGS / model / component / "config.json").read_text())
        known = module.config if hasattr(cls, "load_config") else module.config.to_dict()
        assert {name for name in config if name[0] != "_"} <= set(known)
    assert "not expected" not in caplog.text


@pytest.mark.parametrize("model", sorted(BILLIONS))
def test_every_scheduler_is_one_of_diffusers(model):
    folder = CONFIGS / model / "scheduler"
    name = json.loads((folder / "scheduler_config.json").read_text())["_class_name"]
    assert getattr(diffusers, name).from_pretrained(folder).config["_class_name"] == name


def test_every_variant_has_the_shapes_of_its_config():
    variants = [(known, variant) for known in PARTS for variant in known.variants]
    assert {variant.config for _, variant in variants} == set(BILLIONS)
    for known, variant in variants:
        tensors = denoiser(variant.config).state_dict()
        shapes = [tuple(tensors[own].shape) if own in tensors else None for _, own in known.probes]
        assert shapes == list(variant.shapes)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("flux-dev", original.flux),
        ("flux-schnell", original.flux),
        ("qwen-image", dict),
        ("z-image-turbo", original.z_image),
        ("sd3-medium", original.sd3),
        ("sd3.5-medium", original.sd3),
        ("sd3.5-large", original.sd3),
        ("wan2.1-t2v-1.3b", original.wan),
        ("wan2.1-t2v-14b", original.wan),
        ("flux2-klein-4b", dict),
        ("sdxl", dict),
    ],
)
def test_a_file_of_the_published_size_is_told_and_covers_its_module(tmp_path, model, names):
    module = denoiser(model)
    with torch.device("meta"):
        tensors = names({k: torch.empty(v.shape) for k, v in module.state_dict().items()})
    if model.startswith("z-image"):  # left out by diffusers' mapping, which pads with its own
        tensors["norm_final.weight"] = torch.empty(3840, device="meta")
    shapes = {PREFIX + name: tuple(tensor.shape) for name, tensor in tensors.items()}
    file = read_tensor_file(files.save_header(shapes, tmp_path / "x.safetensors"))
    (part,) = kind_of(file).parts
    assert (part.config, part.prefix) == (model, PREFIX)
    assert type(module).__name__ in part.classes
    _check_cover(_converted(tensors, module, dict(module.config), file), module, file)


def test_other_sizes_have_no_config(tmp_path):
    shapes = {k: tuple(v.shape) for k, v in denoiser("qwen-image").state_dict().items()}
    kept = {k: v for k, v in shapes.items() if not k.startswith("transformer_blocks.59.")}
    file = read_tensor_file(files.save_header(kept, tmp_path / "x.safetensors"))
    assert [part.config for part in kind_of(file).parts] == [""]


@pytest.mark.parametrize(
    ("model", "component", "words"),
    [
        ("flux-dev", "text_encoder", "CLIP-L"),
        ("sdxl", "text_encoder_2", "CLIP-G"),
        ("flux-dev", "text_encoder_2", "T5"),
        ("wan2.1-t2v-1.3b", "text_encoder", "UMT5"),
        ("qwen-image", "text_encoder", "Qwen2.5-VL"),
        ("z-image-turbo", "text_encoder", "Qwen3"),
        ("flux2-klein-4b", "text_encoder", "Qwen3"),
        ("flux-dev", "vae", "VAE of Stable Diffusion, FLUX.1"),
        ("sdxl", "vae", "VAE of Stable Diffusion"),
        ("flux2-klein-4b", "vae", "VAE of FLUX.2"),
        ("qwen-image", "vae", "VAE of Wan 2.1 and Qwen-Image"),
        ("wan2.1-t2v-1.3b", "vae", "VAE of Wan 2.1 and Qwen-Image"),
    ],
)
def test_the_other_components_are_told(tmp_path, model, component, words):
    module = empty(model, component)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    file = read_tensor_file(files.save_header(shapes, tmp_path / "x.safetensors"))
    (part,) = kind_of(file).parts
    assert words in part.words
    assert type(module).__name__ in part.classes
