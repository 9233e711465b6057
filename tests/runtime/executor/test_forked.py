"""What is special about engine processes that are forked; what they share is in the contract."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from omnistage.runtime.executor.backoff import Backoff
from omnistage.runtime.executor.core_spec import CoreSpec
from omnistage.runtime.executor.forked import ForkServer
from omnistage.runtime.executor.group import EngineGroup
from omnistage.runtime.executor.process import ProcessExecutor
from omnistage.tests.fakes import preload
from omnistage.tests.fakes.listener import Listener, task


class Engines:
    """Engines by name, all forked by one process."""

    def __init__(self, imports=preload.imports, **core):
        self.fork_server = ForkServer(f"{preload.__name__}:{imports.__name__}")
        self.core = core
        self.group = EngineGroup(self._make, on_stop=self.fork_server.stop)
        self.listener = Listener()

    def _make(self, engine):
        spec = CoreSpec("omnistage.tests.fakes.fake_core:build", self.core, engine)
        backoff = Backoff(first_s=0.01, most_s=0.02)
        return ProcessExecutor(spec, start=self.fork_server.start_worker, backoff=backoff)

    def submit(self, engine, name, **params):
        self.group.submit(task(name, engine=engine, **params))

    async def running(self, engine):
        """Process id of an engine that has begun to work on an endless task of its name."""
        self.submit(engine, engine, steps=10**9)
        await self.listener.until(lambda: "progress" in self.listener.kinds(engine))
        return self.group[engine].pid


@pytest.fixture
async def start(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    started = []

    async def start(**options):
        engines = Engines(**options)
        started.append(engines)
        await engines.group.start(engines.listener)
        return engines

    yield start
    for engines in started:
        await engines.group.stop()


def parent_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("PPid:")).split()[1])


async def test_engines_of_one_fork_server_are_independent(start):
    engines = await start(step_s=0.005)
    first, second = await engines.running("a"), await engines.running("b")
    assert {parent_of(first), parent_of(second)} == {engines.fork_server.pid}
    os.kill(first, signal.SIGKILL)
    await engines.listener.until(lambda: engines.listener.lost)
    ((reason, was_ready),) = engines.listener.lost
    assert "SIGKILL" in reason
    assert was_ready
    engines.submit("b", "next")
    assert await engines.listener.end_of("next") == "done"
    engines.submit("a", "again")
    assert await engines.listener.end_of("again") == "done"
    assert engines.group["b"].pid == second
    assert engines.group["b"].restarts == 0


async def test_an_engine_is_unloaded_while_another_works(start):
    engines = await start(step_s=0.005)
    await engines.running("a")
    engines.submit("b", "b", steps=1)
    await engines.listener.end_of("b")
    unloaded = engines.group["b"].pid
    await engines.group.unload("b")
    with pytest.raises(ProcessLookupError):
        os.kill(unloaded, 0)
    engines.submit("a", "next")
    assert await engines.listener.end_of("next") == "done"
    assert not engines.listener.lost


async def test_engines_outlive_the_fork_server_and_new_ones_get_another(start):
    engines = await start(step_s=0.005)
    orphan = await engines.running("a")
    killed = engines.fork_server.pid
    os.kill(killed, signal.SIGKILL)
    newcomer = await engines.running("b")
    assert parent_of(newcomer) == engines.fork_server.pid != killed
    engines.submit("a", "next")
    assert await engines.listener.end_of("next") == "done"
    assert not engines.listener.lost
    os.kill(orphan, signal.SIGKILL)
    await engines.listener.until(lambda: engines.listener.lost)
    ((reason, _),) = engines.listener.lost
    assert "its parent was gone" in reason
    engines.submit("a", "again")
    assert await engines.listener.end_of("again") == "done"


async def test_an_engine_starts_afresh_where_the_imports_fail(start, caplog):
    engines = await start(imports=preload.fails)
    engines.submit("a", "a")
    assert await engines.listener.end_of("a") == "done"
    assert parent_of(engines.group["a"].pid) == os.getpid()
    assert "ImportError: no such library" in caplog.text


async def test_stopping_during_the_imports_leaves_nothing(start, monkeypatch, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv("PRELOAD_PIPE", str(pipe))
    engines = await start(imports=preload.waits)
    engines.submit("a", "a")
    writer = await asyncio.to_thread(pipe.open, "w")  # waits for the reader: the imports began
    importing = engines.fork_server.pid
    stopping = asyncio.create_task(engines.group.stop())
    await asyncio.sleep(0)
    writer.close()
    await stopping
    assert engines.fork_server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(importing, 0)
    assert not engines.listener.lost
