"""Models put together from files over a base, on the demo checkpoint's components."""

from __future__ import annotations

import shutil
from pathlib import Path

import diffusers
import pytest
import torch
from safetensors.torch import load_file

from omnistage.runtime.models.components import load_module
from omnistage.runtime.models.location import model_folder
from omnistage.runtime.models.model_files import open_model
from omnistage.runtime.models.model_folders import ModelFolders
from omnistage.runtime.protocol.errors import ModelLoadFailed
from omnistage.tests.fakes import weight_files as files

DEMO = model_folder("demo")
PREFIX = "model.diffusion_model."


def tensors(component):
    (path,) = (DEMO / component).glob("*.safetensors")
    return load_file(path)


@pytest.fixture
def folders(tmp_path):
    """A folder of files: the demo's components as ComfyUI's users have them."""
    folder = tmp_path / "files"
    folder.mkdir()
    files.save(tensors("transformer"), folder / "qwen.safetensors", PREFIX)
    files.save(tensors("vae"), folder / "vae.safetensors")
    return ModelFolders.of([str(folder)])


@pytest.fixture
def base(tmp_path):
    """The demo without its transformer's weights."""
    folder = Path(shutil.copytree(DEMO, tmp_path / "base"))
    for path in (folder / "transformer").glob("*.safetensors"):
        path.unlink()
    return folder


def test_a_table_of_files_over_a_base(folders, base):
    given = {"transformer": "qwen.safetensors", "vae": "vae.safetensors"}
    model = open_model(None, folders, files=given, base=str(base))
    assert model.family.name == "qwen-image"
    source = model.source("transformer")
    assert (source.file.name, source.prefix) == ("qwen.safetensors", PREFIX)
    assert model.source("scheduler").folder == base / "scheduler"
    cls = diffusers.QwenImageTransformer2DModel
    module = load_module(source, cls, dtype="float32", device="cpu")
    expected = tensors("transformer")
    assert all(torch.equal(module.state_dict()[k], v.float()) for k, v in expected.items())


def test_one_file_over_a_base(folders, base):
    model = open_model("qwen.safetensors", folders, base=str(base))
    assert list(model.elsewhere) == ["transformer"]


def test_files_over_a_whole_folder(folders):
    model = open_model(str(DEMO), folders, files={"vae": "vae.safetensors"})
    assert list(model.elsewhere) == ["vae"]
    whole = open_model(str(DEMO), folders)
    assert model.weight_bytes() == pytest.approx(whole.weight_bytes(), rel=0.01)


def test_an_absolute_path_is_allowed_in_a_configuration(folders, base):
    path = folders.plain[0] / "qwen.safetensors"
    assert open_model(str(path), ModelFolders(), base=str(base)).source("transformer").file == path


def test_the_revision_follows_the_file(folders, base):
    first = open_model("qwen.safetensors", folders, base=str(base)).revision
    assert open_model("qwen.safetensors", folders, base=str(base)).revision == first
    path = folders.plain[0] / "qwen.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert open_model("qwen.safetensors", folders, base=str(base)).revision != first


def test_a_file_in_the_wrong_place_says_what_it_is(folders, base):
    given = {"transformer": "vae.safetensors"}
    with pytest.raises(ModelLoadFailed, match=r"holds the VAE of Wan 2.1 and Qwen") as caught:
        open_model(None, folders, files=given, base=str(base))
    assert caught.value.field == "transformer"
    assert caught.value.allowed == "QwenImageTransformer2DModel"


def test_a_component_the_model_has_not(folders, base):
    with pytest.raises(ModelLoadFailed, match="no component text_encoder_2") as caught:
        open_model(None, folders, files={"text_encoder_2": "vae.safetensors"}, base=str(base))
    assert "text_encoder" in caught.value.allowed


def test_what_is_missing_is_listed(folders, base):
    with pytest.raises(ModelLoadFailed, match=r"transformer of this model .* are missing"):
        open_model(None, folders, files={"vae": "vae.safetensors"}, base=str(base))
    with pytest.raises(ModelLoadFailed, match="text_encoder, tokenizer of this model"):
        open_model(
            None,
            folders,
            files={"transformer": "qwen.safetensors", "vae": "vae.safetensors"},
            base="qwen-image",
        )


def test_a_model_of_unknown_size_needs_a_base(folders):
    with pytest.raises(ModelLoadFailed, match="no config here for these files") as caught:
        open_model("qwen.safetensors", folders)
    assert caught.value.field == "base"
    assert "flux-dev" in caught.value.allowed


def test_a_denoiser_of_another_family_than_the_base(folders):
    with pytest.raises(ModelLoadFailed, match="transformer of Qwen-Image, but the base"):
        open_model("qwen.safetensors", folders, base="flux-dev")


def test_a_file_of_no_family_says_so(folders):
    files.save({"a": torch.ones(1)}, folders.plain[0] / "a.safetensors")
    with pytest.raises(ModelLoadFailed, match="not a model of any family"):
        open_model("a.safetensors", folders)


def test_a_pickle_is_refused(folders):
    (folders.plain[0] / "old.ckpt").write_bytes(b"PK\x03\x04")
    with pytest.raises(ModelLoadFailed, match="pickle"):
        open_model("old.ckpt", folders)


def test_a_truncated_file_breaks_the_model_when_checked_again(folders, base):
    model = open_model("qwen.safetensors", folders, base=str(base))
    path = folders.plain[0] / "qwen.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelLoadFailed, match="incomplete"):
        model.check_files()


def test_comfyuis_tokenizer_serves_where_it_is_the_same(folders, tmp_path):
    comfyui = tmp_path / "ComfyUI"
    place = comfyui / "comfy" / "text_encoders" / "qwen25_tokenizer"
    shutil.copytree(DEMO / "tokenizer", place)
    own = ModelFolders(folders.plain, comfyui=comfyui)
    sources = {"transformer": "qwen.safetensors", "vae": "vae.safetensors"}
    files.save(tensors("text_encoder"), folders.plain[0] / "text.safetensors")
    sources["text_encoder"] = "text.safetensors"
    model = open_model(None, own, files=sources, base="qwen-image")
    assert model.source("tokenizer").folder == place
    assert model.source("text_encoder").file.name == "text.safetensors"
