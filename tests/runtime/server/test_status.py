import asyncio

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from omnistage.runtime.models.catalogue import Catalogue, ModelEntry
from omnistage.runtime.protocol.errors import ModelLoadFailed, QueueFull
from omnistage.runtime.server.shelf import ModelShelf
from omnistage.tests.fakes.recipes import chain, encode, request


async def metrics(server):
    async with ClientSession() as session, session.get(f"{server.url}/metrics") as response:
        text = await response.text()
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


async def test_health_says_who_answers(server):
    await server.start()
    health = await server.client.health()
    assert health["status"] == "ok"
    assert health["protocol"] == 1
    assert health["boot_id"] == server.services.boot_id


async def test_ready_follows_the_engine(server):
    await server.start()
    async with asyncio.timeout(10):
        while not await server.client.ready():
            await asyncio.sleep(0.01)


async def test_an_engine_that_does_not_come_up_says_why(server):
    await server.start(broken=True)
    async with asyncio.timeout(10):
        while server.orchestrator.last_loss is None:
            await asyncio.sleep(0.01)
    async with ClientSession() as session, session.get(f"{server.url}/ready") as response:
        assert response.status == 503
        assert "no such device" in (await response.json())["error"]["message"]
    assert await server.client.ready() is False


async def test_metrics_count_what_happened(server):
    await server.start()
    await server.client.run(chain("a", steps=4), owner="o", client="c")
    seen = await metrics(server)
    assert seen["omnistage_jobs_finished_total", "done"] == 3
    assert seen["omnistage_batch_size_count",] == 6
    assert seen["omnistage_batch_size_sum",] == 6
    assert seen["omnistage_batch_size_bucket", "+Inf"] == 6
    assert seen["omnistage_leases",] == 1
    assert seen["omnistage_store_bytes",] > 0
    assert seen["omnistage_engine_ready", "diffusion"] == 1


async def test_models_are_described_and_problems_explained(server):
    await server.start(families={"fake": "fake", "other": "fake"})
    models = await server.client.models()
    assert [model.id for model in models] == ["fake", "other"]
    assert models[0].stages["sample"].optional == ("latent",)
    assert models[0].stages["encode"].params["properties"]["steps"]["minimum"] == 1
    assert await server.client.problems() == {}


async def test_a_model_folder_that_is_not_there_is_a_problem_not_a_crash(tmp_path):
    entry = ModelEntry("gone", str(tmp_path / "gone"))
    shelf = ModelShelf(Catalogue({"gone": entry}))
    body = await shelf.describe()
    assert body["models"] == []
    assert "no model folder" in body["problems"]["gone"]["message"]
    with pytest.raises(ModelLoadFailed):
        await shelf.open(["gone"])


async def test_a_full_queue_is_said_with_a_429(server):
    await server.start("server.max_queued_jobs=2")
    with pytest.raises(QueueFull, match="the runtime takes 2"):
        await server.client.submit(request(chain("a")))
    await server.client.submit(request(encode("a")))
