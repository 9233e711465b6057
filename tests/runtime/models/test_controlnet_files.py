"""ControlNets in single files: found in ComfyUI's folders, recognised, equal to their folders."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from safetensors.torch import load_file

from omnistage.runtime.models import model_files
from omnistage.runtime.models.catalogue import Catalogue, ModelEntry
from omnistage.runtime.models.components import load_module
from omnistage.runtime.models.controlnet_config import DENOISERS, controlnet_config
from omnistage.runtime.models.families import DIFFUSION
from omnistage.runtime.models.file_kind import controlnet_in
from omnistage.runtime.models.modules import source_bytes, weight_bytes
from omnistage.runtime.models.tensor_file import TensorFile, TensorInfo
from omnistage.runtime.protocol.errors import ModelLoadFailed
from omnistage.tests.fakes import original_names as original
from omnistage.tests.fakes import weight_files as files
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS

Tensors = dict[str, torch.Tensor]

CONFIGS = Path(model_files.__file__).parent / "configs"
XL, QWEN = "sdxl_controlnet", "qwen_image_controlnet"
CLASSES = {XL: "ControlNetModel", QWEN: "QwenImageControlNetModel"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each family, its ControlNet in `controlnet`."""
    made = {name: tmp_path_factory.mktemp(name) for name in CLASSES}
    for name, folder in made.items():
        CHECKPOINTS[name](folder)
    return made


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """ComfyUI's folder of ControlNets."""
    folder = tmp_path / "ComfyUI" / "models" / "controlnet"
    folder.mkdir(parents=True)
    return folder


def entry(model: Path, shelf: Path, **controlnets: str) -> ModelEntry:
    return ModelEntry("m", str(model), comfyui=str(shelf.parents[1]), controlnets=controlnets)


def tensors_of(model: Path) -> Tensors:
    return load_file(model / "controlnet" / "diffusion_pytorch_model.safetensors")


def unchanged(tensors: Tensors) -> Tensors:
    return tensors


@pytest.mark.parametrize(
    ("family", "names", "prefix"),
    [
        (XL, unchanged, ""),
        (XL, original.controlnet_xl, ""),
        (XL, original.controlnet_xl, "control_model."),
        (QWEN, unchanged, ""),
    ],
)
def test_a_file_is_the_same_controlnet_as_its_folder(
    folders: dict[str, Path],
    shelf: Path,
    family: str,
    names: Callable[[Tensors], Tensors],
    prefix: str,
) -> None:
    model = folders[family]
    files.save(names(tensors_of(model)), shelf / "lines.safetensors", prefix)
    checkpoint = entry(model, shelf, folder=str(model / "controlnet")).checkpoint
    assert list(checkpoint.controlnets) == ["folder", "lines"]
    theirs, ours = (loaded(source, family) for source in checkpoint.controlnets.values())
    assert settings(ours) == settings(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    size = source_bytes(checkpoint.controlnets["lines"], "float32")
    assert size == weight_bytes(model / "controlnet", "float32")


def loaded(source: Any, family: str) -> Any:
    cls = getattr(diffusers, CLASSES[family])
    return load_module(source, cls, dtype="float32", device="cpu")


def settings(module: Any) -> dict[str, Any]:
    """A module's config; lists of JSON are tuples elsewhere."""
    own = {k: v for k, v in dict(module.config).items() if not k.startswith("_")}
    return {k: tuple(v) if isinstance(v, list) else v for k, v in own.items()}


@pytest.mark.parametrize(
    "change",
    [
        {"transformer_layers_per_block": [1, 0, 2]},
        {
            "down_block_types": ["DownBlock2D"] * 3,
            "mid_block_type": "UNetMidBlock2D",
        },
        {"conditioning_embedding_out_channels": [8, 12, 16], "conditioning_channels": 1},
    ],
)
def test_smaller_ones_are_told_by_their_tensors(
    folders: dict[str, Path], shelf: Path, change: dict[str, Any]
) -> None:
    config = diffusers.ControlNetModel.load_config(folders[XL] / "controlnet")
    small = diffusers.ControlNetModel.from_config({**config, **change})
    files.save(small.state_dict(), shelf / "small.safetensors")
    (source,) = entry(folders[XL], shelf).checkpoint.controlnets.values()
    assert settings(loaded(source, XL)) == settings(small)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("sdxl", {}),
        ("sdxl", {"transformer_layers_per_block": [1, 0, 1]}),
        ("qwen-image", {"num_layers": 5}),
    ],
)
def test_those_of_published_models_get_their_config(model: str, change: dict[str, Any]) -> None:
    made_for = {"sdxl": CLASSES[XL], "qwen-image": CLASSES[QWEN]}[model]
    path = CONFIGS / model / DENOISERS[made_for] / "config.json"
    denoiser = json.loads(path.read_text())
    cls = getattr(diffusers, made_for)
    known = {k: v for k, v in denoiser.items() if k in inspect.signature(cls).parameters}
    with torch.device("meta"):
        published = cls.from_config({**known, **change})
    tensors = {k: TensorInfo("F16", tuple(v.shape)) for k, v in published.state_dict().items()}
    with torch.device("meta"):
        ours = cls.from_config(controlnet_config(made_for, tensors, denoiser))
    assert settings(ours) == settings(published)


def test_each_model_lists_those_of_its_own_class(folders: dict[str, Path], shelf: Path) -> None:
    (shelf / "sdxl").mkdir()
    files.save(tensors_of(folders[XL]), shelf / "sdxl" / "canny.safetensors")
    files.save(tensors_of(folders[QWEN]), shelf / "union.safetensors")
    adapters = shelf.parent / "t2i_adapter"
    adapters.mkdir()
    files.save({"body.0.in_conv.weight": torch.ones(2, 2)}, adapters / "sketch.safetensors")
    (shelf / "broken.safetensors").write_bytes(b"x")
    (shelf / "old.pth").write_bytes(b"\x80")
    assert entry(folders[XL], shelf).info().controlnets == ("sdxl/canny",)
    assert entry(folders[QWEN], shelf).info().controlnets == ("union",)
    assert entry(folders[QWEN], shelf, lines="union.safetensors").info().controlnets == (
        "lines",
        "union",
    )


def test_the_log_says_why_a_file_is_left_out(
    folders: dict[str, Path], shelf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files.save(tensors_of(folders[QWEN]), shelf / "union.safetensors")
    with caplog.at_level(logging.INFO, "omnistage"):
        assert entry(folders[XL], shelf).info().controlnets == ()
    assert "union.safetensors is a ControlNet of Qwen-Image; models of family" in caplog.text


def test_a_configured_name_goes_before_a_files(folders: dict[str, Path], shelf: Path) -> None:
    files.save(tensors_of(folders[XL]), shelf / "lines.safetensors")
    folder = folders[XL] / "controlnet"
    found = entry(folders[XL], shelf, lines=str(folder)).checkpoint.controlnets
    assert {name: source.folder for name, source in found.items()} == {"lines": folder}


def test_another_file_is_another_result(folders: dict[str, Path], shelf: Path) -> None:
    def revision() -> str:
        model = entry(folders[XL], shelf)
        stage = model.graph["sample"]
        params = stage.check_params({"control": {"name": "lines"}})
        return str(model.pinned(stage, params)["control"]["revision"])

    tensors = tensors_of(folders[XL])
    files.save(tensors, shelf / "lines.safetensors")
    first = revision()
    assert first == revision()
    tensors["controlnet_mid_block.bias"] += 1
    files.save(tensors, shelf / "lines.safetensors")
    assert revision() != first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "union.safetensors",
            r"is a ControlNet of Qwen-Image; models of family .* ControlNetModel",
        ),
        ("wide.safetensors", r"another model or size: conv_in\.weight is of shape \[4, 4, 3, 3\]"),
        ("lora.safetensors", "is a LoRA, not a ControlNet"),
        ("unet.safetensors", "is the UNet of Stable Diffusion XL, not a ControlNet"),
        ("any.safetensors", "is no ControlNet known here"),
        ("quantised.gguf", "is a GGUF file. Take a safetensors version"),
        ("pickled.pth", "is a pickle"),
        ("gone.safetensors", "no model file gone.safetensors. Searched .*models/controlnet"),
        ("../controlnet/union.safetensors", "is not the name of a model file"),
    ],
)
def test_a_configured_file_that_is_something_else_is_a_problem_of_its_model(
    folders: dict[str, Path], shelf: Path, text: str, words: str
) -> None:
    xl = tensors_of(folders[XL])
    unet = load_file(folders[XL] / "unet" / "diffusion_pytorch_model.safetensors")
    made: dict[str, Tensors] = {
        "union": tensors_of(folders[QWEN]),
        "wide": {**xl, "conv_in.weight": xl["conv_in.weight"][:4]},
        "lora": {"a.lora_A.weight": torch.ones(2, 2)},
        "unet": unet,
        "any": {"a": torch.ones(2)},
    }
    for name, tensors in made.items():
        files.save(tensors, shelf / f"{name}.safetensors")
    files.save_gguf(xl, shelf / "quantised.gguf")
    (shelf / "pickled.pth").write_bytes(b"\x80")
    model = entry(folders[XL], shelf, lines=text)
    problem = Catalogue({"m": model}).problems()["m"]
    assert isinstance(problem, ModelLoadFailed)
    with pytest.raises(ModelLoadFailed, match=words):
        raise problem
    assert problem.field == "controlnets.lines"
    assert problem.value == text


def test_a_model_that_none_steers_has_none(folders: dict[str, Path], shelf: Path) -> None:
    files.save(tensors_of(folders[XL]), shelf / "lines.safetensors")
    folder = shelf.parents[2] / "flux"
    CHECKPOINTS["flux"](folder)
    assert entry(folder, shelf).info().controlnets == ()
    named = replace(entry(folder, shelf), controlnets={"lines": "lines.safetensors"})
    assert "take no ControlNets" in str(Catalogue({"m": named}).problems()["m"])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["lora_controlnet", "input_blocks.0.0.up"], "a Control-LoRA"),
        (
            [
                "task_embedding",
                "control_add_embedding.linear_1.weight",
                "controlnet_cond_embedding.conv_in.weight",
                "add_embedding.linear_1.weight",
            ],
            "a ControlNet Union of Stable Diffusion XL",
        ),
        (
            ["control_model.input_hint_block.0.weight", "control_model.middle_block_out.0.weight"],
            "a ControlNet of Stable Diffusion 1 or 2",
        ),
        (["controlnet_x_embedder.weight", "context_embedder.weight"], "a ControlNet of FLUX.1"),
        (
            ["controlnet_blocks.0.weight", "pos_embed_input.proj.weight"],
            "a ControlNet of Stable Diffusion 3",
        ),
        (["control_all_x_embedder.2-1.weight"], "a ControlNet of Z-Image"),
    ],
)
def test_controlnets_that_are_not_served_are_called_by_their_name(
    tmp_path: Path, names: list[str], words: str
) -> None:
    tensors = {name: TensorInfo("F16", (8, 8)) for name in names}
    file = TensorFile(tmp_path / "x.safetensors", "safetensors", tensors, {})
    with pytest.raises(ModelLoadFailed, match=f"is {words}, which this runtime does not serve"):
        controlnet_in(file)


def test_every_class_of_controlnets_has_a_denoiser_to_take_its_config_from() -> None:
    assert {family.controlnet for family in DIFFUSION} - {None} == DENOISERS.keys()
