"""Sound at the rate a model hears."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def resample(samples: npt.NDArray[np.float32], rate: float, wanted: int) -> npt.NDArray[np.float32]:
    """One channel `[T]` at `rate` Hz as `[T * wanted / rate]` at `wanted` Hz."""
    if rate == wanted:
        return samples
    import av

    frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
    frame.sample_rate = round(rate)
    resampler: Any = av.AudioResampler(format="flt", layout="mono", rate=wanted)
    parts = [*resampler.resample(frame), *resampler.resample(None)]
    return np.concatenate([part.to_ndarray()[0] for part in parts])
