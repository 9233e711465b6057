"""Requests of mixed sizes: packed, grouped, and one by one."""

from __future__ import annotations

from .engine import batch_counters
from .pictures import PROMPTS, Diffusers, EngineRun, PictureRequest, latent_difference, make_engine
from .report import Report, Row, fastest

SEED = 0
RUNS = 3
SIZES = (64, 96, 128, 64, 128, 96)


def run() -> None:
    """Print and write the comparison for 12 requests of 64, 96 and 128 px."""
    report = Report("mixed", SEED)
    work = [
        PictureRequest(PROMPTS[i % len(PROMPTS)], seed=i, width=SIZES[i % 6], height=SIZES[i % 6])
        for i in range(12)
    ]
    engines = {mode: make_engine(mode=mode) for mode in ("packed", "grouped", "single")}
    for engine in engines.values():
        EngineRun(engine, work).run()
    before = {mode: engine.stats() for mode, engine in engines.items()}
    diffusers = Diffusers()
    *ours, serial = fastest(
        RUNS,
        *(lambda e=engine: EngineRun(e, work).run() for engine in engines.values()),
        lambda: diffusers.one_by_one(work),
    )
    for (mode, engine), (seconds, result) in zip(engines.items(), ours, strict=True):
        diff, scale = latent_difference(result, serial[1])
        counters = batch_counters(before[mode], engine.stats())
        case = f"12 requests, 64/96/128 px, {mode}"
        report.add(Row(case, seconds, "diffusers one by one", serial[0], diff, scale, counters))
    report.finish()
