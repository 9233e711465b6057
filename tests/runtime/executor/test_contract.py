"""What every executor promises, tried on all of them with the fake core."""

import asyncio
import os
import signal
import sys

import numpy as np
import pytest

from omnistage.runtime.executor.backoff import Backoff
from omnistage.runtime.executor.core_spec import CoreSpec
from omnistage.runtime.executor.forked import ForkServer
from omnistage.runtime.executor.inline import InlineExecutor
from omnistage.runtime.executor.process import ProcessExecutor
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.tests.fakes import preload
from omnistage.tests.fakes.fake_core import JPEG, result_of
from omnistage.tests.fakes.listener import Listener, task

ENTRY = "omnistage.tests.fakes.fake_core:build"


class Host:
    """An executor with its listener; a new one for each test, stopped at its end."""

    def __init__(self, kind):
        self.kind = kind
        self.executor = None
        self.fork_server = ForkServer(f"{preload.__name__}:imports")

    async def start(self, **config):
        backoff = Backoff(first_s=0.01, most_s=0.02)
        spec = CoreSpec(ENTRY, config)
        match self.kind:
            case "inline":
                self.executor = InlineExecutor(spec, backoff=backoff)
            case "process":
                self.executor = ProcessExecutor(spec, backoff=backoff)
            case "forked":
                start = self.fork_server.start_worker
                self.executor = ProcessExecutor(spec, start=start, backoff=backoff)
        self.listener = Listener()
        await self.executor.start(self.listener)
        return self.executor, self.listener

    async def stop(self):
        if self.executor is not None:
            await self.executor.stop()
        await self.fork_server.stop()


@pytest.fixture(params=["inline", "process", "forked"])
async def host(request, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    host = Host(request.param)
    yield host
    await host.stop()


processes = pytest.mark.parametrize("host", ["process", "forked"], indirect=True)


async def test_a_task_runs_and_its_result_is_whole(host):
    executor, listener = await host.start()
    latent = Frame({"kind": "latent", "width": 64}, {"x": Tensor(np.arange(4, dtype="u2"), "BF16")})
    asked = task(stage="decode", inputs={"latent": latent}, previews=True, steps=2)
    executor.submit(asked)
    await listener.end_of("t")
    assert listener.kinds("t") == ["started", *["progress", "preview"] * 2, "done"]
    preview, done = listener.events[2], listener.events[-1]
    assert (preview.image, preview.step, preview.total, preview.batch) == (JPEG, 1, 2, 1)
    (name,) = done.outputs
    expected = result_of(asked)[name]
    assert done.outputs[name].header == expected.header
    assert (done.outputs[name].tensors["images"].array == expected.tensors["images"].array).all()
    assert executor.ready


async def test_tasks_share_steps(host):
    executor, listener = await host.start(step_s=0.02)
    for i in range(4):
        executor.submit(task(str(i), steps=10))
    for i in range(4):
        assert await listener.end_of(str(i)) == "done"
    assert max(event.batch for event in listener.events) == 4


async def test_a_task_that_fails_leaves_the_others_alone(host):
    executor, listener = await host.start()
    executor.submit(task("bad", trouble="error"))
    executor.submit(task("good", steps=3))
    assert await listener.end_of("bad") == "failed"
    (error,) = (event.error for event in listener.events if event.error)
    assert (error.code, error.stage) == ("job_failed", "encode")
    assert await listener.end_of("good") == "done"
    assert not listener.lost


async def test_a_task_is_cancelled_in_the_middle(host):
    executor, listener = await host.start(step_s=0.005)
    executor.submit(task(steps=100_000))
    await listener.until(lambda: "progress" in listener.kinds("t"))
    executor.cancel("unknown")
    executor.cancel("t")
    assert await listener.end_of("t") == "cancelled"
    executor.cancel("t")
    executor.submit(task("next"))
    assert await listener.end_of("next") == "done"


async def test_a_core_that_breaks_is_replaced(host):
    executor, listener = await host.start()
    executor.submit(task("bad", trouble="raise"))
    await listener.until(lambda: listener.lost)
    assert listener.lost == [("RuntimeError: the core is broken", True)]
    executor.submit(task("good"))
    assert await listener.end_of("good") == "done"
    assert executor.restarts == 1
    assert not any(Listener.final(kind) for kind in listener.kinds("bad"))


async def test_a_core_that_cannot_be_built_is_tried_again(host):
    executor, listener = await host.start(broken=True)
    executor.submit(task())
    await listener.until(lambda: len(listener.lost) >= 2)
    assert set(listener.lost) == {("RuntimeError: no such device", False)}
    assert not executor.ready


async def test_stats_are_those_of_the_core(host):
    executor, listener = await host.start()
    executor.submit(task(steps=5))
    await listener.end_of("t")
    async with asyncio.timeout(10):
        while executor.stats() != {"forwards": 6, "running": 0}:
            await asyncio.sleep(0.01)


async def test_a_stopped_executor_reports_nothing(host):
    executor, listener = await host.start(step_s=0.005)
    executor.submit(task(steps=100_000))
    await listener.until(lambda: "progress" in listener.kinds("t"))
    if isinstance(executor, InlineExecutor):
        executor.cancel("t")
    await executor.stop()
    count = len(listener.events)
    await asyncio.sleep(0.05)
    assert len(listener.events) == count
    assert not listener.lost
    assert not executor.ready


@processes
async def test_a_killed_engine_process_is_replaced(host):
    executor, listener = await host.start(step_s=0.005)
    executor.submit(task(steps=100_000))
    await listener.until(lambda: "progress" in listener.kinds("t"))
    first = executor.pid
    os.kill(first, signal.SIGKILL)
    await listener.until(lambda: listener.lost)
    assert "SIGKILL" in listener.lost[0][0]
    executor.submit(task("next"))
    assert await listener.end_of("next") == "done"
    assert executor.pid not in (None, first)


@processes
async def test_an_engine_process_that_ends_by_itself_is_quoted(host):
    executor, listener = await host.start()
    executor.submit(task("bad", trouble="exit"))
    await listener.until(lambda: listener.lost)
    assert listener.lost == [("it ended with code 7\nno more of this", True)]
    executor.submit(task("good"))
    assert await listener.end_of("good") == "done"


@processes
async def test_large_frames_cross_the_border(host):
    executor, listener = await host.start()
    x = np.random.default_rng(0).random(2_000_000, np.float32)
    executor.submit(task(inputs={"in": Frame({}, {"x": Tensor.of(x)})}, size=3_000_000))
    await listener.end_of("t")
    assert listener.events[-1].outputs["conditioning"].nbytes == 12_000_000


@processes
async def test_the_engine_process_ends_with_its_socket_even_while_it_computes(host):
    executor, listener = await host.start(step_s=0.5)
    executor.submit(task(steps=100))
    await listener.until(lambda: listener.kinds("t"))
    pid = executor.pid
    await executor.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_parts_of_an_input_come_in_order_and_unharmed(host):
    executor, listener = await host.start()
    executor.submit(task(stage="talk", followed=("hidden",)))
    sent = [Frame({"n": n}, {"x": Tensor.of(np.arange(n, dtype=np.int64))}) for n in (3, 0, 2)]
    for part in (*sent, None):
        executor.feed("t", "hidden", part)
    executor.feed("unknown", "hidden", sent[0])
    assert await listener.end_of("t") == "done"
    received = [e.outputs["codes"] for e in listener.events if e.kind == "part"]
    assert [part.header for part in received] == [part.header for part in sent]
    for part, original in zip(received, sent, strict=True):
        assert (part.tensors["x"].array == original.tensors["x"].array).all()
