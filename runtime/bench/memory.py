"""Three models in turn under a budget that holds two: what that costs, and that results agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

from ..engine.diffusion.build import build_core
from ..engine.diffusion.engine import DiffusionEngine
from ..engine.diffusion.settings import EngineSettings
from .engine import picture_difference
from .pictures import MODEL, EngineRun, Picture, latent_difference, requests
from .report import Report, Row

SEED = 0
ROUNDS = 2
STEPS = 8
MODELS = tuple(replace(MODEL, id=f"demo{i}") for i in range(3))
"""The same checkpoint as three models, which share nothing in memory."""


def run() -> None:
    """Print and write the comparison with no budget, one model after the other and all at once."""
    report = Report("memory", SEED)
    free = _engine(0)
    _in_turn(free)
    model_bytes = free.stats()["resident_bytes"] / len(MODELS)
    budget_mb = int(2.2 * model_bytes) >> 20
    for case, work in (("in turn", _in_turn), ("all at once", _at_once)):
        report.add(_row(f"3 models {case}, room for 2", work, budget_mb))
    report.finish()


def _row(case: str, work: Any, budget_mb: int) -> Row:
    free, tight = _engine(0), _engine(budget_mb)
    baseline_s, expected = _timed(work, free)
    ours_s, got = _timed(work, tight)
    stats = tight.stats()
    diff, scale = latent_difference(got, expected)
    counters = {
        "budget": stats["memory_budget_bytes"],
        "peak": stats["peak_resident_bytes"],
        "over": max(0, stats["peak_resident_bytes"] - stats["memory_budget_bytes"]),
        "no_budget_peak": free.stats()["peak_resident_bytes"],
        "loads": stats["loads"],
        "evictions": stats["evictions"],
        "load_s": stats["load_s"],
        "equal": sum(_equal(a, b) for a, b in zip(got, expected, strict=True)),
        "of": len(got),
        "picture_diff": picture_difference(got, expected),
    }
    return Row(case, ours_s, "no budget", baseline_s, diff, scale, counters)


def _engine(budget_mb: int) -> DiffusionEngine:
    """An engine for the models; 0: without a budget."""
    settings = {"memory_mb": budget_mb, "profile": False}
    return build_core(EngineSettings.model_validate(settings), MODELS)


def _in_turn(engine: DiffusionEngine) -> list[Picture]:
    """A picture of each model after the other, some rounds long; strict, so that bits can agree."""
    return [
        EngineRun(engine, [request], model.id).run()[0]
        for request in requests(ROUNDS, steps=STEPS, strict=True)
        for model in MODELS
    ]


def _at_once(engine: DiffusionEngine) -> list[Picture]:
    """As many pictures of all models together."""
    runs = [_Named(engine, requests(ROUNDS, steps=STEPS, strict=True), m.id) for m in MODELS]
    by_model = {run.model: run for run in runs}
    for each in runs:
        each.begin()
    while engine.busy:
        for event in engine.step():
            model, _, task = event.task.partition(":")
            by_model[model].on_event(replace(event, task=task))
    return [picture for each in runs for picture in each.results]


class _Named(EngineRun):
    """A run whose tasks' names begin with its model, so that several can share an engine."""

    def begin(self) -> None:
        """Submit all requests."""
        self.results = [Picture() for _ in self.requests]
        for index in range(len(self.requests)):
            self._encode(index)

    def _submit(self, name: str, *rest: Any) -> None:
        super()._submit(f"{self.model}:{name}", *rest)


def _timed(work: Any, engine: DiffusionEngine) -> tuple[float, Sequence[Picture]]:
    start_s = perf_counter()
    result = work(engine)
    return perf_counter() - start_s, result


def _equal(a: Picture, b: Picture) -> bool:
    """Whether two pictures, and the latents they were made of, agree in every bit."""
    pairs = ((a.latent, b.latent), (a.picture, b.picture))
    return all(x is not None and y is not None and torch.equal(x, y) for x, y in pairs)
