"""Short jobs behind long ones: how much longer than alone each job takes, per policy."""

from __future__ import annotations

from dataclasses import replace
from statistics import quantiles
from time import perf_counter

from ..engine.core import EngineEvent
from .pictures import PROMPTS, EngineRun, PictureRequest, make_engine
from .report import Report, Row

SEED = 0
POLICIES = ("fcfs", "srpt", "fair", "priority")


class _TimedRun(EngineRun):
    """Also notes how long each request took from its arrival to its picture."""

    def run_timed(self) -> list[float]:
        """Seconds each request took."""
        self.submitted_s: dict[int, float] = {}
        self.ended_s: dict[int, float] = {}
        self.run()
        return [self.ended_s[i] - self.submitted_s[i] for i in range(len(self.requests))]

    def _encode(self, index: int) -> None:
        self.submitted_s[index] = perf_counter()
        super()._encode(index)

    def on_event(self, event: EngineEvent) -> None:
        super().on_event(event)
        self.ended_s[int(event.task.partition("-")[2])] = perf_counter()


def run() -> None:
    """Print and write p50 and p95 slowdown of the short and the long jobs per policy."""
    report = Report("policy", SEED)
    work = _work()
    alone = _alone_s(work)
    for policy in POLICIES:
        engine = make_engine(policy=policy, max_rows=8)
        EngineRun(engine, work[:2]).run()  # loads the model and measures its step costs
        start_s = perf_counter()
        took = _TimedRun(engine, work).run_timed()
        wall_s = perf_counter() - start_s
        slowdown = [t / alone[_kind(r)] for t, r in zip(took, work, strict=True)]
        serial_s = sum(alone[_kind(r)] for r in work)
        report.add(Row(policy, wall_s, "one by one", serial_s, counters=_summary(slowdown, work)))
    report.finish()


def _work() -> list[PictureRequest]:
    """Long jobs of one client, then short ones of another that arrive while they run."""
    long = [
        PictureRequest(PROMPTS[i], seed=i, width=128, height=128, steps=40, client="studio")
        for i in range(6)
    ]
    short = [
        PictureRequest(
            PROMPTS[i % 8], seed=i, steps=8, client="visitor", priority=1, arrive=20 + 8 * i
        )
        for i in range(12)
    ]
    return long + short


def _kind(request: PictureRequest) -> tuple[int, int]:
    return request.width, request.steps


def _alone_s(work: list[PictureRequest]) -> dict[tuple[int, int], float]:
    """Seconds a request of each kind takes when the engine has nothing else to do."""
    engine = make_engine(max_rows=8)
    fastest: dict[tuple[int, int], float] = {}
    for _ in range(4):
        for request in {_kind(r): r for r in work}.values():
            (took,) = _TimedRun(engine, [replace(request, arrive=0)]).run_timed()
            fastest[_kind(request)] = min(took, fastest.get(_kind(request), took))
    return fastest


def _summary(slowdown: list[float], work: list[PictureRequest]) -> dict[str, float]:
    summary: dict[str, float] = {}
    for name, client in (("short", "visitor"), ("long", "studio")):
        own = [s for s, r in zip(slowdown, work, strict=True) if r.client == client]
        cuts = quantiles(own, n=20, method="inclusive")
        summary |= {f"{name}_p50": round(cuts[9], 2), f"{name}_p95": round(cuts[18], 2)}
    return summary
