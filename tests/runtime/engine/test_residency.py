"""Components of toys under budgets: what is loaded, what goes, and that results do not care."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from omnistage.runtime.engine.core import EngineEvent, StageTask
from omnistage.runtime.engine.diffusion.build import budgets, build_core
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.engine.diffusion.residency import HOST, Residency
from omnistage.runtime.engine.diffusion.settings import EngineSettings
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.modules import Component, Modules
from omnistage.runtime.models.program import Bundle, LoadedModel, StageContext
from omnistage.runtime.protocol.errors import ModelLoadFailed

from .toys import run

NBYTES = 64
NAMES = ("a", "b", "c")


class Scale(torch.nn.Module):
    """Multiplies by a weight of 16 floats; its buffer does nothing."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(4) * by, requires_grad=False)
        self.register_buffer("facts", torch.tensor([by]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Shelf:
    """Components `a`, `b` and `c`, which scale by 2, 3 and 5, and can be told to break."""

    def __init__(self, nbytes: int = NBYTES + 4) -> None:
        self.builds: list[str] = []
        self.broken: set[str] = set()
        self.nbytes = nbytes

    def modules(self) -> Modules:
        return Modules({name: Component((name,), self.nbytes, self._build(name)) for name in NAMES})

    def _build(self, name: str) -> Callable[[], dict[str, torch.nn.Module]]:
        def build() -> dict[str, torch.nn.Module]:
            self.builds.append(name)
            if name in self.broken:
                raise ModelLoadFailed(f"{name} is damaged", field=name)
            return {name: Scale({"a": 2.0, "b": 3.0, "c": 5.0}[name])}

        return build


def scale(
    context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
) -> dict[str, Bundle]:
    """Calls the modules that are named, one after the other, in rounds."""
    stand_ins = {name: context.module(name) for name in NAMES}
    x = torch.ones(1, 4)
    for _ in range(params["rounds"]):
        for name in params["use"]:
            x = stand_ins[name](x)
    return {"x": Bundle({"x": x}, {"kind": "toy"})}


def look(
    context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
) -> dict[str, Bundle]:
    """Reads what a module says of itself, whether its weights are there or not."""
    module = context.module(params["use"])
    assert module.weight.shape == (4, 4)
    assert module.weight.dtype is torch.float32
    return {"x": Bundle({"x": module.facts.clone()}, {"kind": "toy"})}


def engine_of(shelf: Shelf, residency: Residency | None = None, **settings: Any) -> DiffusionEngine:
    model = LoadedModel(shelf.modules(), specs={}, programs={"scale": scale, "look": look})
    settings.setdefault("profile", False)
    return DiffusionEngine({"m": lambda: model}, EngineSettings(**settings), residency=residency)


def task(name: str, use: str, *, rounds: int = 1, stage: str = "scale") -> StageTask:
    return StageTask(name, "m", stage, {"use": use, "rounds": rounds})


def value(events: list[EngineEvent]) -> float:
    assert events[-1].kind == "done", events[-1].error
    return float(events[-1].outputs["x"].tensors["x"].array.flat[0])


def two_fit() -> Residency:
    return Residency(HOST, 2 * (NBYTES + 4) + 4)


def test_a_request_loads_only_what_it_uses() -> None:
    shelf = Shelf()
    engine = engine_of(shelf)
    engine.submit(task("1", "b"))
    assert value(run(engine)["1"]) == 3
    assert shelf.builds == ["b"]
    assert engine.stats()["components"] == {"m/b": NBYTES + 4}


def test_what_was_not_used_for_longest_goes_and_comes_back() -> None:
    shelf = Shelf()
    engine = engine_of(shelf, two_fit())
    for i, name in enumerate("abacb"):
        engine.submit(task(str(i), name))
        assert value(run(engine)[str(i)]) == {"a": 2, "b": 3, "c": 5}[name]
    assert shelf.builds == ["a", "b", "c", "b"], "c drove out b, which came back for a"
    stats = engine.stats()
    assert (stats["loads"], stats["evictions"]) == (4, 2)
    assert stats["peak_resident_bytes"] <= stats["memory_budget_bytes"]
    assert stats["components"].keys() == {"m/c", "m/b"}


@pytest.mark.parametrize("policy", ["fcfs", "srpt", "fair", "priority"])
def test_requests_that_need_more_than_fits_all_end_with_the_same_results(policy: str) -> None:
    shelf = Shelf()
    engine = engine_of(shelf, Residency(HOST, NBYTES + 12), policy=policy)
    wanted = {"1": "abc", "2": "cab", "3": "b", "4": "ca"}
    for name, use in wanted.items():
        engine.submit(task(name, use, rounds=2))
    events = run(engine)
    free = engine_of(Shelf())
    for name, use in wanted.items():
        free.submit(task(name, use, rounds=2))
    expected = run(free)
    assert {n: value(events[n]) for n in wanted} == {n: value(expected[n]) for n in wanted}
    stats = engine.stats()
    assert stats["peak_resident_bytes"] <= stats["memory_budget_bytes"]
    assert stats["loads"] <= stats["forwards"], "each load was of use to a forward"


def test_the_module_stays_the_same_object() -> None:
    engine = engine_of(Shelf(), two_fit())
    kept = []
    for i, name in enumerate("abca"):
        engine.submit(task(str(i), name))
        run(engine)
        kept.append(engine._residency.module("m", "a"))
    assert all(module is kept[0] for module in kept)


def test_an_evicted_module_can_be_looked_at_but_not_mistaken() -> None:
    engine = engine_of(Shelf(), two_fit())
    for i, name in enumerate("abc"):
        engine.submit(task(str(i), name))
        run(engine)
    module = engine._residency.module("m", "a")
    assert isinstance(module, Scale)
    assert module.weight.isnan().all()
    assert module.weight.untyped_storage().nbytes() == 4
    engine.submit(task("look", "a", stage="look"))
    assert value(run(engine)["look"]) == 2, "its buffer is still there"
    assert not engine._residency.ready("m", "a"), "nothing was loaded to look at it"


def test_a_component_larger_than_the_budget_is_refused_before_anything_goes() -> None:
    residency = two_fit()
    engine = engine_of(Shelf(), residency)
    engine.submit(task("1", "a"))
    run(engine)
    big = LoadedModel(
        Modules({"unet": Component(("unet",), 3_000_000_000, dict)}), {}, {"look": look}
    )
    engine._load = {**engine._load, "big": lambda: big}
    engine.submit(StageTask("2", "big", "look", {"use": "unet"}))
    error = run(engine)["2"][-1].error
    assert isinstance(error, ModelLoadFailed)
    assert "unet of model big takes 3.00 GB" in error.message
    assert "memory_mb" in error.message
    assert engine.stats()["evictions"] == 0
    assert residency.ready("m", "a")


def test_a_load_that_fails_fails_only_those_who_need_it_and_is_tried_again() -> None:
    shelf = Shelf()
    shelf.broken.add("b")
    engine = engine_of(shelf)
    for name, use in (("1", "ab"), ("2", "a"), ("3", "b")):
        engine.submit(task(name, use))
    events = run(engine)
    assert value(events["2"]) == 2
    assert {events[n][-1].error.field for n in ("1", "3")} == {"b"}  # type: ignore[union-attr]
    shelf.broken.clear()
    engine.submit(task("4", "b"))
    assert value(run(engine)["4"]) == 3


def test_weights_that_do_not_come_back_fail_only_the_calls_that_wait_for_them() -> None:
    shelf = Shelf()
    engine = engine_of(shelf, two_fit())
    for i, name in enumerate("abc"):
        engine.submit(task(str(i), name))
        run(engine)
    shelf.broken.add("a")
    for name, use in (("x", "a"), ("y", "ba"), ("z", "bc")):
        engine.submit(task(name, use))
    events = run(engine)
    assert value(events["z"]) == 15
    assert {events[n][-1].kind for n in "xy"} == {"failed"}
    shelf.broken.clear()
    engine.submit(task("again", "a"))
    assert value(run(engine)["again"]) == 2


def test_files_that_are_others_by_now_are_not_taken() -> None:
    widths = iter((4, 3))
    modules = Modules(
        {"a": Component(("a",), NBYTES, lambda: {"a": torch.nn.Linear(4, next(widths))})}
    )
    residency = Residency()
    residency.adopt("m", LoadedModel(modules, {}, {}))
    residency.load("m", "a")
    residency._evict(residency._places["m", "a"])
    with pytest.raises(ModelLoadFailed, match="no longer those"):
        residency.load("m", "a")
    residency.check_integrity()


def test_twins_share_their_weights_and_their_fate() -> None:
    class Twin(torch.nn.Module):
        def __init__(self, of: Scale) -> None:
            super().__init__()
            self.shared = of.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.shared

    def build() -> dict[str, torch.nn.Module]:
        first = Scale(7.0)
        return {"first": first, "twin": Twin(first)}

    residency = Residency(HOST, NBYTES + 4)
    modules = Modules({"both": Component(("first", "twin"), NBYTES + 4, build)})
    residency.adopt("m", LoadedModel(modules, {}, {}))
    residency.load("m", "twin")
    assert residency.resident_bytes == NBYTES + 4, "what they share counts once"
    twin = residency.module("m", "twin")
    assert twin is not None
    residency._evict(residency._places["m", "first"])
    assert not residency.ready("m", "twin")
    assert twin(torch.ones(1, 4)).isnan().all()
    residency.load("m", "first")
    assert (twin(torch.ones(1, 4)) == 7).all()


def test_a_component_that_is_larger_than_it_said_still_keeps_to_the_budget() -> None:
    engine = engine_of(Shelf(nbytes=1), Residency(HOST, NBYTES + 12))
    for name in "ab":
        engine.submit(task(name, name))
    events = run(engine)
    assert (value(events["a"]), value(events["b"])) == (2, 3)
    assert engine.stats()["peak_resident_bytes"] <= NBYTES + 12
    small = engine_of(Shelf(nbytes=1), Residency(HOST, NBYTES - 1))
    small.submit(task("a", "a"))
    assert "may hold" in str(run(small)["a"][-1].error)


def test_what_has_its_weights_is_not_stalled_by_loads_for_others() -> None:
    shelf = Shelf()
    engine = engine_of(shelf, Residency(HOST, NBYTES + 12), policy="priority")
    engine.submit(task("patient", "a", rounds=8))
    while not engine.stats()["loads"]:
        engine.step()
    engine._residency.owed_s = 3600.0  # as if that load had taken an hour
    engine.submit(StageTask("urgent", "m", "scale", {"use": "b", "rounds": 1}, priority=9))
    order = []
    while engine.busy:
        order += [event.task for event in engine.step() if event.kind == "done"]
    assert order == ["patient", "urgent"]


def test_copies_on_the_host_save_reading_the_files_as_far_as_their_budget_goes() -> None:
    """`cpu:0` stands for a GPU here: it is another device than the host by its name."""
    shelf = Shelf()
    one = NBYTES + 4
    residency = Residency(torch.device("cpu:0"), one + 8, host_budget_bytes=2 * one)
    residency.adopt("m", LoadedModel(shelf.modules(), {}, {}))
    for name in "abab":
        residency.build("m", name)
        residency.load("m", name)
    assert shelf.builds == ["a", "b"]
    assert residency.stats()["host_bytes"] == 2 * one
    residency.build("m", "c")
    residency.load("m", "c")
    assert residency.stats()["host_bytes"] == 2 * one, "one copy had to go"
    assert residency.resident_bytes <= one + 8
    residency.check_integrity()
    residency.load("m", "b")
    residency.load("m", "a")
    assert shelf.builds == ["a", "b", "c", "a"], "b had its copy, a had not"


def test_models_that_are_in_memory_anyway_count_and_stay() -> None:
    plain = LoadedModel({"a": Scale(2.0)}, {}, {})
    residency = Residency(HOST, 3 * (NBYTES + 4) + 4)
    residency.adopt("m", LoadedModel(Shelf().modules(), {}, {}))
    for name in NAMES:
        residency.load("m", name)
    residency.adopt("plain", plain)
    assert residency.stats()["models"] == {"m": 2 * (NBYTES + 4), "plain": NBYTES + 4}
    assert residency.ready("plain", "a")
    with pytest.raises(ModelLoadFailed, match="Model plain takes"):
        Residency(HOST, NBYTES).adopt("plain", plain)


def test_budgets_are_as_configured_or_a_share_of_what_there_is() -> None:
    assert budgets(EngineSettings(memory_mb=100, host_memory_mb=0), HOST) == (100 << 20, None)
    on_device, on_host = budgets(EngineSettings(), HOST)
    assert on_device is not None
    assert on_host is not None
    assert 0 < on_host < on_device


def test_there_is_one_cpu_however_it_is_numbered() -> None:
    engine = build_core(EngineSettings(memory_mb=7), [ModelEntry("m", "demo", device="cpu:0")])
    assert engine._residency._device == HOST
    assert engine.stats()["memory_budget_bytes"] == 7 << 20
