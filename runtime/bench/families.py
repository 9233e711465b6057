"""Every family: eight requests together against one by one, of one size and of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np

from ..engine.diffusion.engine import DiffusionEngine
from ..models.catalogue import ModelEntry
from ..models.modular.family import ModularFamily
from .engine import batch_counters
from .pictures import PROMPTS, EngineRun, Picture, PictureRequest, latent_difference, make_engine
from .report import Report, Row, fastest

SEED = 0
REQUESTS: Final = 8
FEW: Final = 2
"""Requests, of one size and in one mode, where one takes longer than `SLOW_S`."""
SLOW_S: Final = 2.0
SIZES: Final = {"one size": ((64, 64),), "mixed sizes": ((64, 64), (128, 64), (64, 128))}
"""In pixels; some families take multiples of 64 only."""
STEPS: Final = 3


def run(checkpoints: Path | None = None) -> None:
    """Print and write the comparison for each checkpoint in a folder.

    Raises:
        ValueError: there is none.
    """
    models = [] if checkpoints is None else _models(checkpoints)
    if not models:
        raise ValueError("give a folder of checkpoints in diffusers layout: --checkpoints DIR")
    report = Report("families", SEED)
    for model in models:
        _compare(report, model)
    report.finish()


def _models(folder: Path) -> list[ModelEntry]:
    """The checkpoints of modular families that a folder has."""
    places = {path.parent for path in folder.glob("*/*model_index.json")}  # modular ones, too
    found = [ModelEntry(place.name, str(place)) for place in sorted(places)]
    return [model for model in found if isinstance(model.checkpoint.family, ModularFamily)]


def _compare(report: Report, model: ModelEntry) -> None:
    """All at once, in each mode, and one by one, in engines that have loaded the model."""
    default = make_engine(model, profile=False)
    first = _requests(model, 1, SIZES["mixed sizes"])
    _together(default, model, first)
    start_s = perf_counter()
    _together(default, model, first)
    if perf_counter() - start_s > SLOW_S:
        work = _requests(model, FEW, SIZES["one size"])
        _case(report, f"{model.id}, {FEW} requests, one size", model, {"packed": default}, work)
        return
    engines = {"packed": default}
    engines |= {mode: make_engine(model, profile=False, mode=mode) for mode in _other_modes(model)}
    for engine in engines.values():
        _together(engine, model, first)
    for name, sizes in SIZES.items():
        work = _requests(model, REQUESTS, sizes)
        _case(report, f"{model.id}, {REQUESTS} requests, {name}", model, engines, work)


def _case(
    report: Report,
    case: str,
    model: ModelEntry,
    engines: Mapping[str, DiffusionEngine],
    work: Sequence[PictureRequest],
) -> None:
    default = engines["packed"]
    before = default.stats()
    _together(default, model, work)
    counters = batch_counters(before, default.stats())
    alone, ours, *others = fastest(
        1,
        lambda: [_together(default, model, [one])[0] for one in work],
        *(lambda e=engine: _together(e, model, work) for engine in engines.values()),
    )
    baselines = ["one by one", *[*engines][1:]]
    for baseline, (seconds, result) in zip(baselines, [alone, *others], strict=True):
        diff, scale = latent_difference(ours[1], result)
        report.add(Row(case, ours[0], baseline, seconds, diff, scale, counters))


def _other_modes(model: ModelEntry) -> tuple[str, ...]:
    """Beside the engine's own; `grouped` is that one where nothing can be packed."""
    family = model.checkpoint.family
    assert isinstance(family, ModularFamily)
    packs = any(spec.packed is not None for spec in family.specs().values())
    return ("grouped", "single") if packs else ("single",)


def _together(
    engine: DiffusionEngine, model: ModelEntry, work: Sequence[PictureRequest]
) -> list[Picture]:
    return EngineRun(engine, work, model.id, model.graph).run()


def _requests(
    model: ModelEntry, count: int, sizes: Sequence[tuple[int, int]]
) -> list[PictureRequest]:
    encode, sample = model.graph["text_encode"], model.graph["sample"]
    known = sample.params.model_json_schema()["properties"]
    negative = encode.params.model_json_schema()["properties"]["negative_prompt"]
    family = model.checkpoint.family
    assert isinstance(family, ModularFamily)
    more: dict[str, Any] = {"frames": 1 + known["frames"]["step"]} if "frames" in known else {}
    picture = None
    if family.needs_reference:
        channels = 4 if family.transparent else 3
        picture = np.random.default_rng(SEED).random((1, 64, 64, channels), np.float32)
    return [
        PictureRequest(
            PROMPTS[i % len(PROMPTS)],
            seed=i,
            width=sizes[i % len(sizes)][0],
            height=sizes[i % len(sizes)][1],
            steps=STEPS,
            guidance=3.0,
            negative_prompt="" if negative.get("maxLength") == 0 else "grey",
            references=picture,
            more=more,
        )
        for i in range(count)
    ]
