"""The list of models, for OpenAI's client and for ours."""

import openai
import pytest

from omnistage.runtime.client.client import RuntimeClient


async def test_models_are_listed(server):
    await server.start()
    found = (await server.client.models.list()).data
    assert [model.id for model in found] == ["omni", "words", "speaks", "draws"]
    assert {(m.object, m.created, m.owned_by) for m in found} == {("model", 0, "omnistage")}


async def test_one_model_is_found_by_its_name(server):
    await server.start()
    model = await server.client.models.retrieve("omni")
    assert (model.id, model.object) == ("omni", "model")


@pytest.mark.parametrize("name", ["gpt-4o", "Qwen/Qwen3-Omni"])
async def test_a_model_that_is_not_there_is_not_found(server, name):
    await server.start()
    with pytest.raises(openai.NotFoundError, match=name) as caught:
        await server.client.models.retrieve(name)
    assert caught.value.code == "model_not_found"


async def test_the_native_client_reads_the_same_answer(server):
    await server.start()
    async with RuntimeClient(server.url) as client:
        assert [model.id for model in await client.models()] == ["omni", "words", "speaks", "draws"]
        assert await client.problems() == {}
