"""Frames to torch tensors and back."""

from __future__ import annotations

import numpy as np
import torch

from ..protocol.frames import Frame, Tensor
from .program import Bundle


def to_bundle(frame: Frame, device: torch.device) -> Bundle:
    """A frame's tensors as torch tensors on a device, with its header as facts."""
    return Bundle({n: _to_torch(t, device) for n, t in frame.tensors.items()}, dict(frame.header))


def to_frame(bundle: Bundle) -> Frame:
    """A bundle as a frame on the host."""
    return Frame(dict(bundle.facts), {n: _to_wire(t) for n, t in bundle.tensors.items()})


def _to_torch(tensor: Tensor, device: torch.device) -> torch.Tensor:
    array = tensor.array if tensor.array.flags.writeable else tensor.array.copy()
    value = torch.from_numpy(array)
    if tensor.tag == "BF16":
        value = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return value.to(device)


def _to_wire(tensor: torch.Tensor) -> Tensor:
    host = tensor.detach().cpu().contiguous()
    if host.dtype is torch.bfloat16:
        return Tensor(host.view(torch.int16).numpy().view(np.uint16), "BF16")
    return Tensor.of(host.numpy())
