"""What a benchmark found: a table for people, JSON for tools."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

OUT = Path(".bench")
_PACKAGES = ("torch", "diffusers", "transformers", "greenlet")


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison.

    Attributes:
        ours_s, baseline_s: seconds for the same work; ratio = baseline_s / ours_s.
        max_abs_diff: largest difference between the two results; None: not comparable.
        scale: largest absolute value of the baseline's result, to judge the difference by.
        counters: what explains the ratio: mean and peak batch, forwards ...
    """

    case: str
    ours_s: float
    baseline: str
    baseline_s: float
    max_abs_diff: float | None = None
    scale: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.baseline_s / self.ours_s

    def to_json(self) -> dict[str, Any]:
        """The row in the form all benches share."""
        return {
            "case": self.case,
            "ours_s": round(self.ours_s, 4),
            "baseline": self.baseline,
            "baseline_s": round(self.baseline_s, 4),
            "ratio": round(self.ratio, 3),
            "max_abs_diff": self.max_abs_diff,
            "scale": self.scale,
            **self.counters,
        }


@dataclass(slots=True)
class Report:
    """All rows of one benchmark."""

    bench: str
    seed: int
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add a row, and say so at once: a benchmark takes minutes."""
        self.rows.append(row)
        Console().print(f"{row.case} vs {row.baseline}: {row.ratio:.2f}x", highlight=False)

    def finish(self) -> Path:
        """Print the table, write the JSON, and return the file."""
        Console().print(self._table())
        OUT.mkdir(exist_ok=True)
        path = OUT / f"{self.bench}.json"
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")
        Console().print(f"written to {path}", highlight=False)
        return path

    def to_json(self) -> dict[str, Any]:
        """The whole report."""
        return {
            "bench": self.bench,
            "seed": self.seed,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in _PACKAGES},
            "rows": [row.to_json() for row in self.rows],
        }

    def _table(self) -> Table:
        table = Table(title=f"bench {self.bench}")
        for column in ("case", "ours s", "baseline", "baseline s", "ratio", "max diff", "counters"):
            table.add_column(column, overflow="fold")
        for row in self.rows:
            diff = "-" if row.max_abs_diff is None else f"{row.max_abs_diff:.1e}"
            if row.scale:
                diff += f" of {row.scale:.3g}"
            counters = " ".join(f"{k}={v:g}" for k, v in row.counters.items())
            table.add_row(
                row.case,
                f"{row.ours_s:.3f}",
                row.baseline,
                f"{row.baseline_s:.3f}",
                f"{row.ratio:.2f}x",
                diff,
                counters,
            )
        return table


def fastest(runs: int, *works: Callable[[], Any]) -> list[tuple[float, Any]]:
    """Time several works in turn, `runs` times each, so that a disturbance meets all alike.

    Returns:
        For each work, its fastest time in seconds and its last result.
    """
    best: list[tuple[float, Any]] = [(float("inf"), None)] * len(works)
    for _ in range(runs):
        for i, work in enumerate(works):
            start_s = perf_counter()
            result = work()
            best[i] = (min(best[i][0], perf_counter() - start_s), result)
    return best
