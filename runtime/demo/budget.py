"""The clock of a training stage: how much of its time is spent, and the learning rate there.

Owns elapsed time across restarts. Knows nothing of models.
"""

from __future__ import annotations

import time
from typing import Final

_WARM_UP_STEPS: Final = 100
_DECAY_START: Final = 0.65
_FLOOR: Final = 0.02


class Budget:
    """Wall-clock time for one stage, continued over restarts."""

    def __init__(self, minutes: float, spent_s: float = 0.0) -> None:
        """Starts the clock, with ``spent_s`` seconds used by earlier runs."""
        self.total_s = 60 * minutes
        self._start_s = time.monotonic() - spent_s

    @property
    def spent_s(self) -> float:
        """Seconds used, earlier runs included."""
        return time.monotonic() - self._start_s

    @property
    def fraction(self) -> float:
        """Part of the time that is spent; 1 and more means done."""
        return self.spent_s / self.total_s

    def learning_rate(self, peak: float, step: int) -> float:
        """Warm-up, then constant, then a linear fall over the last third of the time.

        Being flat for most of the run, the schedule lets a resumed run have another budget.
        """
        fall = (1.0 - self.fraction) / (1.0 - _DECAY_START)
        return peak * min(1.0, (step + 1) / _WARM_UP_STEPS) * min(1.0, max(_FLOOR, fall))
