import asyncio
import socket

import pytest
from aiohttp import web

from omnistage.runtime.client.client import RuntimeClient
from omnistage.runtime.client.http import PROTOCOL_HEADER
from omnistage.runtime.protocol.errors import (
    JobCancelled,
    JobFailed,
    MissingBlobs,
    ProtocolError,
    ResultGone,
    RuntimeUnavailable,
)
from omnistage.tests.fakes.recipes import chain, encode, load, request, upload_of


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_run_uploads_what_a_handle_carries(server):
    await server.start()
    upload = upload_of()
    frame = await server.client.run(load(upload), owner="o", client="c")
    assert frame.header["kind"] == "latent"


async def test_an_upload_that_nobody_has_is_named(server):
    await server.start()
    digest, _ = upload_of()
    with pytest.raises(MissingBlobs) as caught:
        await server.client.submit(request(load((digest, b""))), {})
    assert caught.value.value == [digest]


async def test_run_tells_events_and_raises_what_failed(server):
    await server.start()
    seen = []
    with pytest.raises(JobFailed, match="did not feel like it"):
        await server.client.run(
            encode("a", trouble="error"), owner="o", client="c", on_event=seen.append
        )
    assert seen[-1].kind == "failed"


async def test_run_raises_when_its_lease_is_released(server):
    await server.start(step_s=0.01)
    running = asyncio.Event()
    work = asyncio.create_task(
        server.client.run(
            encode("a", steps=100_000), owner="o", client="c", on_event=lambda _: running.set()
        )
    )
    await running.wait()
    await server.client.release("o")
    with pytest.raises(JobCancelled):
        await work


async def test_previews_come_only_when_wanted(server):
    await server.start()
    for previews in (False, True):
        seen = []
        handle = encode(str(previews), steps=50)
        await server.client.run(
            handle, owner="o", client="c", on_event=seen.append, previews=previews
        )
        assert any(event.image for event in seen) is previews


class Evicting(RuntimeClient):
    """Loses the result between the job's end and its fetch, the first few times."""

    def __init__(self, server, times):
        super().__init__(server.url)
        self.times = times
        self.server = server

    async def output(self, key, name):
        if self.times:
            self.times -= 1
            self.server.orchestrator._store.drop_result(key)
        return await super().output(key, name)


async def test_run_has_an_evicted_result_made_again_but_not_for_ever(server):
    await server.start()
    async with Evicting(server, 2) as client:
        await client.run(chain("a"), owner="o", client="c")
    async with Evicting(server, 99) as client:
        with pytest.raises(ResultGone):
            await client.run(chain("a"), owner="o", client="c")
        assert client.times == 96


async def test_nothing_there_says_where_it_looked_and_what_to_do():
    address = f"http://127.0.0.1:{unused_port()}"
    async with RuntimeClient(address) as client:
        with pytest.raises(RuntimeUnavailable, match="omnistage serve") as caught:
            await client.run(encode("a"), owner="o", client="c")
        assert address in caught.value.message
        with pytest.raises(RuntimeUnavailable):
            await client.ready()
        with pytest.raises(RuntimeUnavailable):
            await anext(client.events("key"))


async def serve(handler):
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = unused_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("headers", "words"),
    [({}, "something else answers"), ({PROTOCOL_HEADER: "99"}, "speaks protocol 99")],
)
async def test_another_server_at_the_address_is_told_apart(headers, words):
    async def answer(_):
        return web.json_response({"status": "ok"}, headers=headers)

    runner, url = await serve(answer)
    async with RuntimeClient(url) as client:
        with pytest.raises(RuntimeUnavailable, match=words):
            await client.health()
        with pytest.raises(RuntimeUnavailable, match=words):
            await anext(client.events("key"))
    await runner.cleanup()


async def test_a_server_that_never_answers_is_unavailable():
    async def answer(_):
        await asyncio.sleep(30)

    runner, url = await serve(answer)
    async with RuntimeClient(url) as client:
        with pytest.raises(RuntimeUnavailable, match="TimeoutError"):
            await client.health(timeout_s=0.1)
    await runner.cleanup()


async def test_an_answer_that_is_no_json_is_unavailable():
    async def answer(_):
        return web.Response(text="<html>", headers={PROTOCOL_HEADER: "1"})

    runner, url = await serve(answer)
    async with RuntimeClient(url) as client:
        with pytest.raises(RuntimeUnavailable):
            await client.stats()
        with pytest.raises(ProtocolError):
            await client.output("key", "name")
    await runner.cleanup()


async def test_a_connection_that_a_restarted_runtime_forgot_is_no_failure():
    requests = []

    async def answer_once(reader, writer):
        """Promises to keep the connection, and drops it on the second request."""
        for _ in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            requests.append(head.split()[0])
            if len(requests) == 2:
                break
            body = b'{"unknown": []}'
            writer.write(b"HTTP/1.1 200 OK\r\nOmniStage-Protocol: 1\r\nContent-Length: 15\r\n\r\n")
            writer.write(body)
            await reader.read(len(b'{"owners": []}'))
        writer.close()

    port = unused_port()
    forgetful = await asyncio.start_server(answer_once, "127.0.0.1", port)
    async with forgetful, RuntimeClient(f"http://127.0.0.1:{port}") as client:
        assert await client.renew([]) == []
        assert await client.renew([]) == []
    assert requests == [b"POST"] * 3
