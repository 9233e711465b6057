"""How long to wait before a crashed engine is started again."""

from __future__ import annotations

import time
from collections.abc import Callable


class Backoff:
    """Delays that double while crashes follow each other, and start over after a good run.

    Args:
        first_s: delay after the first crash.
        most_s: longest delay.
        good_run_s: an engine that was up for this long makes the delays start over.
    """

    def __init__(
        self,
        first_s: float = 0.2,
        most_s: float = 30.0,
        good_run_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_s, self._most_s, self._good_run_s = first_s, most_s, good_run_s
        self._clock = clock
        self._next_s = first_s
        self._up_since_s: float | None = None

    def came_up(self) -> None:
        """The engine is up."""
        self._up_since_s = self._clock()

    def died(self) -> float:
        """The engine died; returns the seconds to wait before the next start."""
        since_s, self._up_since_s = self._up_since_s, None
        if since_s is not None and self._clock() - since_s >= self._good_run_s:
            self._next_s = self._first_s
        delay_s, self._next_s = self._next_s, min(2 * self._next_s, self._most_s)
        return delay_s
