"""What the end-to-end tests queue: shipped workflows, made small, unique or long."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
from PIL import Image

from omnistage.runtime.bench.comfyui import Graph, with_inputs, workflow

LEASE_S = 8.0
"""How long a lease of the tests' runtime lasts without a sign of life."""


def small(name: str = "text_to_image", **sample: Any) -> Graph:
    """A shipped workflow at 64 x 64 px and 4 steps, with its samplers changed as given."""
    inputs = {"width": 64, "height": 64, "steps": 4, **sample}
    return with_inputs(workflow(name), "OmniStageSample", **inputs)


def fresh(**sample: Any) -> Graph:
    """Text to image that nobody has asked for before, so that no cache can answer."""
    return small(seed=uuid.uuid4().int % 2**63, **sample)


def long(**sample: Any) -> Graph:
    """Text to image that nobody waits for: it is stopped, or dies with a server."""
    return fresh(**{"steps": 200, "width": 128, "height": 128, "count": 16, **sample})


def levels_apart(one: Image.Image, other: Image.Image) -> int:
    """The largest difference of two pictures, of 256 levels."""
    return int(np.abs(np.asarray(one, np.int16) - np.asarray(other, np.int16)).max())
