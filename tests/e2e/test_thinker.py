"""A language model in a graph: its text, its conversations, and pictures of what it writes."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from omnistage.comfy_nodes.display import WAITING
from omnistage.comfy_nodes.planner import QueuedPrompt, plan
from omnistage.runtime.bench.comfyui import (
    Comfy,
    Graph,
    Refused,
    error_of,
    was_interrupted,
    with_inputs,
    workflow,
)
from omnistage.runtime.bench.servers import Runtime, wait_until
from omnistage.runtime.client import RuntimeClient
from omnistage.runtime.protocol.conversation import Conversation
from omnistage.runtime.protocol.frames import Frame
from omnistage.runtime.protocol.messages import SubmitReply, SubmitRequest
from omnistage.runtime.protocol.recipe import Handle, Recipe

from .comfy import long

pytestmark = pytest.mark.e2e

_TEXT = 3
"""ComfyUI's binary event for a node's text. Source: `BinaryEventTypes` in its protocol.py."""
_PAGE = "thinker"


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}


def thinker(**inputs: Any) -> dict[str, Any]:
    """A Thinker on model "1" whose answer nobody has asked for before."""
    neutral = {"prompt": "Name a colour.", "system": "", "max_tokens": 8, "temperature": 0.0}
    return node("OmniStageThinker", model=["1", 0], **{**neutral, "seed": unique(), **inputs})


def unique() -> int:
    return uuid.uuid4().int % 2**62


def asked(**nodes: dict[str, Any]) -> Graph:
    """A prompt that shows what Thinker "2" writes: `asked(_2=thinker())`."""
    return {
        "1": node("OmniStageLoadModel", model="smollm2"),
        **{name.removeprefix("_"): made for name, made in nodes.items()},
        "99": node("PreviewAny", source=["2", 0]),
    }


def picture_of_a_text() -> Graph:
    """The template, small, and so that no cache can answer."""
    graph = with_inputs(workflow("enhance_prompt"), "OmniStageThinker", seed=unique())
    return with_inputs(graph, "OmniStageSample", width=64, height=64, steps=4, seed=unique())


def texts_of(comfy: Comfy, graph: Graph) -> dict[str, str]:
    """What a prompt's PreviewAny nodes show, by node id."""
    entry = comfy.wait(comfy.queue(graph))
    assert entry["status"]["status_str"] == "success", error_of(entry)
    return {k: out["text"][0] for k, out in entry["outputs"].items() if "text" in out}


def handles_of(graph: Graph) -> dict[str, Handle]:
    """What queue-ahead asks for, by node id."""
    targets = tuple(k for k, n in graph.items() if n["class_type"] in ("PreviewAny", "SaveImage"))
    results = plan(QueuedPrompt("", graph, targets), lambda _: None).results
    return {k: result.source for k, result in results.items() if isinstance(result.source, Handle)}


async def submitted(client: RuntimeClient, graph: Graph) -> SubmitReply:
    """Ask for all of a graph once more; let go of it at once."""
    recipe = Recipe().merged(*(handle.recipe for handle in handles_of(graph).values()))
    reply = await client.submit(SubmitRequest("e2e-plan", "e2e", recipe))
    await client.release("e2e-plan")
    return reply


async def output(runtime: Runtime, graph: Graph, node_id: str, name: str) -> Frame:
    """An output of a graph's node, from the runtime."""
    async with RuntimeClient(runtime.url) as client:
        reply = await submitted(client, graph)
        return await client.output(reply.keys[handles_of(graph)[node_id].job], name)


async def said(runtime: Runtime, graph: Graph, node_id: str) -> list[tuple[str, str]]:
    """The conversation that a Thinker leaves, as roles and texts."""
    frame = await output(runtime, graph, node_id, "history")
    return [(message.role, message.text) for message in Conversation.from_frame(frame).messages]


async def events(comfy: Comfy, graph: Graph) -> AsyncIterator[tuple[str, Any]]:
    """What the page sees of a prompt up to its end: `("text", (node, text))`, or ComfyUI's own."""
    url = f"{comfy.server.url}/ws?clientId={_PAGE}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as page:
        prompt_id = comfy.queue(graph, client_id=_PAGE)
        async for message in page:
            if message.type is aiohttp.WSMsgType.BINARY:
                kind, length = struct.unpack(">II", message.data[:8])
                if kind == _TEXT:
                    body = message.data[8:]
                    yield "text", (body[:length].decode(), body[length:].decode())
                continue
            event = json.loads(message.data)
            if event["data"].get("prompt_id") == prompt_id:
                yield event["type"], event["data"]
                if event["type"] in (
                    "execution_success",
                    "execution_error",
                    "execution_interrupted",
                ):
                    return


# --- text -----------------------------------------------------------------------------------------


async def test_a_text_arrives(comfy: Comfy, runtime: Runtime):
    graph = asked(_2=thinker())
    text = texts_of(comfy, graph)["99"]
    frame = await output(runtime, graph, "2", "text")
    assert text.strip()
    assert frame.header["text"] == text
    assert frame.header["completion_tokens"] <= 8


def test_a_text_is_a_text_to_other_nodes(comfy: Comfy):
    graph = asked(
        _2=thinker(),
        _3=node("StringConcatenate", string_a="It said: ", string_b=["2", 0], delimiter=""),
        _4=node("PreviewAny", source=["3", 0]),
        _5=thinker(prompt=["3", 0]),
        _6=node("PreviewAny", source=["5", 0]),
    )
    texts = texts_of(comfy, graph)
    assert texts["4"] == "It said: " + texts["99"]
    assert texts["6"].strip()


async def test_the_text_is_shown_as_it_is_written(comfy: Comfy):
    graph = asked(_2=thinker(prompt="Tell me a story.", max_tokens=96))
    shown, progress = [], []
    async for kind, data in events(comfy, graph):
        if kind == "text" and data[0] == "2":
            shown.append(data[1])
        elif kind == "progress" and data["node"] == "2":
            progress.append((data["value"], data["max"]))
    *parts, last = [text for text in shown if text != WAITING]
    assert len(parts) >= 3
    assert all(last.startswith(text) for text in parts)
    assert parts == sorted(parts, key=len)
    facts = last.rpartition("\n\n")[2]
    assert "tokens" in facts
    assert "max_tokens 96" in facts
    assert "temperature 0.0" in facts
    assert progress == sorted(progress)
    assert {total for _, total in progress} == {96}


async def test_stop_mid_text_ends_the_work(comfy: Comfy, runtime: Runtime):
    before = runtime.stats["finished"]["cancelled"]
    graph = asked(_2=thinker(prompt="Tell me a long story.", max_tokens=4000, temperature=2.0))
    stopped = False
    async for kind, data in events(comfy, graph):
        if kind == "text" and data[0] == "2" and not stopped:
            comfy.post("/interrupt", {})
            stopped = True
    assert kind == "execution_interrupted"
    wait_until(lambda: runtime.live_jobs == 0, "nothing runs")
    assert runtime.stats["finished"]["cancelled"] == before + 1
    assert texts_of(comfy, asked(_2=thinker()))["99"].strip()


# --- conversations --------------------------------------------------------------------------------


async def test_a_history_goes_from_answer_to_answer(comfy: Comfy, runtime: Runtime):
    graph = with_inputs(workflow("chat"), "OmniStageThinker", max_tokens=12, seed=unique())
    texts = texts_of(comfy, graph)
    assert await said(runtime, graph, "4") == [
        ("system", "Answer in one short sentence."),
        ("user", "What is the capital of France?"),
        ("assistant", texts["3"]),
        ("user", "And of Italy?"),
        ("assistant", texts["5"]),
    ]


async def test_messages_are_answered(comfy: Comfy, runtime: Runtime):
    graph = asked(
        _3=node("OmniStageMessage", role="user", text="What is 1 + 1?"),
        _4=node("OmniStageMessage", role="assistant", text="Two.", history=["3", 0]),
        _5=node("OmniStageMessage", role="user", text="And 1 + 2?", history=["4", 0]),
        _2=thinker(prompt="", history=["5", 0]),
    )
    text = texts_of(comfy, graph)["99"]
    assert await said(runtime, graph, "2") == [
        ("user", "What is 1 + 1?"),
        ("assistant", "Two."),
        ("user", "And 1 + 2?"),
        ("assistant", text),
    ]


def test_a_message_can_follow_an_answer(comfy: Comfy, runtime: Runtime):
    """Its history is on the runtime, and is fetched when the node runs."""
    graph = asked(
        _3=thinker(),
        _4=node("OmniStageMessage", role="user", text="And another.", history=["3", 2]),
        _2=thinker(prompt="", history=["4", 0]),
    )
    assert list(handles_of(graph)) == ["3"]
    before = runtime.stats["finished"]["done"]
    assert texts_of(comfy, graph)["99"].strip()
    assert runtime.stats["finished"]["done"] == before + 2


# --- pictures of what is written ------------------------------------------------------------------


async def test_the_nodes_ask_for_exactly_what_was_planned(comfy: Comfy, runtime: Runtime):
    """Although the text was not known when the plan was made."""
    graph = picture_of_a_text()
    assert len(comfy.run(graph)) == 1
    done = runtime.stats["finished"]["done"]
    async with RuntimeClient(runtime.url) as client:
        reply = await submitted(client, graph)
    assert len(reply.states) == 4
    assert set(reply.states.values()) == {"done"}
    assert runtime.stats["finished"]["done"] == done


def test_the_whole_chain_is_done_before_comfyui_reaches_it(comfy: Comfy, runtime: Runtime):
    forwards = sum(runtime.stats["batches"].values())
    blocker = comfy.queue(long())
    wait_until(lambda: sum(runtime.stats["batches"].values()) > forwards + 1, "it denoises")
    done = runtime.stats["finished"]["done"]
    prompt = comfy.queue(picture_of_a_text())
    wait_until(lambda: runtime.stats["finished"]["done"] == done + 4, "the chain is done")
    assert comfy.running() == [blocker]
    comfy.post("/interrupt", {})
    assert was_interrupted(comfy.wait(blocker))
    assert len(comfy.pictures(comfy.wait(prompt))) == 1


# --- refusals -------------------------------------------------------------------------------------


def refusal_of(comfy: Comfy, graph: Graph) -> list[tuple[str, str, str]]:
    """Node, input and words of each error with which ComfyUI refuses a prompt."""
    with pytest.raises(Refused) as refusal:
        comfy.queue(graph)
    return [
        (node_id, error["extra_info"]["input_name"], error["message"])
        for node_id, entry in refusal.value.body["node_errors"].items()
        for error in entry["errors"]
    ]


def test_a_picture_for_a_model_of_text_is_refused(comfy: Comfy):
    blank = node("EmptyImage", width=64, height=64, batch_size=1, color=0)
    assert refusal_of(comfy, asked(_3=blank, _2=thinker(image=["3", 0]))) == [
        ("2", "image", "model 'smollm2' takes no image; it takes text")
    ]


@pytest.mark.parametrize(
    ("inputs", "field", "words"),
    [
        ({"prompt": " "}, "prompt", "prompt is empty"),
        ({"temperature": 3.0}, "temperature", "at most 2"),
    ],
)
def test_a_bad_question_is_refused_at_its_input(comfy: Comfy, inputs, field, words):
    ((node_id, name, message),) = refusal_of(comfy, asked(_2=thinker(**inputs)))
    assert (node_id, name) == ("2", field)
    assert words in message


def test_what_is_no_json_schema_is_refused_at_its_input(comfy: Comfy):
    plain = {"top_p": 0.0, "top_k": -1, "min_p": -1.0, "repetition_penalty": 0.0, "stop": ""}
    sampling = node("OmniStageTextSampling", **plain, json_schema='{"type": ')
    graph = asked(_3=sampling, _2=thinker(sampling=["3", 0]))
    ((node_id, name, _),) = refusal_of(comfy, graph)
    assert (node_id, name) == ("3", "json_schema")


def test_a_prompt_that_turns_out_empty_is_refused_by_the_node(comfy: Comfy):
    empty = node("StringConcatenate", string_a="", string_b=" ", delimiter="")
    entry = comfy.wait(comfy.queue(asked(_3=empty, _2=thinker(prompt=["3", 0]))))
    assert error_of(entry).startswith("Thinker: The prompt is empty")
