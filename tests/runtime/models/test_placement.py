from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from omnistage.runtime.config import load_config
from omnistage.runtime.models import placement


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Pretends that there is a GPU, or none, and a torch for it, or not."""

    def pretend(*, gpu: bool, cuda_torch: bool) -> None:
        torch = tmp_path / "torch"
        (torch / "lib").mkdir(parents=True, exist_ok=True)
        if cuda_torch:
            (torch / "lib" / "libtorch_cuda.so").touch()
        spec = SimpleNamespace(origin=str(torch / "__init__.py"))
        found = {"nvidia-smi": "/usr/bin/nvidia-smi"} if gpu else {}
        monkeypatch.setattr(placement.shutil, "which", found.get)
        monkeypatch.setattr(placement.importlib.util, "find_spec", {"torch": spec}.get)
        placement.gpu_is_usable.cache_clear()

    yield pretend
    monkeypatch.undo()
    placement.gpu_is_usable.cache_clear()


@pytest.mark.parametrize(
    ("gpu", "cuda_torch", "device", "dtype"),
    [
        (True, True, "cuda:0", "bfloat16"),
        (True, False, "cpu", "float32"),
        (False, True, "cpu", "float32"),
    ],
)
def test_what_is_left_open_follows_the_machine(machine, gpu, cuda_torch, device, dtype):
    machine(gpu=gpu, cuda_torch=cuda_torch)
    config = load_config(assignments=["models.m.source=/m"], environ={}).config
    (entry,) = config.catalogue().entries()
    assert (entry.device, entry.dtype) == (device, dtype)


def test_what_is_said_is_kept(machine):
    machine(gpu=True, cuda_torch=True)
    said = ["models.m.source=/m", "models.m.device=cpu", "models.m.dtype=float16"]
    (entry,) = load_config(assignments=said, environ={}).config.catalogue().entries()
    assert (entry.device, entry.dtype) == ("cpu", "float16")


def test_the_demo_model_computes_in_float32_everywhere(machine):
    machine(gpu=True, cuda_torch=True)
    assert load_config(environ={}).config.catalogue()["demo"].dtype == "float32"


def test_the_answer_is_torchs():
    placement.gpu_is_usable.cache_clear()
    built = (Path(torch.__file__).parent / "lib" / "libtorch_cuda.so").exists()
    assert built == (torch.version.cuda is not None)
    assert placement.gpu_is_usable() == torch.cuda.is_available()
