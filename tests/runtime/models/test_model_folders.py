"""Finding files by name: plain folders, ComfyUI's own and its extra paths."""

from __future__ import annotations

import pytest

from omnistage.runtime.models.model_folders import ModelFolders
from omnistage.runtime.protocol.errors import InvalidRequest, ModelLoadFailed


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


@pytest.fixture
def comfyui(tmp_path):
    return put(tmp_path / "ComfyUI" / "models" / "vae" / "ae.safetensors").parents[2]


def test_comfyuis_folders_old_and_new(comfyui):
    unet = put(comfyui / "models" / "unet" / "flux" / "dev.gguf")
    clip = put(comfyui / "models" / "clip" / "clip_l.safetensors")
    folders = ModelFolders.of(comfyui=str(comfyui))
    assert folders.find("flux/dev.gguf", "diffusion_models") == unet
    assert folders.find("clip_l.safetensors", "text_encoders") == clip
    assert folders.names("diffusion_models", "text_encoders") == [
        "clip_l.safetensors",
        "flux/dev.gguf",
    ]


def test_kinds_are_kept_apart_and_plain_folders_hold_all(comfyui, tmp_path):
    own = put(tmp_path / "own" / "ae.safetensors")
    with pytest.raises(ModelLoadFailed, match=r"no model file ae.safetensors. Searched .*loras"):
        ModelFolders.of(comfyui=str(comfyui)).find("ae.safetensors", "loras")
    folders = ModelFolders.of([str(own.parent)], str(comfyui))
    assert folders.find("ae.safetensors", "loras") == own


def test_extra_model_paths(comfyui, tmp_path):
    other = put(tmp_path / "big" / "models" / "unet" / "wan.safetensors")
    lora = put(tmp_path / "big" / "Lora" / "ink.safetensors")
    (comfyui / "extra_model_paths.yaml").write_text(
        "comfyui:\n  base_path: ../big\n  is_default: true\n  unet: |\n    models/unet\n"
        "    models/more\n  loras: Lora\n  configs: configs\nempty:\n"
    )
    folders = ModelFolders.of(comfyui=str(comfyui))
    assert folders.find("wan.safetensors", "diffusion_models").samefile(other)
    assert folders.find("ink.safetensors", "loras").samefile(lora)


@pytest.mark.parametrize("text", ["a: [", "- a", "a: 3"])
def test_a_broken_file_of_extra_paths_is_named(comfyui, text):
    (comfyui / "extra_model_paths.yaml").write_text(text)
    with pytest.raises(ModelLoadFailed) as caught:
        ModelFolders.of(comfyui=str(comfyui))
    assert caught.value.field == "extra_model_paths.yaml"


@pytest.mark.parametrize(
    "name",
    ["../vae/ae.safetensors", "/etc/passwd", "a/../../b", "a\\..\\b", "C:x", "~/x", "", "a\0b"],
)
def test_no_name_leaves_its_folder(comfyui, name):
    with pytest.raises(InvalidRequest) as caught:
        ModelFolders.of(comfyui=str(comfyui)).find(name, "vae")
    assert caught.value.field == "file"


def test_a_link_inside_a_folder_is_its_owners_choice(comfyui, tmp_path):
    real = put(tmp_path / "elsewhere.safetensors")
    link = comfyui / "models" / "vae" / "linked.safetensors"
    link.symlink_to(real)
    assert ModelFolders.of(comfyui=str(comfyui)).find("linked.safetensors", "vae") == link


@pytest.mark.parametrize("setting", ["model_folders", "comfyui"])
def test_a_configured_folder_has_to_be_there(tmp_path, setting):
    gone = str(tmp_path / "gone")
    with pytest.raises(ModelLoadFailed, match="gone") as caught:
        ModelFolders.of([gone]) if setting == "model_folders" else ModelFolders.of(comfyui=gone)
    assert caught.value.field == setting
