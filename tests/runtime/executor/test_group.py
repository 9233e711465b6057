"""Engines by name: started when needed, apart from each other, unloaded when idle."""

import asyncio

import pytest

from omnistage.runtime.engine.core import EngineEvent, StageTask
from omnistage.runtime.executor.group import EngineGroup
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.tests.fakes.fake_executor import FakeExecutor


class Listener:
    def __init__(self):
        self.events, self.lost = [], []

    def on_event(self, event):
        self.events.append(event)

    def on_lost(self, engine, reason, *, was_ready):
        self.lost.append(engine)


class Rig:
    def __init__(self, **options):
        self.now_s = 0.0
        self.made = {}
        self.stopped = []
        self.listener = Listener()
        self.group = EngineGroup(self.make, clock=lambda: self.now_s, **options)

    def make(self, engine):
        executor = self.made[engine] = FakeExecutor()

        async def stop():
            self.stopped.append(engine)

        executor.stop = stop
        return executor

    async def start(self):
        await self.group.start(self.listener)
        await asyncio.sleep(0)
        return self

    async def submit(self, name, engine):
        self.group.submit(StageTask(name, "m", "s", {}, engine=engine))
        await asyncio.sleep(0)

    def end(self, name, engine, kind="done"):
        self.made[engine].listener.on_event(EngineEvent(name, kind))


async def test_an_engine_is_made_with_its_first_task_and_eager_ones_at_once():
    rig = await Rig(eager=("a",)).start()
    assert list(rig.made) == ["a"]
    await rig.submit("1", "b")
    await rig.submit("2", "b")
    assert list(rig.made) == ["a", "b"]
    assert list(rig.made["b"].tasks) == ["1", "2"]
    assert not rig.made["a"].tasks
    assert rig.group.stats().keys() == {"a", "b"}


async def test_cancels_and_losses_go_to_the_engine_concerned():
    rig = await Rig().start()
    await rig.submit("1", "a")
    await rig.submit("2", "b")
    rig.group.cancel("2")
    rig.group.cancel("unknown")
    assert (rig.made["a"].cancelled, rig.made["b"].cancelled) == ([], ["2"])
    rig.made["a"].listener.on_lost("a", "killed", was_ready=True)
    assert rig.listener.lost == ["a"]
    assert await rig.group.unload("a"), "what it had is lost, so it is idle"
    with pytest.raises(InvalidRequest, match="has work to do"):
        await rig.group.unload("b")


async def test_an_unloaded_engine_comes_back_when_it_is_needed():
    rig = await Rig().start()
    await rig.submit("1", "a")
    rig.end("1", "a")
    assert await rig.group.unload("a")
    assert not await rig.group.unload("a")
    assert rig.stopped == ["a"]
    await rig.submit("2", "a")
    assert list(rig.made["a"].tasks) == ["2"]


async def test_what_was_idle_for_too_long_is_unloaded_and_eager_engines_are_not():
    rig = await Rig(eager=("eager",), idle_s=10).start()
    await rig.submit("1", "a")
    await rig.submit("2", "b")
    rig.now_s = 5.0
    rig.end("1", "a")
    rig.now_s = 14.0
    await rig.group.unload_idle()
    assert rig.stopped == []
    rig.now_s = 15.0
    await rig.group.unload_idle()
    assert rig.stopped == ["a"], "b still works"


async def test_all_are_unloaded_at_once_or_when_they_have_done_their_work():
    rig = await Rig(eager=("eager",)).start()
    await rig.submit("1", "a")
    await rig.submit("2", "b")
    rig.end("2", "b")
    assert await rig.group.unload_all() == ["eager", "a", "b"]
    assert sorted(rig.stopped) == ["b", "eager"]
    assert rig.group.ready, "an eager engine that was unloaded comes back when it is needed"
    rig.end("1", "a")
    await rig.group.unload_idle()
    assert sorted(rig.stopped) == ["a", "b", "eager"]
    await rig.submit("3", "a")
    rig.end("3", "a")
    await rig.group.unload_idle()
    assert sorted(rig.stopped) == ["a", "b", "eager"], "it was asked for once"
