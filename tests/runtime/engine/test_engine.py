from __future__ import annotations

import pytest
import torch

from omnistage.runtime.models.program import LoadedModel
from omnistage.runtime.protocol.errors import JobFailed, ModelLoadFailed

from .toys import Layer, run, toy_engine, toy_task

FINAL = {"done", "failed", "cancelled"}


def value(events: list) -> float:
    return float(events[-1].outputs["x"].tensors["x"].array[0, 0])


def test_requests_share_forwards() -> None:
    layer = Layer()
    engine = toy_engine(layer)
    for i in range(4):
        engine.submit(toy_task(f"t{i}", value=float(i)))
    events = run(engine)
    # 3 steps of 2 calls for 4 requests are 24 calls: a deferred pair each, 8 rows a forward
    assert layer.rows == [8, 8, 8]
    assert [value(events[f"t{i}"]) for i in range(4)] == [i / 8 for i in range(4)]


def test_strict_never_shares_nor_defers() -> None:
    layer = Layer()
    engine = toy_engine(layer)
    engine.submit(toy_task("a", strict=True))
    engine.submit(toy_task("b", strict=True))
    run(engine)
    assert layer.rows == [1] * 12


def test_single_mode_never_shares() -> None:
    layer = Layer()
    engine = toy_engine(layer, mode="single")
    engine.submit(toy_task("a"))
    engine.submit(toy_task("b"))
    run(engine)
    assert set(layer.rows) == {1}


def test_a_full_batch_leaves_the_rest_for_later() -> None:
    layer = Layer()
    engine = toy_engine(layer, max_rows=4)
    for i in range(4):
        engine.submit(toy_task(f"t{i}"))
    run(engine)
    assert max(layer.rows) == 4


def test_a_late_request_joins_running_ones() -> None:
    layer = Layer()
    engine = toy_engine(layer)
    engine.submit(toy_task("early", steps=5))
    for _ in range(3):
        engine.step()
    engine.submit(toy_task("late", steps=2))
    run(engine)
    assert 4 in layer.rows


def test_progress_counts_steps_and_tells_the_batch() -> None:
    engine = toy_engine()
    engine.submit(toy_task("a"))
    engine.submit(toy_task("b"))
    progress = [e for e in run(engine)["a"] if e.kind == "progress"]
    assert [(e.step, e.total, e.batch) for e in progress] == [(1, 3, 2), (2, 3, 2), (3, 3, 2)]


def test_every_task_ends_exactly_once() -> None:
    engine = toy_engine()
    engine.submit(toy_task("good"))
    engine.submit(toy_task("bug", "broken"))
    engine.submit(toy_task("bad", value=float("nan")))
    engine.submit(toy_task("stopped", steps=100))
    engine.step()
    engine.cancel("stopped")
    events = run(engine)
    ends = {name: [e.kind for e in own if e.kind in FINAL] for name, own in events.items()}
    assert ends == {
        "good": ["done"],
        "bug": ["failed"],
        "bad": ["failed"],
        "stopped": ["cancelled"],
    }
    assert value(events["good"]) == 0.125


def test_a_failure_says_what_failed() -> None:
    engine = toy_engine()
    engine.submit(toy_task("bug", "broken"))
    error = run(engine)["bug"][-1].error
    assert isinstance(error, JobFailed)
    assert error.stage == "broken"
    assert "the program has a bug" in error.message


def test_cancel_takes_effect_before_the_next_step() -> None:
    engine = toy_engine()
    engine.submit(toy_task("a", steps=100))
    for _ in range(4):
        engine.step()
    engine.cancel("a")
    assert [e.kind for e in engine.step()] == ["cancelled"]
    assert not engine.busy


def test_cancel_before_admission_and_of_unknown_tasks() -> None:
    engine = toy_engine()
    engine.submit(toy_task("a"))
    engine.cancel("a")
    engine.cancel("nobody")
    assert [e.kind for e in run(engine)["a"]] == ["cancelled"]


def test_a_model_that_does_not_load_fails_its_tasks_and_is_tried_again() -> None:
    good = toy_engine()._load["toy"]
    attempts = []

    def load() -> LoadedModel:
        attempts.append(1)
        if len(attempts) == 1:
            raise ModelLoadFailed("vae/ is missing", field="vae")
        return good()

    engine = toy_engine(load=load)
    engine.submit(toy_task("first"))
    first = run(engine)["first"][-1]
    assert (first.kind, getattr(first.error, "field", None)) == ("failed", "vae")
    engine.submit(toy_task("second"))
    assert run(engine)["second"][-1].kind == "done"


def test_a_loader_with_a_bug_fails_its_tasks_only() -> None:
    def load() -> LoadedModel:
        raise KeyError("hidden_size")

    engine = toy_engine(load=load)
    engine.submit(toy_task("a"))
    end = run(engine)["a"][-1]
    assert end.kind == "failed"
    assert "hidden_size" in str(end.error)
    assert not engine.busy


def test_fair_alternates_between_clients() -> None:
    from dataclasses import replace

    engine = toy_engine(policy="fair", max_rows=2)
    for i in range(3):
        engine.submit(replace(toy_task(f"many{i}", steps=4), client="greedy"))
    engine.submit(replace(toy_task("one", steps=4), client="modest"))
    order: list[str] = []
    while engine.busy:
        order += [e.task for e in engine.step() if e.kind == "done"]
    assert order.index("one") < 2


def test_no_request_leaves_a_graph_or_grad_mode_behind() -> None:
    engine = toy_engine()
    engine.submit(toy_task("a"))
    run(engine)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("policy", ["fcfs", "srpt", "fair", "priority"])
def test_stats_are_json(policy: str) -> None:
    import json

    engine = toy_engine(policy=policy)
    engine.submit(toy_task("a"))
    run(engine)
    stats = json.loads(json.dumps(engine.stats()))
    assert stats["denoise_forwards"] == 3
    assert stats["models"]["toy"] == 64


def test_profiling_measures_growth_and_leaves_results_alone() -> None:
    layer = Layer()
    engine = toy_engine(layer, profile=True)
    engine.submit(toy_task("a"))
    events = run(engine)
    assert value(events["a"]) == 0.125
    assert len(layer.rows) > 3


def test_a_first_request_that_fails_is_only_its_own_failure() -> None:
    engine = toy_engine(profile=True)
    engine.submit(toy_task("bad", value=float("nan")))
    assert run(engine)["bad"][-1].kind == "failed"
    engine.submit(toy_task("good"))
    assert run(engine)["good"][-1].kind == "done"


def test_what_is_not_worth_sharing_is_not_measured_for_long() -> None:
    from omnistage.runtime.engine.diffusion.call import ModuleCall
    from omnistage.runtime.engine.diffusion.cost import CostCurve
    from omnistage.runtime.engine.diffusion.profile import profile

    from .toys import SPEC

    layer = Layer()
    call = ModuleCall(None, layer, ("layer", "__call__"), {"x": torch.ones(1, 4)}, SPEC)  # type: ignore[arg-type]
    times = iter([9.0, 0.1, 0.2, 0.4])
    curve = CostCurve()

    def timed(work: object) -> float:
        return next(times)

    profile(call, curve, timed)
    assert curve.points == {1: 0.1, 2: 0.2}, "two copies took twice as long: no gain"
