"""What single nodes do, seen from ComfyUI."""

from __future__ import annotations

import json
import struct
from typing import Any

import aiohttp
import pytest
from PIL import Image, ImageChops

from omnistage.comfy_nodes.planner import QueuedPrompt, plan
from omnistage.runtime.bench.comfyui import Comfy, Graph, Refused, error_of
from omnistage.runtime.bench.servers import Runtime
from omnistage.runtime.client import RuntimeClient
from omnistage.runtime.protocol.messages import SubmitRequest
from omnistage.runtime.protocol.recipe import Handle, Recipe

from .comfy import fresh, small

pytestmark = pytest.mark.e2e

_TEXT, _PREVIEW = 3, 4
"""ComfyUI's binary events. Source: `BinaryEventTypes` in its protocol.py."""


def save(images: str, node: str = "99") -> Graph:
    return {
        node: {
            "class_type": "SaveImage",
            "inputs": {"images": [images, 0], "filename_prefix": "e2e"},
        }
    }


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}


def through_the_vae(source: Graph, image: str) -> Graph:
    """Pictures encoded and decoded again."""
    return {
        **source,
        "10": node("OmniStageLoadModel", model="demo"),
        "11": node("OmniStageVAEEncode", model=["10", 0], image=[image, 0]),
        "12": node("OmniStageVAEDecode", model=["10", 0], latent=["11", 0]),
        **save("12"),
    }


def plain(colour: int, **changes: int) -> dict[str, Any]:
    inputs = {"width": 64, "height": 64, "batch_size": 1, "color": colour, **changes}
    return node("EmptyImage", **inputs)


def alike(one: Image.Image, other: Image.Image) -> bool:
    """Whether two pictures differ by rounding at most, as batched and alone may."""
    differences = ImageChops.difference(one, other).getextrema()
    return one.size == other.size and all(high <= 1 for _, high in differences)


# --- values ---------------------------------------------------------------------------------------


async def test_a_node_asks_for_exactly_what_was_planned(comfy: Comfy, runtime: Runtime):
    """So queue-ahead, the node and any other client meet on one job; seeds stay exact."""
    graph = small(seed=2**64 - 1)
    comfy.run(graph)
    done = runtime.stats["finished"]["done"]
    results = plan(QueuedPrompt("", graph, ("5",)), lambda _: None).results.values()
    handles = [r.source for r in results if isinstance(r.source, Handle)]
    recipe = Recipe().merged(*(handle.recipe for handle in handles))
    async with RuntimeClient(runtime.url) as client:
        reply = await client.submit(SubmitRequest("e2e-plan", "e2e", recipe))
        await client.release("e2e-plan")
    assert set(reply.states.values()) == {"done"}
    assert reply.params[handles[1].job]["seed"] == 2**64 - 1
    assert runtime.stats["finished"]["done"] == done


def test_count_gives_the_pictures_of_the_following_seeds(comfy: Comfy):
    together = comfy.run(small(seed=40, count=3))
    alone = [comfy.run(small(seed=40 + i))[0] for i in range(3)]
    assert all(map(alike, together, alone))
    assert not alike(alone[0], alone[1])


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("width", 100, "a multiple of 16"),
        ("height", 16000, "at most 128"),
        ("steps", 9999, "at most 200"),
        ("count", 4000, "at most 64"),
    ],
)
def test_a_bad_value_is_refused_with_field_value_and_range(comfy: Comfy, field, value, allowed):
    with pytest.raises(Refused) as refusal:
        comfy.queue(small(**{field: value}))
    assert f"{field} = {value} " in refusal.value.details
    assert allowed in refusal.value.details
    (error,) = refusal.value.body["node_errors"]["3"]["errors"]
    assert error["extra_info"]["input_name"] == field


def test_a_value_known_only_when_it_runs_is_refused_by_the_node(comfy: Comfy):
    graph = fresh(steps=["9", 0]) | {"9": node("StringLength", string="x" * 2000)}
    entry = comfy.wait(comfy.queue(graph))
    assert "DiT Sample: steps = 2000" in error_of(entry)
    assert "at most 200" in error_of(entry)


def test_a_model_that_is_gone_is_named_with_those_there_are(comfy: Comfy):
    graph = small()
    graph["1"]["inputs"]["model"] = "qwen-of-last-year"
    with pytest.raises(Refused, match="'qwen-of-last-year' is not on this runtime; it has demo"):
        comfy.queue(graph)


def test_a_model_nobody_needs_does_not_matter(comfy: Comfy):
    comfy.run(small() | {"50": node("OmniStageLoadModel", model="gone")})


# --- pictures -------------------------------------------------------------------------------------


def test_each_picture_of_a_batch_is_treated_as_if_alone(comfy: Comfy):
    red, blue = {"1": plain(0xC02020)}, {"2": plain(0x2020C0)}
    both = {**red, **blue, "3": node("ImageBatch", image1=["1", 0], image2=["2", 0])}
    together = comfy.run(through_the_vae(both, "3"))
    alone = comfy.run(through_the_vae(red, "1")) + comfy.run(through_the_vae(blue, "2"))
    assert len(together) == len(alone)
    assert all(map(alike, together, alone))


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_a_batch_of_any_length_keeps_its_length(comfy: Comfy, batch: int):
    source = {"1": plain(0x40A040, batch_size=batch)}
    assert len(comfy.run(through_the_vae(source, "1"))) == batch


def test_transparency_becomes_white(comfy: Comfy):
    clear = {
        "1": plain(0x000000),
        "2": node("SolidMask", value=1.0, width=64, height=64),
        "3": node("JoinImageWithAlpha", image=["1", 0], alpha=["2", 0]),
    }
    (see_through,) = comfy.run(through_the_vae(clear, "3"))
    (white,) = comfy.run(through_the_vae({"1": plain(0xFFFFFF)}, "1"))
    assert alike(see_through, white)


def test_image_to_image_from_a_file(comfy: Comfy):
    Image.new("RGB", (64, 96), "orange").save(comfy.server.folder / "input" / "orange.png")
    graph = fresh(width=0, height=0, denoise=0.5, latent=["7", 0]) | {
        "6": node("LoadImage", image="orange.png"),
        "7": node("OmniStageVAEEncode", model=["1", 0], image=["6", 0]),
    }
    (picture,) = comfy.run(graph)
    assert picture.size == (64, 96)  # the picture's own


# --- converters -----------------------------------------------------------------------------------


def test_latents_survive_the_way_through_comfyui(comfy: Comfy):
    graph = small(seed=77) | {
        "6": node("OmniStageToLatent", latent=["3", 0]),
        "7": node("OmniStageFromLatent", model=["1", 0], samples=["6", 0]),
        "8": node("OmniStageVAEDecode", model=["1", 0], latent=["7", 0]),
        **save("8"),
    }
    direct, around = comfy.run(graph)
    assert alike(direct, around)


def test_comfyuis_own_latent_nodes_can_come_between(comfy: Comfy):
    graph = small(seed=77, count=2) | {
        "6": node("OmniStageToLatent", latent=["3", 0]),
        "7": node("LatentFromBatch", samples=["6", 0], batch_index=1, length=1),
        "8": node("OmniStageFromLatent", model=["1", 0], samples=["7", 0]),
        "9": node("OmniStageVAEDecode", model=["1", 0], latent=["8", 0]),
        **save("9"),
    }
    first, second, picked = comfy.run(graph)
    assert alike(picked, second)
    assert not alike(picked, first)


def test_conditioning_reaches_comfyuis_own_nodes(comfy: Comfy):
    graph = small() | {
        "6": node("OmniStageToConditioning", conditioning=["2", 0]),
        "7": node("ConditioningCombine", conditioning_1=["6", 0], conditioning_2=["6", 1]),
        "8": node("PreviewAny", source=["7", 0]),
    }
    entry = comfy.wait(comfy.queue(graph))
    assert entry["status"]["status_str"] == "success", error_of(entry)


# --- what the page shows --------------------------------------------------------------------------


def test_status_shows_address_version_and_models(comfy: Comfy, runtime: Runtime):
    entry = comfy.wait(comfy.queue({"1": node("OmniStageStatus")}))
    (text,) = entry["outputs"]["1"]["text"]
    assert text.startswith(f"{runtime.url}: ok, version ")
    assert "model demo: qwen-image" in text


async def test_progress_previews_and_the_values_used(comfy: Comfy, runtime: Runtime):
    graph = fresh(steps=30, width=128, height=128)
    progress, texts, previews = [], [], []
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{comfy.server.url}/ws?clientId=watcher", max_msg_size=0) as page,
    ):
        await page.send_json({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
        prompt_id = comfy.queue(graph, client_id="watcher")
        async for message in page:
            if message.type is aiohttp.WSMsgType.BINARY:
                kind, length = struct.unpack(">II", message.data[:8])
                body = message.data[8:]
                if kind == _TEXT:
                    texts.append((body[:length].decode(), body[length:].decode()))
                elif kind == _PREVIEW:
                    previews.append(json.loads(body[:length])["node_id"])
                continue
            event = json.loads(message.data)
            if event["type"] == "progress" and event["data"]["prompt_id"] == prompt_id:
                progress.append((event["data"]["node"], event["data"]["value"]))
            if event["type"] in ("execution_success", "execution_error"):
                break
    steps = [value for node_id, value in progress if node_id == "3"]
    assert len(steps) > 3
    assert steps == sorted(steps)
    assert set(previews) == {"3"}
    sampler = [text for node_id, text in texts if node_id == "3"]
    assert any(text.startswith("step ") and "batch" in text for text in sampler)
    guidance = runtime.models["demo"]["stages"]["sample"]["params"]["properties"]["guidance"][
        "default"
    ]
    assert sampler[-1].startswith(f"128 x 128 px, 30 steps, guidance {guidance}")
