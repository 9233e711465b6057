"""The differential suite: the same requests alone and in company give the same results.

A family plugs in with a `Case`: its model, a handful of requests, and a reference that runs
one request in diffusers' own pipeline. The suite then checks, for each way of sharing the
engine, that every request gets what it gets alone.

- strict mode is bit-identical to the reference
- everything else stays within 2e-5 of the reference's largest value (fp32)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from omnistage.runtime.bench.pictures import EngineRun, Picture, PictureRequest, make_engine
from omnistage.runtime.engine.core import EngineEvent
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.protocol.frames import Frame, Tensor

TOLERANCE = 2e-5
"""Of the reference's largest value."""


@dataclass(frozen=True)
class Case:
    """One family in the suite.

    Attributes:
        requests: of different sizes, lengths and step counts.
        reference: one request in the family's own pipeline.
    """

    name: str
    model: ModelEntry
    requests: Sequence[PictureRequest]
    reference: Callable[[PictureRequest], Picture]


class DisturbedRun(EngineRun):
    """A run in which some requests are spoiled or stopped on the way.

    Args:
        spoil: requests whose conditioning has a feature too few, so that their transformer call
            fails, merged and alone.
        stop: requests to cancel, and at how many finished denoising steps; 0: before the first.
    """

    def __init__(
        self, *args: Any, spoil: Iterable[int] = (), stop: dict[int, int] | None = None
    ) -> None:
        super().__init__(*args)
        self.spoil = set(spoil)
        self.stop = stop or {}
        self.steps_done: dict[int, int] = {}

    def on_event(self, event: EngineEvent) -> None:
        stage, _, number = event.task.partition("-")
        index = int(number)
        if event.kind == "progress":
            self.steps_done[index] = event.step
            if event.step == self.stop.get(index):
                self.cancel(index)
        if event.kind == "done" and stage == "encode" and index in self.spoil:
            event = replace(event, outputs={n: _spoiled(f) for n, f in event.outputs.items()})
        super().on_event(event)
        if event.kind == "done" and stage == "encode" and self.stop.get(index) == 0:
            self.cancel(index)
        self.engine.check_integrity()


def _spoiled(frame: Frame) -> Frame:
    tensors = {
        name: Tensor.of(np.ascontiguousarray(t.array[..., :-1])) if _says_words(name) else t
        for name, t in frame.tensors.items()
    }
    return Frame(frame.header, tensors)


def _says_words(name: str) -> bool:
    return "embeds" in name or "features" in name


def run(
    engine: DiffusionEngine, model: ModelEntry, requests: Sequence[PictureRequest]
) -> list[Picture]:
    """All requests at once through an engine that is there already."""
    return EngineRun(engine, requests, model.id, model.graph).run()


def run_alone(case: Case, **settings: Any) -> list[Picture]:
    """Each request through an engine that has nothing else to do."""
    engine = make_engine(case.model, **settings)
    return [EngineRun(engine, [request], case.model.id).run()[0] for request in case.requests]


def run_together(case: Case, **settings: Any) -> list[Picture]:
    """All requests at once."""
    return EngineRun(make_engine(case.model, **settings), case.requests, case.model.id).run()


def run_staggered(case: Case, **settings: Any) -> list[Picture]:
    """Each request arrives while those before it are on their way."""
    late = [replace(request, arrive=7 * i) for i, request in enumerate(case.requests)]
    return EngineRun(make_engine(case.model, **settings), late, case.model.id).run()


def run_with_neighbours(
    case: Case, *, spoil: bool = False, stop: bool = False, **settings: Any
) -> tuple[list[Picture], Picture]:
    """All requests next to one more that fails or is stopped; returns theirs and its fate."""
    requests = [*case.requests, replace(case.requests[0], seed=99)]
    last = len(requests) - 1
    run = DisturbedRun(
        make_engine(case.model, **settings),
        requests,
        case.model.id,
        spoil=[last] if spoil else [],
        stop={last: 2} if stop else None,
    )
    results = run.run()
    return results[:-1], results[-1]


PICTURE_TOLERANCE = 1e-4
"""A decoder amplifies: this is a fortieth of one step of an 8-bit picture."""

FILM_TOLERANCE = 1.001 / 255
"""Films travel in 8 bits, so that rounding may fall to either side."""


def assert_same(
    got: Sequence[Picture],
    want: Sequence[Picture],
    *,
    tolerance: float,
    picture_tolerance: float = PICTURE_TOLERANCE,
) -> None:
    """Latents equal to within `tolerance` of their largest value, and pictures likewise.

    With a tolerance of 0 all are equal bit for bit.
    """
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        assert ours.error is None, f"request {i} failed: {ours.error}"
        assert ours.latent is not None
        assert theirs.latent is not None
        scale = float(theirs.latent.abs().max())
        diff = float((ours.latent - theirs.latent).abs().max())
        assert diff <= tolerance * scale, f"request {i}: latents differ by {diff} of {scale}"
        assert ours.picture is not None
        assert theirs.picture is not None
        assert ours.picture.shape == theirs.picture.shape
        diff = float((ours.picture - theirs.picture).abs().max())
        most = picture_tolerance if tolerance else 0
        assert diff <= most, f"request {i}: pictures differ by {diff}"


def equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Bit for bit."""
    return a is not None and b is not None and torch.equal(a, b)
