"""ComfyUI's `/free` reaches the runtime: the real server with a fake core."""

import asyncio

import pytest

from omnistage.comfy_nodes.free import free_runtime
from omnistage.runtime.client.client import RuntimeClient
from omnistage.tests.fakes.fake_server import FakeServer
from omnistage.tests.fakes.recipes import chain


@pytest.fixture
async def server():
    server = FakeServer()
    yield await server.start()
    await server.stop()


def engines(server):
    return list(server.services.engines.stats())


@pytest.mark.parametrize("asked", [{"unload_models": True}, {"free_memory": True}])
async def test_an_idle_runtime_unloads_and_loads_again_when_it_is_needed(server, asked):
    await server.client.run(chain("a"), owner="o", client="c")
    await free_runtime(asked, lambda: server.client)
    assert engines(server) == []
    assert await server.client.ready()
    await server.client.run(chain("b"), owner="o", client="c")
    assert engines(server) == ["diffusion"]


@pytest.mark.parametrize("asked", [{}, {"unload_models": False, "free_memory": False}])
async def test_nothing_is_unloaded_unasked(server, asked):
    await free_runtime(asked, lambda: server.client)
    assert engines(server) == ["diffusion"]


async def test_running_work_is_finished_first(server):
    started = asyncio.Event()
    work = asyncio.create_task(
        server.client.run(
            chain("a", steps=20), owner="o", client="c", on_event=lambda _: started.set()
        )
    )
    async with asyncio.timeout(10):
        await started.wait()
    await free_runtime({"unload_models": True}, lambda: server.client)
    assert (await work).tensors
    async with asyncio.timeout(10):
        while engines(server):
            await asyncio.sleep(0.05)


async def test_a_runtime_that_is_not_there_is_no_error_of_comfyui(caplog):
    async with RuntimeClient("http://127.0.0.1:9") as client:
        await free_runtime({"unload_models": True}, lambda: client)
    assert "memory was not freed" in caplog.text
