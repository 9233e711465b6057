"""Where a model runs, and in which type, when the configuration leaves that open."""

from __future__ import annotations

import importlib.util
import shutil
from functools import cache
from pathlib import Path
from typing import Final

AUTO: Final = "auto"


def device_of(device: str) -> str:
    """A torch device; `auto` is the first GPU, or the CPU where there is none."""
    if device != AUTO:
        return device
    return "cuda:0" if gpu_is_usable() else "cpu"


def dtype_of(dtype: str, device: str) -> str:
    """A dtype's name; `auto` is what a device computes fast: bfloat16 on a GPU, else float32.

    Few CPUs have instructions for bfloat16; on the others it is many times slower.
    """
    if dtype != AUTO:
        return dtype
    return "float32" if device == "cpu" else "bfloat16"


@cache
def gpu_is_usable() -> bool:
    """Whether there is an NVIDIA GPU, and a torch that was built for it.

    Tells it without importing torch, which the server's process does without.
    """
    if shutil.which("nvidia-smi") is None:
        return False
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return False
    return (Path(torch.origin).parent / "lib" / "libtorch_cuda.so").exists()
