"""16 requests through the engine, against diffusers one by one and as one call."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.diffusion.engine import DiffusionEngine
from .pictures import (
    Diffusers,
    EngineRun,
    Picture,
    PictureRequest,
    latent_difference,
    make_engine,
    requests,
)
from .report import Report, Row, fastest

SEED = 0
RUNS = 3


def run() -> None:
    """Print and write the comparison at 64 and 128 px."""
    report = Report("engine", SEED)
    diffusers, engine = Diffusers(), make_engine()
    for size in (64, 128):
        work = requests(16, width=size, height=size)
        EngineRun(engine, work).run()  # loads the model and measures its step costs
        diffusers.one(work[0])
        _sixteen(report, engine, diffusers, work)
        _alone(report, engine, diffusers, work[0])
        _strict(report, engine, diffusers, size)
    report.finish()


def _sixteen(
    report: Report, engine: DiffusionEngine, diffusers: Diffusers, work: Sequence[PictureRequest]
) -> None:
    before = engine.stats()
    ours, batch, serial = fastest(
        RUNS,
        lambda: EngineRun(engine, work).run(),
        lambda: diffusers.batch(work),
        lambda: diffusers.one_by_one(work),
    )
    counters = batch_counters(before, engine.stats())
    case = f"16 requests, {work[0].width} px"
    for name, (seconds, result) in (
        ("diffusers one by one", serial),
        ("diffusers batch 16", batch),
    ):
        diff, scale = latent_difference(ours[1], result)
        report.add(Row(case, ours[0], name, seconds, diff, scale, counters))


def _alone(
    report: Report, engine: DiffusionEngine, diffusers: Diffusers, request: PictureRequest
) -> None:
    ours, theirs = fastest(
        2 * RUNS, lambda: EngineRun(engine, [request]).run(), lambda: [diffusers.one(request)]
    )
    diff, scale = latent_difference(ours[1], theirs[1])
    case = f"one request alone, {request.width} px"
    report.add(Row(case, ours[0], "diffusers", theirs[0], diff, scale))


def _strict(report: Report, engine: DiffusionEngine, diffusers: Diffusers, size: int) -> None:
    request = requests(1, width=size, height=size, strict=True)[0]
    ours, theirs = fastest(
        3 * RUNS, lambda: EngineRun(engine, [request]).run(), lambda: [diffusers.one(request)]
    )
    diff, scale = latent_difference(ours[1], theirs[1])
    picture = picture_difference(ours[1], theirs[1])
    case = f"one request, strict, {size} px"
    report.add(Row(case, ours[0], "diffusers", theirs[0], max(diff, picture), scale))


def picture_difference(ours: Sequence[Picture], theirs: Sequence[Picture]) -> float:
    """Largest difference between pictures (values in 0..1)."""
    return max(
        float((a.picture - b.picture).abs().max())
        for a, b in zip(ours, theirs, strict=True)
        if a.picture is not None and b.picture is not None
    )


def batch_counters(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Denoiser forwards between two readings, and how many requests shared one on average."""
    forwards = after["denoise_forwards"] - before["denoise_forwards"]
    shared = after["denoise_requests"] - before["denoise_requests"]
    return {
        "mean_batch": round(shared / max(forwards, 1), 2),
        "peak_batch": after["peak_batch"],
        "forwards": forwards,
        "padding": after["denoise_padding"] - before["denoise_padding"],
    }
