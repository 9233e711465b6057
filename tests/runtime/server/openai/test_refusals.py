"""Requests that are wrong: OpenAI's form of error, with the field named, and nothing started."""

import json

import openai
import pytest
from aiohttp import ClientSession

from omnistage.runtime.protocol.conversation import MAX_MESSAGES
from omnistage.runtime.server.openai import messages as openai_messages

HELLO = {"role": "user", "content": "Hello"}
SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "nobody", "format": "wav"}}
GOOD = {"model": "omni", "messages": [HELLO]}


async def post(server, body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body)
    url = f"{server.url}/v1/chat/completions"
    async with (
        ClientSession() as session,
        session.post(url, data=data, headers=headers) as response,
    ):
        return response.status, await response.json()


def schema(**fields):
    return {"response_format": {"type": "json_schema", **fields}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"\xff\xfe", "body"),
        (b"[" * 100_000, "body"),
        (b"[]", "body"),
        ({}, "model"),
        ({"model": "omni"}, "messages"),
        ({**GOOD, "model": 7}, "model"),
        ({**GOOD, "model": "\ud800"}, "model"),
        ({**GOOD, "model": "m" * 1001}, "model"),
        ({**GOOD, "messages": []}, "messages"),
        ({**GOOD, "messages": {}}, "messages"),
        ({**GOOD, "messages": [HELLO] * (MAX_MESSAGES + 1)}, "messages"),
        ({**GOOD, "messages": ["Hello"]}, "messages[0]"),
        ({**GOOD, "messages": [HELLO, {"role": "tool", "content": "x"}]}, "messages[1].role"),
        ({**GOOD, "messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
        ({**GOOD, "messages": [{"content": "x"}]}, "messages[0].role"),
        ({**GOOD, "messages": [{"role": "user"}]}, "messages[0].content"),
        ({**GOOD, "messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({**GOOD, "messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({**GOOD, "messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({**GOOD, "messages": [{"role": "user", "content": "\udfff"}]}, "messages[0].content"),
        (
            {**GOOD, "messages": [{**HELLO, "content": [{"type": "text", "text": "\ud800"}]}]},
            "messages[0].content[0].text",
        ),
        ({**GOOD, "messages": [{**HELLO, "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({**GOOD, "messages": [HELLO, {**HELLO, "role": "assistant"}]}, "messages[1].role"),
        ({**GOOD, "messages": [{**HELLO, "role": "system"}]}, "messages[0].role"),
        ({**GOOD, "max_tokens": 0}, "max_tokens"),
        ({**GOOD, "max_tokens": "9"}, "max_tokens"),
        ({**GOOD, "max_tokens": 1.5}, "max_tokens"),
        ({**GOOD, "max_tokens": True}, "max_tokens"),
        ({**GOOD, "max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ({**GOOD, "temperature": -0.1}, "temperature"),
        ({**GOOD, "temperature": 2.1}, "temperature"),
        ({**GOOD, "temperature": "hot"}, "temperature"),
        ({**GOOD, "temperature": float("nan")}, "temperature"),
        ({**GOOD, "top_p": 0}, "top_p"),
        ({**GOOD, "top_k": -2}, "top_k"),
        ({**GOOD, "min_p": 2}, "min_p"),
        ({**GOOD, "repetition_penalty": 0}, "repetition_penalty"),
        ({**GOOD, "seed": 2**63}, "seed"),
        ({**GOOD, "seed": 1.5}, "seed"),
        ({**GOOD, "stop": ""}, "stop"),
        ({**GOOD, "stop": ["x"] * 17}, "stop"),
        ({**GOOD, "stop": [7]}, "stop[0]"),
        ({**GOOD, "n": 0}, "n"),
        ({**GOOD, "n": 9}, "n"),
        ({**GOOD, "stream": "yes"}, "stream"),
        ({**GOOD, "stream_options": {"include_usage": True}}, "stream_options"),
        ({**GOOD, "stream": True, "stream_options": {"wings": 2}}, "stream_options.wings"),
        ({**GOOD, "user": 7}, "user"),
        ({**GOOD, "user": "u" * 201}, "user"),
        ({**GOOD, "response_format": "json"}, "response_format"),
        ({**GOOD, "response_format": {"type": "grammar"}}, "response_format.type"),
        ({**GOOD, **schema()}, "response_format"),
        ({**GOOD, **schema(json_schema={"name": "x"})}, "response_format.json_schema.schema"),
        ({**GOOD, **schema(json_schema={"schema": []})}, "response_format.json_schema.schema"),
        (
            {**GOOD, "response_format": {"type": "text", "json_schema": {"schema": {}}}},
            "response_format",
        ),
        ({**GOOD, **schema(json_schema={"schema": {"x": "y" * 100_000}})}, "response_format"),
        ({**GOOD, "logprobs": True}, "logprobs"),
        ({**GOOD, "top_logprobs": 2}, "top_logprobs"),
        ({**GOOD, "tools": [{"type": "function"}]}, "tools"),
        ({**GOOD, "tool_choice": "required"}, "tool_choice"),
        ({**GOOD, "functions": [{"name": "f"}]}, "functions"),
        ({**GOOD, "frequency_penalty": 0.5}, "frequency_penalty"),
        ({**GOOD, "presence_penalty": 0.5}, "presence_penalty"),
        ({**GOOD, "logit_bias": {"1": 2}}, "logit_bias"),
        ({**GOOD, "modalities": []}, "modalities"),
        ({**GOOD, "modalities": ["smell"]}, "modalities[0]"),
        ({**GOOD, "modalities": ["text", "audio"]}, "audio"),
        ({**GOOD, **SPOKEN, "audio": {"voice": "a", "format": "midi"}}, "audio.format"),
        ({**GOOD, **SPOKEN, "stream": True}, "audio"),
        ({**GOOD, **SPOKEN}, "model"),
        ({**GOOD, **SPOKEN, "model": "speaks"}, "voice"),
        ({**GOOD, "prediction": {"type": "content", "content": "x"}}, "prediction"),
        ({**GOOD, "store": True}, "store"),
        ({**GOOD, "chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({**GOOD, "wings": 2}, "wings"),
        ({**GOOD, "model": "draws"}, "model"),
    ],
)
async def test_a_wrong_request_is_refused_by_its_field(server, body, param):
    await server.start()
    status, answer = await post(server, body)
    assert status == 400, answer
    error = answer["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param), error
    assert error["message"]
    assert server.orchestrator.stats()["remembered"] == 0
    assert server.orchestrator.stats()["leases"] == 0


async def test_a_wrong_number_brings_no_media_into_the_store(server):
    await server.start()
    await post(server, {**GOOD, "temperature": 9})
    assert server.orchestrator.stats()["store"]["items"] == 0


async def test_what_is_not_done_here_is_said_with_what_is(server):
    await server.start()
    with pytest.raises(openai.BadRequestError, match='Allowed: nothing or "none" or "auto"'):
        await server.ask(tool_choice="required")


async def test_a_model_that_does_not_chat_says_what_it_does(server):
    await server.start()
    with pytest.raises(openai.BadRequestError, match="no stage thinker, only encode, sample"):
        await server.ask(model="draws")


async def test_an_unknown_model_is_not_found(server):
    await server.start()
    with pytest.raises(openai.NotFoundError, match="it has omni, words, speaks, draws") as caught:
        await server.ask(model="gpt-4o")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_a_body_over_the_limit_is_refused(server):
    await server.start("server.max_body_mb=1")
    with pytest.raises(openai.APIStatusError) as caught:
        await server.ask("x" * (1 << 20))
    assert (caught.value.status_code, caught.value.code) == (413, "too_large")


async def test_long_conversations_have_a_limit(server, monkeypatch):
    monkeypatch.setattr(openai_messages, "MAX_TEXT", 10)
    await server.start()
    assert (await server.ask("x" * 10)).choices
    with pytest.raises(openai.APIStatusError, match="10 characters") as caught:
        await server.ask(messages=[{"role": "system", "content": "x" * 6}, HELLO])
    assert (caught.value.status_code, caught.value.param) == (413, "messages")


async def test_a_token_is_shown_as_the_api_key(server):
    await server.start("server.token=s3cret")
    assert (await server.new_client("s3cret").models.list()).data
    with pytest.raises(openai.AuthenticationError, match="wants a token") as caught:
        await server.ask()
    assert caught.value.code == "invalid_api_key"
    assert caught.value.type == "authentication_error"
    server.client = server.new_client("s3cret")
    assert (await server.ask()).choices


async def test_pages_of_other_sites_are_kept_out(server):
    await server.start()
    status, answer = await post(server, GOOD, Origin="https://evil.example")
    assert (status, answer["error"]["type"]) == (401, "authentication_error")
    assert server.orchestrator.stats()["remembered"] == 0
