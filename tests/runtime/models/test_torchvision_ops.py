"""Every test here runs in an interpreter of its own: torchvision can be imported only once."""

import os
import subprocess
import sys

HOOK = """
import sys
from omnistage.runtime.models.torchvision_ops import make_torchvision_importable
make_torchvision_importable()
make_torchvision_importable()
"""


def run(program):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", HOOK + program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_torchvision_can_be_imported_with_its_transforms():
    done = run(
        "import torch, torchvision\n"
        "from torchvision.transforms.v2 import functional\n"
        "print(tuple(functional.resize(torch.zeros(3, 4, 4), [2, 2]).shape))\n"
    )
    assert done.stdout.strip() == "(3, 2, 2)", done.stderr


def test_operators_that_are_there_are_left_alone():
    done = run(
        "import torch\n"
        "torch.library.define('torchvision::nms', '(Tensor a) -> Tensor')\n"
        "from omnistage.runtime.models import torchvision_ops\n"
        "torchvision_ops._declare_missing()\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
        "print(torch.ops.torchvision.qnms.default._schema)\n"
    )
    ours = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    assert done.stdout.splitlines() == [
        "torchvision::nms(Tensor a) -> Tensor",
        f"torchvision::qnms{ours}",
    ], done.stderr


def test_nothing_is_imported_before_torchvision_is():
    done = run("print(sorted({'torch', 'torchvision'} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stderr
