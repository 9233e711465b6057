import asyncio
import json
from io import BytesIO

import numpy as np
import pytest
from aiohttp import ClientSession
from PIL import Image

from omnistage.runtime.protocol.errors import InvalidRequest, NotFound, UnknownModel
from omnistage.tests.fakes.recipes import chain, encode, request, sample


async def get(server, path, **options):
    async with ClientSession() as session, session.get(server.url + path, **options) as response:
        return response.status, await response.read(), response.headers


async def describe(server, key, query=""):
    _, body, _ = await get(server, f"/v1/jobs/{key}{query}")
    return json.loads(body)


async def test_a_chain_runs_and_its_picture_is_served_as_frame_and_png(server):
    await server.start()
    handle = chain("a")
    frame = await server.client.run(handle, owner="o", client="c")
    images = frame.tensors["images"].array
    assert (images.shape, images.dtype) == ((2, 4, 4, 3), np.float32)
    key = (await server.client.submit(request(handle))).keys[handle.job]
    status, body, headers = await get(server, f"/v1/jobs/{key}/outputs/images?format=png&index=1")
    assert (status, headers["Content-Type"]) == (200, "image/png")
    pixels = np.asarray(Image.open(BytesIO(body)))
    assert np.abs(pixels - images[1] * 255).max() <= 0.5


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("format=png&index=2", 422, "There is no picture 2"),
        ("format=png&index=-1", 422, "index"),
        ("format=png&index=nan", 422, "index"),
        ("format=png&index=x", 422, "index"),
        ("format=webp", 422, "frame, png"),
    ],
)
async def test_pictures_that_are_not_there_are_refused(server, query, status, words):
    await server.start()
    handle = chain("a")
    await server.client.run(handle, owner="o", client="c")
    key = (await server.client.submit(request(handle))).keys[handle.job]
    got, body, _ = await get(server, f"/v1/jobs/{key}/outputs/images?{query}")
    assert got == status
    assert words in body.decode()


async def test_only_pictures_become_png(server):
    await server.start()
    handle = encode("a")
    await server.client.run(handle, owner="o", client="c")
    key = (await server.client.submit(request(handle))).keys[handle.job]
    status, body, _ = await get(server, f"/v1/jobs/{key}/outputs/conditioning?format=png")
    assert status == 422 and b"has no pictures" in body


async def test_a_job_can_be_waited_for_without_a_websocket(server):
    await server.start(step_s=0.01)
    handle = sample(encode("a"), steps=5)
    key = (await server.client.submit(request(handle))).keys[handle.job]
    body = await describe(server, key)
    assert (body["state"], body["stage"], body["params"]["steps"]) == ("queued", "sample", 5)
    body = await describe(server, key, "?wait_s=30")
    assert (body["state"], body["outputs"]) == ("done", ["latent"])
    assert not server.orchestrator.job(key).subscribers


async def test_waiting_ends_when_the_time_is_up(server):
    await server.start(step_s=0.01)
    handle = encode("a", steps=100_000)
    key = (await server.client.submit(request(handle))).keys[handle.job]
    body = await describe(server, key, "?wait_s=0.2")
    assert body["state"] == "running"
    assert body["step"] > 0


async def test_a_client_that_stops_waiting_leaves_nothing_behind(server):
    await server.start(step_s=0.01)
    handle = encode("a", steps=100_000)
    key = (await server.client.submit(request(handle))).keys[handle.job]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await describe(server, key, "?wait_s=30")
    async with asyncio.timeout(5):
        while server.orchestrator.job(key).subscribers:
            await asyncio.sleep(0.01)


async def test_refusals_keep_their_type_and_facts(server):
    await server.start()
    with pytest.raises(InvalidRequest) as caught:
        await server.client.submit(request(encode("a", steps=0)))
    assert (caught.value.field, caught.value.value, caught.value.stage) == ("steps", 0, "encode")
    with pytest.raises(UnknownModel):
        await server.client.submit(request(encode("a", model="../../../etc/passwd")))
    with pytest.raises(NotFound):
        await server.client.output("../../health", "..%2f")
    assert server.orchestrator.stats()["remembered"] == 0


async def test_jobs_of_many_clients_share_steps(server):
    await server.start(step_s=0.02)
    seen = []

    async def one(i):
        client = server.new_client()
        handle = sample(encode("a"), text=str(i), steps=10)
        await client.run(handle, owner=str(i), client=str(i), on_event=seen.append)

    await asyncio.gather(*(one(i) for i in range(6)))
    assert max(event.batch for event in seen) == 6
    assert server.orchestrator.stats()["finished"] == {"done": 7, "failed": 0, "cancelled": 0}
