"""What a file is, from its first bytes and its header."""

from __future__ import annotations

import json

import pytest
import torch

from omnistage.runtime.models.tensor_file import TensorInfo, read_tensor_file
from omnistage.runtime.protocol.errors import ModelLoadFailed
from omnistage.tests.fakes import weight_files as files

TENSORS = {"a.weight": torch.ones(4, 64), "b": torch.ones(3)}


def test_safetensors(tmp_path):
    path = files.save(TENSORS, tmp_path / "x.safetensors")
    file = read_tensor_file(path)
    assert file.tensors == {"a.weight": TensorInfo("F32", (4, 64)), "b": TensorInfo("F32", (3,))}
    assert file.size == path.stat().st_size


def test_gguf_shapes_are_torchs(tmp_path):
    path = files.save_gguf(TENSORS, tmp_path / "x.gguf")
    file = read_tensor_file(path)
    assert file.tensors == {"a.weight": TensorInfo("Q8_0", (4, 64)), "b": TensorInfo("F32", (3,))}
    assert file.metadata["general.architecture"] == "any"


def test_content_counts_not_the_name(tmp_path):
    path = files.save_gguf(TENSORS, tmp_path / "x.safetensors")
    assert read_tensor_file(path).format == "gguf"


@pytest.mark.parametrize("count", range(120, 136))
def test_a_header_of_any_length_is_no_pickle(tmp_path, count):
    shapes = {"a" * count: (1,)}
    assert read_tensor_file(files.save_header(shapes, tmp_path / "x.safetensors")).tensors


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.safetensors", b"PK\x03\x04 a zip of torch.save", "pickle"),
        ("x.safetensors", b"\x80\x02}q\x00.", "pickle"),
        ("x.ckpt", b"whatever", "pickle"),
        ("x.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("x.safetensors", b"<!DOCTYPE html><html>", "web page"),
        ("x-00001-of-00003.safetensors", b"whatever", "one of 3 parts"),
        ("x.safetensors", b"", "corrupt"),
        ("x.safetensors", b"\xff" * 64, "corrupt"),
        ("x.gguf", b"GGUF\x03\x00\x00\x00", "corrupt"),
        ("x.gguf", b"GGUF" + b"\xff" * 60, "corrupt"),
    ],
)
def test_what_is_no_file_of_tensors_is_called_by_its_name(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelLoadFailed, match=words) as caught:
        read_tensor_file(path)
    assert caught.value.field == name


def test_a_missing_file(tmp_path):
    with pytest.raises(ModelLoadFailed, match="cannot be read"):
        read_tensor_file(tmp_path / "no.safetensors")


@pytest.mark.parametrize("save", [files.save, files.save_gguf])
def test_a_truncated_file_says_how_much_there_should_be(tmp_path, save):
    path = save(TENSORS, tmp_path / "x")
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(ModelLoadFailed, match="incomplete"):
        read_tensor_file(path)


@pytest.fixture
def index(tmp_path):
    """Two shards and their index."""
    shards = {"a.weight": "x-00001-of-00002.safetensors", "b": "x-00002-of-00002.safetensors"}
    for tensor, name in shards.items():
        files.save({tensor: TENSORS[tensor]}, tmp_path / name)
    path = tmp_path / "x.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": shards}))
    return path


def test_an_index_is_its_shards_together(index):
    file = read_tensor_file(index)
    assert file.tensors.keys() == TENSORS.keys()
    assert len(file.files) == 2


def test_a_missing_shard_is_named(index):
    (index.parent / "x-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelLoadFailed, match=r"x-00002-of-00002\.safetensors is missing"):
        read_tensor_file(index)


def test_a_shard_without_its_tensor_is_refused(index):
    files.save({"c": torch.ones(1)}, index.parent / "x-00002-of-00002.safetensors")
    with pytest.raises(ModelLoadFailed, match="names 1 tensors its shards lack, first b"):
        read_tensor_file(index)


def test_an_index_never_leaves_its_folder(tmp_path, index):
    inside = tmp_path / "inside"
    inside.mkdir()
    moved = inside / index.name
    moved.write_text(index.read_text().replace("x-0000", "../x-0000"))
    with pytest.raises(ModelLoadFailed, match="missing"):
        read_tensor_file(moved)
