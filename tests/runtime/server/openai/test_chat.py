"""Answers, whole and streamed, as OpenAI's client sees them."""

import asyncio
import json

import openai
import pytest

from omnistage.runtime.server.openai.stream import EventStream
from omnistage.runtime.server.openai.transcript import Transcript

WORDS = "word " * 40
PERSON = {"name": "person", "schema": {"type": "object", "properties": {"age": {"minimum": 0}}}}


async def wait_until(true):
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)


def given(answer, index=0):
    """What the engine says that it was given."""
    return json.loads(answer.choices[index].message.content)


async def streamed(chunks, folder=None, at=0):
    """The text, the finish reasons and all chunks of a stream with one choice.

    The engine goes on from its trouble in `folder` when `at` characters have arrived.
    """
    seen = []
    async for chunk in await chunks:
        seen.append(chunk)
        at -= len(chunk.choices[0].delta.content or "") if chunk.choices else 0
        if folder is not None and at == 0:
            (folder / "go").touch()
    choices = [choice for chunk in seen for choice in chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    return text, [c.finish_reason for c in choices if c.finish_reason], seen


async def test_an_answer_comes_whole(server):
    await server.start(say="It is a picture of a red circle.")
    answer = await server.ask("What is this?")
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "It is a picture of a red circle."
    assert (choice.index, choice.finish_reason) == (0, "stop")
    assert (answer.object, answer.model) == ("chat.completion", "omni")
    assert answer.id.startswith("chatcmpl-")
    assert answer.created > 1_700_000_000


async def test_all_messages_arrive_in_order(server):
    await server.start()
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Grüße 🌍", "name": "me"},
        {"role": "assistant", "content": "Hi.", "refusal": None, "tool_calls": None},
        {"role": "user", "content": [{"type": "text", "text": t} for t in ("And", " now?")]},
    ]
    got = given(await server.ask(messages=messages))
    assert [(m["role"], m["content"]) for m in got["messages"]] == [
        ("system", [{"type": "text", "text": "Be brief."}]),
        ("user", [{"type": "text", "text": "Grüße 🌍"}]),
        ("assistant", [{"type": "text", "text": "Hi."}]),
        ("user", [{"type": "text", "text": "And now?"}]),
    ]
    assert got["params"]["prompt"] == ""


async def test_parameters_arrive(server):
    await server.start()
    answer = await server.ask(
        max_completion_tokens=99,
        temperature=1,
        top_p=0.5,
        seed=7,
        stop=["a", "b"],
        user="someone",
        extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.5},
    )
    params = given(answer)["params"]
    assert {k: params[k] for k in ("max_tokens", "temperature", "top_p", "seed", "stop")} == {
        "max_tokens": 99,
        "temperature": 1.0,
        "top_p": 0.5,
        "seed": 7,
        "stop": ["a", "b"],
    }
    assert (params["top_k"], params["min_p"], params["repetition_penalty"]) == (5, 0.1, 1.5)
    assert given(answer)["client"] == "someone"


async def test_what_is_left_out_is_as_the_model_has_it(server):
    await server.start()
    answer = await server.ask(temperature=None, stop=None, n=None, tools=[], store=False)
    params = given(answer)["params"]
    assert (params["temperature"], params["max_tokens"], params["top_k"]) == (0.7, 512, 0)
    assert (params["stop"], params["json_schema"]) == ([], "")
    assert given(answer)["client"] == "127.0.0.1"


async def test_minus_one_means_all_tokens_as_in_vllm(server):
    await server.start()
    assert given(await server.ask(extra_body={"top_k": -1}))["params"]["top_k"] == 0


async def test_one_stop_text_needs_no_list(server):
    await server.start()
    assert given(await server.ask(stop="###"))["params"]["stop"] == ["###"]


async def test_fields_that_change_no_answer_are_ignored(server):
    await server.start(say="Fine.")
    answer = await server.ask(
        metadata={"a": "b"},
        service_tier="auto",
        parallel_tool_calls=True,
        logprobs=False,
        presence_penalty=0,
        safety_identifier="x",
        modalities=["text"],
    )
    assert answer.choices[0].message.content == "Fine."


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": PERSON}, PERSON["schema"]),
    ],
)
async def test_the_form_of_the_answer_arrives_as_a_schema(server, form, schema):
    await server.start()
    text = given(await server.ask(response_format=form))["params"]["json_schema"]
    assert (json.loads(text) if text else None) == schema


async def test_the_limit_of_tokens_is_the_finish_reason(server):
    await server.start()
    answer = await server.ask(max_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2


async def test_choices_have_seeds_of_their_own(server):
    await server.start()
    answer = await server.ask(n=3, seed=2**63 - 2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    seeds = [given(answer, i)["params"]["seed"] for i in range(3)]
    assert seeds == [2**63 - 2, 2**63 - 1, 0]
    assert server.orchestrator.stats()["finished"]["done"] == 3


@pytest.mark.parametrize(
    ("fields", "jobs"), [({}, 2), ({"seed": 1}, 1), ({"temperature": 0}, 1), ({"seed": -1}, 1)]
)
async def test_only_who_asks_for_the_same_shares_an_answer(server, fields, jobs):
    await server.start()
    first, second = await server.ask(**fields), await server.ask(**fields)
    assert server.orchestrator.stats()["finished"]["done"] == jobs
    assert (given(first) == given(second)) is (jobs == 1)


async def test_usage_counts_the_prompt_once(server):
    await server.start(say="x" * 48)
    usage = (await server.ask(n=2)).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (1, 4, 5)
    assert usage.prompt_tokens_details.cached_tokens == 1


async def test_a_stream_brings_the_answer_as_it_is_written(server, tmp_path):
    await server.start(say=WORDS, at=3, folder=str(tmp_path))
    text, reasons, chunks = await streamed(server.ask(stream=True), tmp_path, 72)
    assert (text, reasons) == (WORDS, ["stop"])
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:])
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chunks[0].object == "chat.completion.chunk"
    assert all(chunk.usage is None for chunk in chunks)


async def test_a_stream_counts_tokens_at_its_end_if_asked(server):
    await server.start(say="x" * 48)
    asked = server.ask(stream=True, stream_options={"include_usage": True})
    *others, last = (await streamed(asked))[2]
    assert last.choices == []
    assert last.usage.completion_tokens == 2
    assert all(chunk.usage is None for chunk in others)


async def test_a_stream_of_an_answer_that_is_known_already_is_whole(server):
    await server.start(say="Known.")
    await server.ask(seed=1)
    assert (await streamed(server.ask(seed=1, stream=True)))[:2] == ("Known.", ["stop"])
    assert server.orchestrator.stats()["finished"]["done"] == 1


async def test_a_stream_of_nothing_still_says_who_speaks(server):
    await server.start(say="")
    text, reasons, chunks = await streamed(server.ask(stream=True))
    assert (text, reasons) == ("", ["stop"])
    assert chunks[0].choices[0].delta.role == "assistant"


async def test_several_choices_stream_side_by_side(server):
    await server.start()
    texts = {0: "", 1: "", 2: ""}
    async for chunk in await server.ask(stream=True, n=3, seed=5):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert [json.loads(text)["params"]["seed"] for text in texts.values()] == [5, 6, 7]


@pytest.mark.parametrize("stream", [True, False])
async def test_whoever_leaves_stops_the_work(server, stream):
    await server.start(say="and on ", endless=True)
    asked = asyncio.create_task(server.ask(stream=stream, n=2))
    await wait_until(lambda: server.orchestrator.stats()["jobs"]["running"] == 2)
    if stream:
        chunks = await asked
        assert (await anext(aiter(chunks))).choices[0].delta.content
        await chunks.close()
    else:
        asked.cancel()
    await wait_until(lambda: server.orchestrator.stats()["finished"]["cancelled"] == 2)
    assert server.orchestrator.stats()["leases"] == 0


async def test_a_reader_who_has_gone_is_no_mistake(server, monkeypatch, caplog):
    await server.start(say=WORDS)
    send = EventStream.send

    async def send_unless_finished(stream, body):
        if body["choices"][0]["finish_reason"]:
            raise ConnectionResetError
        await send(stream, body)

    monkeypatch.setattr(EventStream, "send", send_unless_finished)
    assert (await streamed(server.ask(stream=True)))[:2] == (WORDS, [])
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_whoever_leaves_stops_nobody_elses_work(server):
    await server.start(say="and on ", endless=True)
    first, second = [await server.ask(stream=True, seed=1) for _ in range(2)]
    (job,) = server.orchestrator._life.jobs.values()
    assert len(job.subscribers) == 2
    await first.close()
    await wait_until(lambda: len(job.subscribers) == 1)
    assert server.orchestrator.stats()["leases"] == 1
    assert job.state == "running"
    await second.close()


async def test_whoever_stays_keeps_the_work_alive(server, monkeypatch):
    await server.start("leases.ttl_s=0.6", say="and on ", endless=True)
    renew, unknown = server.orchestrator.renew, []
    monkeypatch.setattr(server.orchestrator, "renew", lambda o: unknown.append(renew(o)))
    chunks = await server.ask(stream=True)
    await wait_until(lambda: len(unknown) == 5)
    assert unknown == [[]] * 5
    assert server.orchestrator.stats()["jobs"]["running"] == 1
    await chunks.close()


async def test_an_answered_request_leaves_nothing_behind(server):
    await server.start()
    before = asyncio.all_tasks()
    await server.ask()
    await streamed(server.ask(stream=True))
    assert server.orchestrator.stats()["leases"] == 0
    await server.client.close()  # and so its connection
    await wait_until(lambda: asyncio.all_tasks() == before)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failure_before_the_first_word_is_a_status(server, stream):
    await server.start(trouble="fail", at=0)
    with pytest.raises(openai.InternalServerError, match="lost its thread") as caught:
        await server.ask(stream=stream)
    assert (caught.value.code, caught.value.type) == ("job_failed", "server_error")
    assert caught.value.response.headers["x-should-retry"] == "false"


async def test_a_failure_that_is_the_requests_fault_is_said_to_be(server):
    await server.start(trouble="fault", at=0)
    with pytest.raises(openai.BadRequestError, match="too long") as caught:
        await server.ask()
    assert caught.value.param == "messages[0].content"


async def test_a_failure_in_a_stream_is_its_last_event(server, tmp_path):
    await server.start(say=WORDS, trouble="fail", at=3, folder=str(tmp_path))
    with pytest.raises(openai.APIError, match="lost its thread") as caught:
        await streamed(server.ask(stream=True), tmp_path, 72)
    assert (tmp_path / "go").exists()
    assert caught.value.code == "job_failed"


async def test_one_choice_that_fails_ends_them_all(server):
    await server.start(trouble="fail", at=2)
    with pytest.raises(openai.InternalServerError):
        await server.ask(n=3)
    await wait_until(lambda: server.orchestrator.stats()["jobs"] == {"queued": 0, "running": 0})


async def test_after_a_crash_the_stream_goes_on_where_it_was(server, tmp_path):
    await server.start(say=WORDS, trouble="crash", at=3, folder=str(tmp_path))
    text, reasons, _ = await streamed(server.ask(stream=True), tmp_path, 72)
    assert (tmp_path / "crashed").exists()
    assert (text, reasons) == (WORDS, ["stop"])


@pytest.mark.parametrize("then", ["Other words " * 20, WORDS[:60]])
async def test_after_a_crash_another_answer_ends_the_stream(server, tmp_path, then):
    await server.start(say=WORDS, then=then, trouble="crash", at=3, folder=str(tmp_path))
    with pytest.raises(openai.APIError, match="gave another one") as caught:
        await streamed(server.ask(stream=True), tmp_path, 72)
    assert (tmp_path / "crashed").exists()
    assert caught.value.code == "engine_lost"


async def test_after_a_crash_a_whole_answer_may_be_another(server, tmp_path):
    (tmp_path / "go").touch()
    await server.start(say=WORDS, then="Other", trouble="crash", at=3, folder=str(tmp_path))
    assert (await server.ask()).choices[0].message.content == "Other"


async def test_an_engine_that_dies_of_it_is_a_503(server):
    await server.start("engine.retries=1", trouble="crash", at=0)
    with pytest.raises(openai.InternalServerError) as caught:
        await server.ask()
    assert (caught.value.status_code, caught.value.code) == (503, "engine_lost")
    assert caught.value.response.headers["x-should-retry"] == "true"


async def test_a_full_queue_is_a_429_and_starts_nothing(server):
    await server.start("server.max_queued_jobs=2")
    with pytest.raises(openai.RateLimitError, match="the runtime takes 2") as caught:
        await server.ask(n=3)
    assert (caught.value.code, caught.value.type) == ("queue_full", "rate_limit_error")
    assert server.orchestrator.stats()["remembered"] == 0
    await server.ask(n=2)


async def test_a_mistake_of_the_runtime_is_told_in_openais_form(server, monkeypatch):
    await server.start()
    monkeypatch.delattr(server.services.shelf.__class__, "stages")
    with pytest.raises(openai.InternalServerError, match="made a mistake") as caught:
        await server.ask()
    assert caught.value.type == "server_error"


async def test_a_mistake_in_a_stream_is_its_last_event(server, monkeypatch):
    await server.start(say=WORDS)
    monkeypatch.delattr(Transcript, "finish")
    with pytest.raises(openai.APIError, match="made a mistake"):
        await streamed(server.ask(stream=True))
    assert server.orchestrator.stats()["leases"] == 0
