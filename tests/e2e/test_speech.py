"""A language model that speaks, in a graph: its sound, its voices, and what the page hears of it.

The model is a tiny one of random weights: what it says is noise, but it is one's own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import numpy as np
import pytest

from omnistage.comfy_nodes.media import pcm16
from omnistage.comfy_nodes.planner import QueuedPrompt, plan
from omnistage.comfy_nodes.playback import EVENT
from omnistage.runtime.bench.comfyui import Comfy, Graph, Refused
from omnistage.runtime.bench.servers import ComfyUI, Runtime, get_json, wait_until
from omnistage.runtime.client import RuntimeClient
from omnistage.runtime.protocol.frames import Frame
from omnistage.runtime.protocol.messages import SubmitReply, SubmitRequest
from omnistage.runtime.protocol.recipe import Handle, Recipe
from omnistage.tests.fakes import media_files, tiny_models

from .comfy import LEASE_S
from .test_thinker import events, node, unique

pytestmark = pytest.mark.e2e

RATE_HZ = 24000
SAMPLES_A_CODE = 480
STAGES = ["thinker", "talker", "codec_decode"]
QUESTION = "question.wav"


@pytest.fixture(scope="module")
def runtime_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime that serves nothing but a model that speaks."""
    checkpoint = tmp_path_factory.mktemp("voice")
    tiny_models.qwen25_omni_speaking(checkpoint)
    tiny_models.talks_on(checkpoint)
    server = Runtime(
        tmp_path_factory.mktemp("runtime"),
        f"leases.ttl_s={LEASE_S}",
        f"models.voice.source={checkpoint}",
        "models.voice.vllm.max_model_len=2048",
        "engine.ar.kv_cache_mb=32",
    )
    server.start()
    server.wait_for_model("voice")
    yield server
    server.end()


@pytest.fixture(scope="module")
def comfyui_server(
    new_comfyui: Callable[[], ComfyUI], runtime_server: Runtime
) -> Iterator[ComfyUI]:
    server = new_comfyui()
    sound = media_files.sound_file(media_files.wave(4000))
    (server.folder / "input" / QUESTION).write_bytes(sound)
    server.start({"OMNISTAGE_ADDRESS": runtime_server.url})
    yield server
    server.end()


def thinker(**inputs: Any) -> dict[str, Any]:
    own = {"model": ["1", 0], "prompt": "red blue", "system": ""}
    short = {"max_tokens": 6, "temperature": 0.0, "seed": 1}
    return node("OmniStageThinker", **{**own, **short, **inputs})


def talker(**inputs: Any) -> dict[str, Any]:
    """A Talker whose speech nobody has asked for before, short enough to be cut off."""
    own = {"model": ["1", 0], "hidden": ["2", 1], "voice": "default"}
    return node("OmniStageTalker", **{**own, "max_seconds": 0.6, "seed": unique(), **inputs})


def codec_decode(**inputs: Any) -> dict[str, Any]:
    own = {"model": ["1", 0], "codes": ["3", 0]}
    return node("OmniStageCodecDecode", **{**own, "steps": 3, "seed": 1, **inputs})


def speak(**inputs: Any) -> dict[str, Any]:
    own = {"model": ["1", 0], "text": "red blue", "voice": "default", "play": False}
    return node("OmniStageSpeak", **{**own, "seed": unique(), **inputs})


def spoken(**nodes: dict[str, Any]) -> Graph:
    """A prompt that saves the sound of node "4" and shows the text of node "2"."""
    return {
        "1": node("OmniStageLoadModel", model="voice"),
        "2": thinker(),
        "3": talker(),
        "4": codec_decode(),
        **{name.removeprefix("_"): made for name, made in nodes.items()},
        "98": node("SaveAudio", audio=["4", 0], filename_prefix="e2e"),
        "99": node("PreviewAny", source=["2", 0]),
    }


def endless() -> dict[str, dict[str, Any]]:
    """Speech that goes on until somebody stops it: the same sounds again and again."""
    same = {"top_p": 0.0, "top_k": 1, "min_p": -1.0, "repetition_penalty": 1.0}
    sampling = node("OmniStageTextSampling", **same, stop="", json_schema="")
    return {"_5": sampling, "_3": talker(sampling=["5", 0], max_seconds=30.0)}


def sound_of(comfy: Comfy, graph: Graph) -> np.ndarray:
    """Run a prompt; the samples that it saves."""
    ((samples, rate),) = comfy.sounds(comfy.finished(comfy.queue(graph)))
    assert (rate, len(samples)) == (RATE_HZ, 1)
    return samples[0]


def handles_of(graph: Graph, targets: tuple[str, ...] = ("98",)) -> dict[str, Handle]:
    """What queue-ahead asks for, by node id."""
    results = plan(QueuedPrompt("", graph, targets)).results
    return {k: result.source for k, result in results.items() if isinstance(result.source, Handle)}


async def submitted(client: RuntimeClient, graph: Graph) -> SubmitReply:
    """Ask for all of a graph once more; let go of it at once."""
    recipe = Recipe().merged(*(handle.recipe for handle in handles_of(graph).values()))
    reply = await client.submit(SubmitRequest("e2e-plan", "e2e", recipe))
    await client.release("e2e-plan")
    return reply


async def output(runtime: Runtime, graph: Graph, node_id: str, stage: str, name: str) -> Frame:
    """An output of one of the stages of a graph's node, from the runtime."""
    recipe = handles_of(graph)[node_id].recipe
    (job,) = (job.id for job in recipe if job.stage == stage)
    async with RuntimeClient(runtime.url) as client:
        reply = await submitted(client, graph)
        return await client.output(reply.keys[job], name)


# --- sound ----------------------------------------------------------------------------------------


async def test_a_text_becomes_sound_of_the_right_rate_and_length(comfy: Comfy, runtime: Runtime):
    graph = spoken()
    samples = sound_of(comfy, graph)
    codes = await output(runtime, graph, "4", "talker", "codes")
    assert codes.header["voice"] == "chelsie"
    assert len(samples) == len(codes.tensors["codes"].array) * SAMPLES_A_CODE > 0
    audio = await output(runtime, graph, "4", "codec_decode", "audio")
    assert audio.tensors["waveform"].array.shape == (1, 1, len(samples))
    assert np.abs(audio.tensors["waveform"].array[0, 0] - samples).max() < 1e-4  # 16 bits


async def test_the_nodes_ask_for_exactly_what_was_planned(comfy: Comfy, runtime: Runtime):
    graph = spoken()
    assert [job.stage for job in handles_of(graph)["4"].recipe] == STAGES
    assert len(sound_of(comfy, graph))
    done = runtime.stats["finished"]["done"]
    async with RuntimeClient(runtime.url) as client:
        reply = await submitted(client, graph)
    assert list(reply.states.values()) == ["done"] * 3
    assert runtime.stats["finished"]["done"] == done


def test_voices_differ_and_their_letters_do_not_matter(comfy: Comfy, runtime: Runtime):
    seed = unique()
    first = sound_of(comfy, spoken(_3=talker(seed=seed)))
    done = runtime.stats["finished"]["done"]
    same = sound_of(comfy, spoken(_3=talker(seed=seed, voice="Chelsie")))
    assert runtime.stats["finished"]["done"] == done
    assert np.array_equal(first, same)
    other = sound_of(comfy, spoken(_3=talker(seed=seed, voice="ETHAN")))
    length = min(len(first), len(other))
    assert np.abs(first[:length] - other[:length]).max() > 1e-3


async def test_a_question_in_sound_is_answered_in_sound(comfy: Comfy, runtime: Runtime):
    heard = node("LoadAudio", audio=QUESTION)
    graph = spoken(_6=heard, _2=thinker(audio=["6", 0], prompt="", seed=unique()))
    before = runtime.stats["finished"]["done"]
    samples = sound_of(comfy, graph)
    assert len(samples) > 0
    assert len(samples) % SAMPLES_A_CODE == 0
    assert runtime.stats["finished"]["done"] == before + 3, "ahead and in the nodes alike"


async def test_speak_is_the_three_stages_in_one(comfy: Comfy, runtime: Runtime):
    graph = spoken(_4=speak(voice="ethan"), _2=thinker(prompt=["4", 1]))
    samples = sound_of(comfy, graph)
    assert [job.stage for job in handles_of(graph)["4"].recipe] == STAGES
    audio = await output(runtime, graph, "4", "codec_decode", "audio")
    codes = await output(runtime, graph, "4", "talker", "codes")
    assert codes.header["voice"] == "ethan"
    assert np.abs(audio.tensors["waveform"].array[0, 0] - samples).max() < 1e-4


# --- what the page sees and hears -----------------------------------------------------------------


@pytest.mark.parametrize("speaker", ["codec", "speak"])
async def test_the_page_hears_the_sound_in_order_and_to_its_end(
    comfy: Comfy, runtime: Runtime, speaker: str
):
    played = codec_decode(play=True) if speaker == "codec" else speak(play=True)
    graph = spoken(_4=played)
    messages = [data async for kind, data in events(comfy, graph) if kind == EVENT]
    assert {message["node"] for message in messages} == {"4"}
    assert {message["rate"] for message in messages} == {RATE_HZ}
    assert [message["number"] for message in messages] == list(range(len(messages)))
    assert [message["last"] for message in messages] == [False] * (len(messages) - 1) + [True]
    audio = await output(runtime, graph, "4", "codec_decode", "audio")
    heard = b"".join(base64.b64decode(message["pcm"]) for message in messages)
    assert heard == pcm16(audio.tensors["waveform"].array)


async def test_a_sound_that_is_not_to_be_played_is_not_sent(comfy: Comfy):
    assert EVENT not in [kind async for kind, _ in events(comfy, spoken())]


async def test_only_the_page_that_queued_a_prompt_hears_it(comfy: Comfy):
    url = f"{comfy.server.url}/ws?clientId=other"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as other:
        graph = spoken(_4=codec_decode(play=True))
        assert EVENT in [kind async for kind, _ in events(comfy, graph)]
        own = comfy.queue(spoken(), client_id="other")
        seen: list[str] = []
        async for message in other:
            if message.type is aiohttp.WSMsgType.TEXT:
                event = json.loads(message.data)
                seen.append(event["type"])
                if seen[-1] == "execution_success" and event["data"]["prompt_id"] == own:
                    break
    assert EVENT not in seen


async def test_a_node_says_how_long_the_speech_is_whose_and_that_it_was_cut(comfy: Comfy):
    graph = spoken(**endless())
    graph["3"]["inputs"] |= {"max_seconds": 0.6, "voice": "Ethan"}
    texts = [data async for kind, data in events(comfy, graph) if kind == "text"]
    shown = dict(texts)
    assert shown["3"] == "voice ethan, at most 0.6 s"
    assert shown["4"] == "0.60 s, voice ethan, cut off at the limit of 0.6 s"


async def test_stop_in_the_middle_ends_all_three_stages(comfy: Comfy, runtime: Runtime):
    graph = spoken(_4=codec_decode(play=True), **endless())
    graph["2"]["inputs"]["seed"] = unique()
    stopped, heard = False, 0
    async for kind, _ in events(comfy, graph):
        heard += kind == EVENT
        if heard == 2 and not stopped:
            comfy.post("/interrupt", {})
            stopped = True
    assert kind == "execution_interrupted"
    wait_until(lambda: runtime.live_jobs == 0, "nothing runs")
    async with RuntimeClient(runtime.url) as client:
        states = (await submitted(client, graph)).states.values()
    assert list(states)[1:] != ["done", "done"], "it was still going on"
    wait_until(lambda: runtime.live_jobs == 0, "nothing runs")
    assert len(sound_of(comfy, spoken())) > 0


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "place"),
    [({"_3": talker(voice="Nova")}, "3"), ({"_4": speak(voice="Nova")}, "4")],
)
def test_an_unknown_voice_is_refused_with_the_list(comfy: Comfy, runtime: Runtime, nodes, place):
    before = runtime.stats["finished"]
    with pytest.raises(Refused) as refusal:
        comfy.queue(spoken(**nodes))
    (error,) = refusal.value.body["node_errors"][place]["errors"]
    assert error["extra_info"]["input_name"] == "voice"
    words = "voice = 'nova' is not possible with model 'voice'; allowed: chelsie, ethan"
    assert error["message"] == words
    assert runtime.live_jobs == 0
    assert runtime.stats["finished"] == before


def test_the_list_of_voices_is_the_models(comfy: Comfy):
    for kind in ("OmniStageTalker", "OmniStageSpeak"):
        info = get_json(f"{comfy.server.url}/object_info/{kind}")[kind]
        _, options = info["input"]["required"]["voice"]
        assert options["options"] == ["default", "chelsie", "ethan"]
