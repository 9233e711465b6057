from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from omnistage.runtime.models.catalogue import Catalogue, ModelEntry
from omnistage.runtime.models.checkpoint import Checkpoint
from omnistage.runtime.models.location import model_folder
from omnistage.runtime.protocol.errors import ModelLoadFailed, UnknownModel

DEMO = model_folder("demo")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "model"))


def test_the_demo_is_whole() -> None:
    checkpoint = Checkpoint.open(DEMO)
    assert checkpoint.family.name == "qwen-image"
    assert checkpoint.weight_bytes() < 12 << 20


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="no model folder"):
        Checkpoint.open(tmp_path / "nothing")


@pytest.mark.parametrize("component", ["transformer", "vae", "text_encoder", "tokenizer"])
def test_a_missing_component_is_named(folder: Path, component: str) -> None:
    shutil.rmtree(folder / component)
    with pytest.raises(ModelLoadFailed, match=component) as caught:
        Checkpoint.open(folder)
    assert caught.value.field == component


def test_a_truncated_weight_file_is_named(folder: Path) -> None:
    weights = next((folder / "vae").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelLoadFailed, match="incomplete") as caught:
        Checkpoint.open(folder)
    assert weights.name in caught.value.message


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64])
def test_a_corrupt_weight_file_is_named(folder: Path, content: bytes) -> None:
    weights = next((folder / "vae").glob("*.safetensors"))
    weights.write_bytes(content)
    with pytest.raises(ModelLoadFailed, match="corrupt"):
        Checkpoint.open(folder)


def test_a_config_that_is_no_json_is_named(folder: Path) -> None:
    (folder / "transformer" / "config.json").write_text("{")
    with pytest.raises(ModelLoadFailed, match="not JSON"):
        Checkpoint.open(folder)


def test_a_pipeline_no_family_owns(folder: Path) -> None:
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "FancyPipeline"}))
    with pytest.raises(ModelLoadFailed, match="FancyPipeline"):
        Checkpoint.open(folder)


def test_the_revision_follows_the_content(folder: Path) -> None:
    same = Checkpoint.open(folder).revision
    assert same == Checkpoint.open(DEMO).revision
    weights = next((folder / "vae").glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert Checkpoint.open(folder).revision != same


def test_a_hub_id_offline_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelLoadFailed, match="not in the local hub cache"):
        model_folder("Qwen/Qwen-Image")


def test_an_unknown_model_lists_those_there_are() -> None:
    with pytest.raises(UnknownModel, match="it has demo"):
        Catalogue({"demo": ModelEntry("demo", "demo")})["missing"]


def test_a_broken_model_does_not_hide_the_others(tmp_path: Path) -> None:
    catalogue = Catalogue(
        {"demo": ModelEntry("demo", "demo"), "gone": ModelEntry("gone", str(tmp_path / "no"))}
    )
    assert [info.id for info in catalogue.infos()] == ["demo"]
    assert list(catalogue.problems()) == ["gone"]


def test_a_model_path_is_configuration_and_never_a_request(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel):
        Catalogue({})[f"../{tmp_path}"]
