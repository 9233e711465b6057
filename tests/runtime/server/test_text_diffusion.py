"""Text that is denoised, behind the real server: its own API, and OpenAI's."""

import openai
import pytest

from omnistage.runtime.config import load_config
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.recipe import JobSpec, handle_of
from omnistage.runtime.server.app import build_services
from omnistage.tests.fakes.fake_server import FakeServer
from omnistage.tests.fakes.tiny_text import TEXT_CHECKPOINTS

ASKED = {"max_tokens": 24, "temperature": 1.0, "seed": 5}


@pytest.fixture(scope="module", params=TEXT_CHECKPOINTS)
def checkpoint(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    TEXT_CHECKPOINTS[request.param](folder)
    return folder


@pytest.fixture
async def server(checkpoint):
    settings = [f"models.tiny.source={checkpoint}", "engine.executor=inline", "engine.retries=0"]
    server = FakeServer()
    await server.serve(build_services(load_config(assignments=settings, environ={}).config))
    yield server
    await server.stop()


@pytest.fixture
async def chat(server):
    """OpenAI's own client, asking one question."""
    http = openai.DefaultAsyncHttpxClient(verify=False)  # reads no certificates
    client = openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="x", max_retries=0, http_client=http
    )

    async def ask(**fields):
        messages = [{"role": "user", "content": "a red circle"}]
        return await client.chat.completions.create(
            model="tiny", messages=messages, **{**ASKED, **fields}
        )

    yield ask
    await client.close()


def thinker(**params):
    return JobSpec.make("tiny", "thinker", {"prompt": "a red circle", **ASKED, **params}, {})


def run(server, spec, output="text", parents=(), on_event=None):
    handle = handle_of(spec, output, parents)
    return server.client.run(handle, owner="a", client="c", on_event=on_event)


async def test_a_thinker_job_gives_its_string_and_tells_it_while_it_is_made(server):
    events = []
    frame = await run(server, thinker(), on_event=events.append)
    told = "".join(event.text for event in events if event.kind == "text")
    assert told
    assert frame.header["text"].startswith(told)
    assert frame.header["completion_tokens"] <= 24
    assert any(event.kind == "progress" and event.step for event in events)


async def test_an_answer_is_asked_about(server):
    first = handle_of(thinker(), "history")
    second = JobSpec.make("tiny", "thinker", {"prompt": "blue", **ASKED}, {"history": first.ref})
    alone = await run(server, JobSpec.make("tiny", "thinker", {"prompt": "blue", **ASKED}, {}))
    follows = await run(server, second, parents=[first])
    assert follows.header["prompt_tokens"] > alone.header["prompt_tokens"]
    assert follows.header["text"] != alone.header["text"]


async def test_openai_gets_the_same_string_whole_and_streamed(server, chat):
    frame = await run(server, thinker())
    whole = await chat()
    assert whole.choices[0].message.content == frame.header["text"]
    assert whole.choices[0].finish_reason == frame.header["finish_reason"]
    assert whole.usage.completion_tokens == frame.header["completion_tokens"]
    pieces = [
        chunk.choices[0].delta.content or "" async for chunk in await chat(stream=True, seed=6)
    ]
    other = await chat(seed=6)
    assert "".join(pieces) == other.choices[0].message.content
    assert len([piece for piece in pieces if piece]) > 1


async def test_openai_may_ask_for_nothing_special(chat):
    await chat(top_p=1.0, stop=[], response_format={"type": "text"})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": ["end"]}, "stop"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_what_it_cannot_do_is_refused_before_it_starts(server, chat, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        await chat(**fields)
    assert caught.value.param == param
    assert server.orchestrator.stats()["remembered"] == 0


async def test_a_job_of_what_it_cannot_do_is_refused(server):
    with pytest.raises(InvalidRequest) as caught:
        await run(server, thinker(min_p=0.5))
    assert (caught.value.field, caught.value.value) == ("min_p", 0.5)
