"""Sound as bare samples, which players take as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def pcm16(samples: npt.NDArray[Any]) -> bytes:
    """One channel `[T]`, -1..1, as 16-bit little-endian samples; what is beyond is cut."""
    return (np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes()
