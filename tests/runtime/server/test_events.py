import asyncio
import json

import pytest
import websockets
from aiohttp import ClientSession, WSMsgType

from omnistage.runtime.protocol.errors import NotFound
from omnistage.runtime.protocol.frames import Frame
from omnistage.tests.fakes.fake_core import JPEG
from omnistage.tests.fakes.recipes import encode, request


async def key_of(server, handle, **options):
    return (await server.client.submit(request(handle, **options))).keys[handle.job]


async def until(condition, timeout_s=10):
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_events_come_in_order_and_end_with_the_job(server):
    await server.start(step_s=0.02)
    key = await key_of(server, encode("a", steps=30))
    events = [event async for event in server.client.events(key)]
    kinds = [event.kind for event in events]
    assert kinds[-1] == "done"
    assert {"running", "progress", "preview"} <= set(kinds)
    assert all(event.image == JPEG for event in events if event.kind == "preview")
    steps = [event.step for event in events if event.kind == "progress"]
    assert steps == sorted(steps) and steps[-1] <= 30
    assert events[-1].outputs == ("conditioning",)


async def test_another_websocket_library_understands_the_stream(server):
    await server.start(step_s=0.02)
    key = await key_of(server, encode("a", steps=30))
    texts, previews = [], []
    uri = f"ws://127.0.0.1:{server.port}/v1/jobs/{key}/events"
    async with websockets.connect(uri) as socket:
        async for message in socket:
            if isinstance(message, bytes):
                previews.append(Frame.decode(message))
            else:
                texts.append(json.loads(message))
    assert socket.close_code == 1000
    assert texts[-1] == {"key": key, "kind": "done", "outputs": ["conditioning"]}
    assert previews[0].header["kind"] == "preview"
    assert previews[0].tensors["image"].array.tobytes() == JPEG


async def test_a_finished_job_tells_its_end_at_once(server):
    await server.start()
    handle = encode("a", trouble="error")
    key = await key_of(server, handle)
    for _ in range(2):
        events = [event async for event in server.client.events(key)]
        assert events[-1].kind == "failed"
        assert events[-1].error.message == "The stage did not feel like it."
    assert [event.kind for event in events] == ["failed"]


async def test_an_unknown_job_is_refused_in_words(server):
    await server.start()
    with pytest.raises(NotFound, match="no job 'nonsense'"):
        await anext(server.client.events("nonsense"))


async def test_a_follower_that_leaves_is_forgotten(server):
    await server.start(step_s=0.01)
    key = await key_of(server, encode("a", steps=100_000))
    events = server.client.events(key)
    await anext(events)
    assert server.orchestrator.job(key).subscribers
    await events.aclose()
    await until(lambda: not server.orchestrator.job(key).subscribers)
    await until(lambda: not server.services.sockets)


async def test_what_a_follower_sends_is_ignored_and_too_much_ends_the_stream(server):
    await server.start(step_s=0.01)
    key = await key_of(server, encode("a", steps=100_000))
    url = f"{server.url}/v1/jobs/{key}/events"
    async with ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_str("hello")
        assert (await socket.receive()).type is WSMsgType.TEXT
        await socket.send_bytes(b"x" * 100_000)
        async with asyncio.timeout(10):
            while (await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
                pass
    await until(lambda: not server.services.sockets)


async def test_following_keeps_a_lease_alive(server):
    await server.start("leases.ttl_s=0.3", step_s=0.01)
    key = await key_of(server, encode("a", steps=100_000), owner="mine")
    events = server.client.events(key, owner="mine")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            async for event in events:
                assert not event.final
    assert server.orchestrator.job(key).live


async def test_an_owner_that_falls_silent_loses_its_jobs(server):
    await server.start("leases.ttl_s=0.3", step_s=0.01)
    key = await key_of(server, encode("a", steps=100_000), owner="mine")
    events = [event async for event in server.client.events(key)]
    assert events[-1].kind == "cancelled"
    assert "nobody wants it" in events[-1].error.message
