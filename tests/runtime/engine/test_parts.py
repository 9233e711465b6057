"""Programs that take an input part by part."""

from __future__ import annotations

import numpy as np

from omnistage.runtime.engine.core import EngineEvent, StageTask
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.protocol.frames import Frame, Tensor

from .toys import Layer, run, toy_engine, toy_task


def part(*values: float) -> Frame:
    rows = np.array([[value] * 4 for value in values], np.float32)
    return Frame({"kind": "toy"}, {"x": Tensor.of(rows)})


def follower(name: str) -> StageTask:
    return StageTask(name, "toy", "follow", {}, followed=("x",))


def column(frame: Frame) -> list[float]:
    return [float(value) for value in frame.tensors["x"].array[:, 0]]


def parts_of(events: list[EngineEvent]) -> list[list[float]]:
    return [column(event.outputs["x"]) for event in events if event.kind == "part"]


def test_each_part_is_worked_on_as_it_comes_and_the_whole_is_all_of_them() -> None:
    engine = toy_engine()
    engine.submit(follower("a"))
    assert [e.kind for e in run(engine)["a"]] == ["started"]
    for values, expected in (((2.0,), [1.0]), ((4.0, 6.0), [2.0, 3.0])):
        engine.feed("a", "x", part(*values))
        assert parts_of(run(engine)["a"]) == [expected]
    engine.feed("a", "x", None)
    (end,) = run(engine)["a"]
    assert (end.kind, column(end.outputs["x"])) == ("done", [1.0, 2.0, 3.0])


def test_parts_may_come_before_the_task_is_admitted_and_faster_than_they_are_taken() -> None:
    engine = toy_engine()
    engine.submit(follower("a"))
    for values in ((2.0,), (4.0,)):
        engine.feed("a", "x", part(*values))
    engine.feed("a", "x", None)
    events = run(engine)["a"]
    assert parts_of(events) == [[1.0], [2.0]]
    assert column(events[-1].outputs["x"]) == [1.0, 2.0]


def test_an_input_that_is_whole_is_its_only_part() -> None:
    engine = toy_engine()
    engine.submit(StageTask("a", "toy", "follow", {}, {"x": part(2.0, 4.0)}))
    events = run(engine)["a"]
    assert parts_of(events) == [[1.0, 2.0]]
    assert column(events[-1].outputs["x"]) == [1.0, 2.0]


def test_parts_of_several_share_forwards() -> None:
    layer = Layer()
    engine = toy_engine(layer)
    for name in "abc":
        engine.submit(follower(name))
    run(engine)
    for name in "abc":
        engine.feed(name, "x", part(2.0))
    run(engine)
    assert layer.rows == [3, 3], "one forward before the first part, and one for it"


def test_others_go_on_while_one_waits_and_it_can_be_cancelled() -> None:
    engine = toy_engine()
    engine.submit(follower("waits"))
    engine.submit(toy_task("works"))
    events = run(engine)
    assert events["works"][-1].kind == "done"
    assert not engine.busy
    engine.cancel("waits")
    engine.feed("waits", "x", part(1.0))
    assert [e.kind for e in run(engine)["waits"]] == ["cancelled"]
    assert_forgotten(engine)


def test_parts_for_nobody_are_dropped() -> None:
    engine = toy_engine()
    engine.feed("nobody", "x", part(1.0))
    assert not engine.busy
    assert_forgotten(engine)


def assert_forgotten(engine: DiffusionEngine) -> None:
    engine.check_integrity()
    assert not engine._requests
    assert not engine._parts
