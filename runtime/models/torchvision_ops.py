"""Importing a torchvision that was built for another torch than the one installed.

Model libraries import torchvision for the image and video processors of checkpoints, which need
none of its compiled operators. Yet importing it fails where those cannot be loaded, as beside a
torch for CPUs when torchvision is the package index's build for CUDA: it describes two operators
to torch which then do not exist. Here these two are declared to torch, without an implementation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_DESCRIBES_OPERATORS = "torchvision._meta_registrations"
_OPERATORS = ("nms", "qnms")
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def make_torchvision_importable() -> None:
    """Have the operators declared when torchvision is imported and could not load its own.

    Costs nothing before that, changes nothing where they load, and may be repeated.
    """
    if not any(isinstance(finder, _Declare) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Declare())


class _Declare(MetaPathFinder):
    """Finds no module; it is asked before each import, so it can do things just in time.

    torchvision loads its operators before it imports the module that describes them.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _DESCRIBES_OPERATORS:
            _declare_missing()
        return None


def _declare_missing() -> None:
    import torch

    for operator in _OPERATORS:
        if not hasattr(torch.ops.torchvision, operator):
            torch.library.define(f"torchvision::{operator}", _SIGNATURE)
