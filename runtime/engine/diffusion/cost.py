"""The measured cost of a forward pass, and when a batch is full.

A forward's time is close to `fixed + per_token * tokens`: the fixed part (weights, launches,
Python) is what sharing saves. A batch is full when more tokens would raise throughput by no
more than a few percent; filling further only makes everyone's step longer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

_KEPT = 64
_LEAST_S = 1e-9
"""What a forward takes at least, even if the clock is too coarse to tell."""
_MIN_SPREAD = 1.5
"""Ratio of largest to smallest token count below which a line cannot be fitted."""


@dataclass(slots=True)
class CostCurve:
    """Step times of one method, learned from the forwards that ran.

    Points are kept by token count; of repeated counts the fastest time counts, because what
    disturbs a measurement only ever makes it slower.
    """

    points: dict[int, float] = field(default_factory=dict)
    profiled: bool = False
    """Whether growth was measured on purpose; once is enough, however it went."""

    def observe(self, tokens: int, seconds: float) -> None:
        """Add one measured forward."""
        seconds = max(seconds, _LEAST_S)
        known = self.points.pop(tokens, seconds)
        # the old value fades, so that the curve follows a machine that became slower
        self.points[tokens] = min(seconds, known * 1.02)
        if len(self.points) > _KEPT:
            self.points.pop(next(iter(self.points)))

    def fit(self) -> tuple[float, float] | None:
        """(fixed seconds, seconds per token), or None before enough was seen.

        Points weigh by their relative error. Otherwise the fixed part, which small forwards
        show, would be lost in what large ones miss the line by, and no batch would be formed.
        """
        if not self.points or max(self.points) < _MIN_SPREAD * min(self.points):
            return None
        weights = {tokens: seconds**-2 for tokens, seconds in self.points.items()}
        total = sum(weights.values())
        mean_x = sum(w * x for x, w in weights.items()) / total
        mean_y = sum(weights[x] * y for x, y in self.points.items()) / total
        spread = sum(w * (x - mean_x) ** 2 for x, w in weights.items())
        product = sum(weights[x] * (x - mean_x) * (y - mean_y) for x, y in self.points.items())
        slope = product / spread
        return (max(mean_y - slope * mean_x, 0.0), slope) if slope > 0 else None

    def estimate_s(self, tokens: int) -> float:
        """Expected seconds of a forward; 0 before anything was seen."""
        line = self.fit()
        if line is not None:
            return line[0] + line[1] * tokens
        return max(self.points.values(), default=0.0)

    def full_tokens(self, share: float) -> int | None:
        """Tokens at which throughput reaches `share` of what more tokens could reach.

        Throughput is T / (fixed + per_token * T), its limit 1 / per_token; their ratio is
        `share` at T = share / (1 - share) * fixed / per_token. None: not known yet, fill up.
        """
        line = self.fit()
        if line is None:
            return None
        return int(share / (1 - share) * line[0] / line[1])


class CostModel:
    """Cost curves by method and merge mode."""

    def __init__(self) -> None:
        self._curves: dict[Hashable, CostCurve] = {}

    def curve(self, kind: Hashable) -> CostCurve:
        """The curve of one kind of forward."""
        return self._curves.setdefault(kind, CostCurve())
