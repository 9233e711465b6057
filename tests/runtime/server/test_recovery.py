"""The engine process is killed, the store is too small, the server goes away."""

import asyncio
import os
import signal
import sys

import pytest

from omnistage.runtime.executor.process import ProcessExecutor
from omnistage.runtime.protocol.errors import EngineLost, RuntimeUnavailable, StoreTooSmall
from omnistage.tests.fakes.recipes import chain, encode, sample


@pytest.fixture(autouse=True)
def _importable_in_children(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


async def test_jobs_survive_a_kill_of_the_engine_process(server):
    await server.start(executor=ProcessExecutor, step_s=0.01)
    seen = []

    async def one(i):
        handle = sample(encode(str(i)), steps=40)
        return await server.client.run(handle, owner=str(i), client="c", on_event=seen.append)

    work = asyncio.gather(*(one(i) for i in range(3)))
    async with asyncio.timeout(20):
        while not any(event.step > 3 for event in seen):
            await asyncio.sleep(0.01)
    os.kill(server.services.engines["diffusion"].pid, signal.SIGKILL)
    frames = await work
    assert len(frames) == 3
    assert server.services.engines.restarts == 1
    stats = server.orchestrator.stats()
    assert stats["finished"] == {"done": 6, "failed": 0, "cancelled": 0}


async def test_a_job_that_kills_the_engine_once_still_finishes(server, tmp_path):
    await server.start(executor=ProcessExecutor)
    handle = encode("a", trouble=f"kill-once:{tmp_path / 'killed'}")
    await server.client.run(handle, owner="o", client="c")
    assert server.services.engines.restarts == 1


async def test_a_job_that_always_kills_the_engine_fails_and_its_mates_do_not(server):
    await server.start("engine.retries=1", executor=ProcessExecutor, step_s=0.01)
    mate = asyncio.create_task(
        server.client.run(encode("mate", steps=20), owner="mate", client="c")
    )
    with pytest.raises(EngineLost, match="SIGKILL"):
        await server.client.run(encode("a", trouble="kill"), owner="o", client="c")
    await mate
    assert server.services.engines.restarts == 2


async def test_a_store_that_holds_one_result_at_a_time_still_serves_a_chain(server):
    await server.start("store.budget_mb=1")
    for text in "ab":
        handle = chain(text, size=200_000)
        await server.client.run(handle, owner="o", client="c")


async def test_a_result_larger_than_the_store_is_said(server):
    await server.start("store.budget_mb=1")
    with pytest.raises(StoreTooSmall, match="budget_mb"):
        await server.client.run(encode("a", size=300_000), owner="o", client="c")


async def test_followers_are_told_when_the_server_goes_away(server):
    await server.start(step_s=0.01)
    seen = asyncio.Event()
    handle = encode("a", steps=100_000)
    work = asyncio.create_task(
        server.client.run(handle, owner="o", client="c", on_event=lambda _: seen.set())
    )
    await seen.wait()
    server.orchestrator.release("o")
    await server.runner.cleanup()
    server.runner = None
    with pytest.raises(RuntimeUnavailable, match="omnistage serve"):
        await work
