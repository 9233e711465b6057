"""One training run: the optimiser, the average of the weights, the schedule and the snapshot.

Owns everything that the stages' trainers have in common. Knows nothing of speech.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import nn

_LOG_STEPS: Final = 50
_SNAPSHOT_S: Final = 90.0
_WARM_UP_STEPS: Final = 100
_FALL_START: Final = 0.65
_FLOOR: Final = 0.02

Loss = Callable[[random.Random], tuple[torch.Tensor, Mapping[str, float]]]
"""Draws a batch with the generator; the loss, and what else is worth telling."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a stage is optimised: AdamW, and the average of the weights is kept."""

    rate: float
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.998


def fit(
    name: str,
    module: nn.Module,
    loss: Loss,
    recipe: Recipe,
    folder: Path,
    steps: int,
    *,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Trains ``module`` for ``steps`` steps in all, those of earlier runs counted in.

    Steps and not minutes, so that a busy machine trains as well as an idle one, only longer.
    ``FOLDER/NAME.safetensors`` holds the averaged weights, also while it trains; at the end the
    module has them. ``FOLDER/NAME.pt`` is the snapshot to go on from.
    """
    run = _Run(module, recipe, folder / f"{name}.pt")
    run.resume()
    told: dict[str, list[float]] = {}
    start_s = saved_s = time.monotonic()
    while run.step < steps:
        value, facts = loss(_seeded(run.step))
        run.update(value, recipe.rate * _share_of_rate(run.step, steps))
        after_step()
        for fact, number in {"loss": value.item(), **facts}.items():
            told.setdefault(fact, []).append(number)
        now_s = time.monotonic()
        if run.step % _LOG_STEPS == 0:
            means = " ".join(f"{fact} {sum(n) / len(n):.4f}" for fact, n in told.items())
            print(f"{name} {run.step}/{steps} {now_s - start_s:.0f}s {means}", flush=True)
            told.clear()
        if now_s > saved_s + _SNAPSHOT_S or run.step == steps:
            run.save(folder / f"{name}.safetensors")
            saved_s = now_s
    load_weights(module, folder / f"{name}.safetensors")


def _share_of_rate(step: int, steps: int) -> float:
    """Warm-up, then constant, then a linear fall; being flat, it lets a later run be longer."""
    fall = (1 - step / steps) / (1 - _FALL_START)
    return min(1.0, (step + 1) / _WARM_UP_STEPS) * min(1.0, max(_FLOOR, fall))


def load_weights(module: nn.Module, path: Path) -> None:
    """Reads a stage's averaged weights; raises FileNotFoundError if it has not run."""
    module.load_state_dict(load_file(path))
    module.eval()


def _seeded(step: int) -> random.Random:
    """The generator of one step, so that a resumed run draws new batches."""
    torch.manual_seed(step)
    return random.Random(step)


class _Run:
    """The state of training."""

    def __init__(self, module: nn.Module, recipe: Recipe, path: Path) -> None:
        self.step = 0
        self._module, self._recipe, self._path = module, recipe, path
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._optimiser = torch.optim.AdamW(
            self._parameters,
            lr=recipe.rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
        )
        self._average = {k: v.clone() for k, v in module.state_dict().items()}

    def resume(self) -> None:
        """Reads the snapshot, if there is one."""
        if not self._path.exists():
            return
        state: dict[str, Any] = torch.load(self._path)
        self._module.load_state_dict(state["module"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._average, self.step = state["average"], state["step"]

    def update(self, loss: torch.Tensor, rate: float) -> None:
        """One step down the gradient."""
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._parameters, self._recipe.clip)
        self._optimiser.step()
        self.step += 1
        # A short memory at first, or the untrained weights would linger.
        keep = min(self._recipe.average, self.step / (self.step + 50))
        with torch.no_grad():
            for key, value in self._module.state_dict().items():
                if value.is_floating_point():
                    self._average[key].lerp_(value, 1 - keep)
                else:
                    self._average[key].copy_(value)

    def save(self, weights: Path) -> None:
        """Writes the snapshot and the averaged weights; neither is ever half written."""
        state = {
            "module": self._module.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "average": self._average,
            "step": self.step,
        }
        torch.save(state, self._path.with_suffix(".part"))
        self._path.with_suffix(".part").replace(self._path)
        part = weights.with_name(weights.name + ".part")
        save_file({k: v.contiguous() for k, v in self._average.items()}, part)
        part.replace(weights)
