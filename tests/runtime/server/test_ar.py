"""A real AR engine in a process of its own, behind the real server."""

import asyncio
import os
import signal

import pytest

from omnistage.runtime.config import load_config
from omnistage.runtime.protocol.errors import EngineLost
from omnistage.runtime.protocol.recipe import JobSpec, handle_of
from omnistage.runtime.server.app import build_services
from omnistage.tests.fakes import tiny_models
from omnistage.tests.fakes.fake_server import FakeServer

ENGINE = "ar/tiny/thinker"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    tiny_models.chat_model(folder)
    return folder


@pytest.fixture
async def server(checkpoint):
    """The server as configured, with the tiny chat model."""
    config = load_config(
        assignments=[
            f"models.tiny.source={checkpoint}",
            "models.tiny.vllm.max_model_len=2048",
            "engine.ar.kv_cache_mb=32",
            "engine.retries=0",
        ],
        environ={},
    ).config
    server = FakeServer()
    await server.serve(build_services(config))
    yield server
    await server.stop()


def ask(prompt, **params):
    given = {"prompt": prompt, "temperature": 0.0, "max_tokens": 8, **params}
    return handle_of(JobSpec.make("tiny", "thinker", given, {}), "text")


async def test_a_killed_engine_ends_its_stream_and_the_next_request_works(server):
    expected = await server.client.run(ask("red"), owner="a", client="c")
    seen = asyncio.Event()

    def on_event(event):
        if event.kind == "text":
            seen.set()

    stream = asyncio.create_task(
        server.client.run(ask("go on", max_tokens=1900), owner="b", client="c", on_event=on_event)
    )
    await seen.wait()
    os.kill(server.services.engines[ENGINE].pid, signal.SIGKILL)
    with pytest.raises(EngineLost, match="SIGKILL"):
        await stream
    again = await server.client.run(ask("red "), owner="c", client="c")
    assert again.header["completion_tokens"] > 0
    cached = await server.client.run(ask("red"), owner="d", client="c")
    assert cached.header == expected.header


async def test_an_idle_engine_is_unloaded_and_comes_back(server):
    first = await server.client.run(ask("red"), owner="a", client="c")
    pid = server.services.engines[ENGINE].pid
    assert await server.client.unload(ENGINE)
    assert ENGINE not in (await server.client.stats())["engines"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    second = await server.client.run(ask("red", seed=1), owner="a", client="c")
    assert second.header["text"] == first.header["text"]
