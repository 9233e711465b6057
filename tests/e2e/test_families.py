"""Nodes for what only some families have: film, masks, pictures to go by, adapters, guiders.

ComfyUI is real, and so is the runtime's server; the models compute nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from omnistage.runtime.bench.comfyui import Comfy, Graph, Refused, error_of
from omnistage.runtime.bench.servers import ComfyUI, get_json
from omnistage.runtime.engine.core import StageTask
from omnistage.tests.comfy_nodes.prompts import (
    control,
    graph,
    guider,
    load_image,
    lora,
    vae_encode,
)
from omnistage.tests.fakes import fake_family

pytestmark = pytest.mark.e2e

PICTURE = "picture.png"
SIZE = (48, 32)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fake_family.Serving]:
    with fake_family.Serving(tmp_path_factory.mktemp("families")) as server:
        yield server


@pytest.fixture(scope="module")
def comfyui_server(
    new_comfyui: Callable[[], ComfyUI], serving: fake_family.Serving
) -> Iterator[ComfyUI]:
    server = new_comfyui()
    picture = Image.new("RGBA", SIZE, "orange")
    picture.paste((0, 0, 0, 0), (0, 0, 24, 32))  # the left half is transparent: to be drawn anew
    picture.save(server.folder / "input" / PICTURE)
    server.start({"OMNISTAGE_ADDRESS": serving.url})
    yield server
    server.end()


@pytest.fixture
def comfy(comfyui_server: ComfyUI) -> Iterator[Comfy]:
    fake_family.TASKS.clear()
    client = Comfy(comfyui_server)
    yield client
    client.drain()


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}


def drawing(model: str, **changes: dict[str, Any]) -> Graph:
    """Text to image that nobody has asked for before."""
    own = {"seed": uuid.uuid4().int % 2**63, "width": 0, "height": 0}
    changes = {
        "_2": {"prompt": uuid.uuid4().hex, **changes.get("_2", {})},
        "_3": {**own, **changes.get("_3", {})},
    }
    return graph(_1={"model": model}, **changes)


def filming(**nodes: dict[str, Any]) -> Graph:
    made = drawing("film", _2={"images": ["7", 0]}, _3={"frames": 9}) | {"7": load_image(PICTURE)}
    return made | {name.removeprefix("_"): changed for name, changed in nodes.items()}


def video_decode(**inputs: Any) -> dict[str, Any]:
    return node(
        "OmniStageVideoDecode", **{"model": ["1", 0], "latent": ["3", 0], "fps": 0.0, **inputs}
    )


def save_video() -> dict[str, Any]:
    choices = {"filename_prefix": "film", "format": "auto", "codec": "auto"}
    return node("SaveVideo", video=["4", 0], **choices)


def tasks(comfy: Comfy, made: Graph) -> dict[str, StageTask]:
    """Run a prompt; what it had the runtime do, by stage, each stage once."""
    entry = comfy.wait(comfy.queue(made))
    assert entry["status"]["status_str"] == "success", error_of(entry)
    found = {task.stage: task for task in fake_family.TASKS}
    assert len(found) == len(fake_family.TASKS), "ahead and in the nodes alike"
    return found


# --- film -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fps", "seconds"), [(0.0, 9 / 8), (12.0, 9 / 12)])
def test_a_film_has_its_pictures_its_rate_and_its_sound(comfy: Comfy, fps: float, seconds: float):
    made = filming(_4=video_decode(fps=fps), _5=save_video())
    made["6"] = node("SaveImage", images=["4", 1], filename_prefix="frames")
    entry = comfy.wait(comfy.queue(made))
    assert entry["status"]["status_str"] == "success", error_of(entry)
    (file,) = entry["outputs"]["5"]["images"]
    with av.open(comfy.server.folder / "output" / file["filename"]) as film:
        assert film.streams.video[0].average_rate == (fps or fake_family.FPS)
        assert film.streams.audio[0].rate == fake_family.RATE_HZ
        assert len(list(film.decode(video=0))) == 9
        assert film.duration / av.time_base == pytest.approx(seconds, abs=0.2)
    pictures = [comfy_picture(comfy, image) for image in entry["outputs"]["6"]["images"]]
    assert len(pictures) == 9
    assert [picture.getpixel((0, 0))[0] for picture in (pictures[0], pictures[-1])] == [0, 255]


def comfy_picture(comfy: Comfy, image: dict[str, str]) -> Image.Image:
    return Image.open(comfy.server.folder / "output" / image["filename"]).convert("RGB")


def test_the_pictures_of_a_film_are_an_image_batch(comfy: Comfy):
    assert len(comfy.run(filming())) == 9


def test_a_film_is_asked_for_once_and_as_it_was_planned(comfy: Comfy):
    found = tasks(comfy, filming(_4=video_decode(), _5=save_video()))
    assert found.keys() == {"text_encode", "sample", "vae_decode"}
    assert found["sample"].params["frames"] == 9
    assert found["vae_decode"].params["fps"] == fake_family.FPS


# --- pictures in ----------------------------------------------------------------------------------


def test_pictures_to_go_by_are_sent_with_the_prompt(comfy: Comfy):
    made = drawing("studio", _2={"images": ["7", 0], "images_2": ["8", 0]}) | {
        "7": load_image(PICTURE),
        "8": node("EmptyImage", width=16, height=24, batch_size=3, color=0),
    }
    inputs = tasks(comfy, made)["text_encode"].inputs
    shapes = {name: frame.tensors["images"].array.shape for name, frame in inputs.items()}
    assert shapes == {"images": (1, 32, 48, 3), "images_2": (3, 24, 16, 3)}


def test_what_a_mask_marks_is_drawn_anew(comfy: Comfy):
    made = drawing("studio", _3={"latent": ["8", 0]}) | {
        "7": load_image(PICTURE),
        "8": vae_encode(mask=["7", 1]),
    }
    found = tasks(comfy, made)
    mask = found["vae_encode"].inputs["mask"]
    assert mask.header == {"kind": "images"}
    values = mask.tensors["images"].array
    assert (values.shape, values.dtype) == ((1, 32, 48, 1), np.float32)
    assert (values[:, :, :24] == 1).all()
    assert (values[:, :, 24:] == 0).all()
    assert tuple(found["sample"].params[side] for side in ("width", "height")) == SIZE


def test_comfyuis_own_noise_mask_travels_with_the_latent(comfy: Comfy):
    made = drawing("studio", _3={"latent": ["11", 0], "width": 48, "height": 32}) | {
        "7": load_image(PICTURE),
        "8": vae_encode(),
        "9": node("OmniStageToLatent", latent=["8", 0]),
        "10": node("SetLatentNoiseMask", samples=["9", 0], mask=["7", 1]),
        "11": node("OmniStageFromLatent", model=["1", 0], samples=["10", 0]),
    }
    latent = tasks(comfy, made)["sample"].inputs["latent"]
    assert latent.tensors["samples"].array.shape == (1, 4, 1, 4, 6)
    mask = latent.tensors["mask"].array
    assert mask.shape == (1, 1, 32, 48)
    assert mask.mean() == 0.5


def test_a_mask_of_another_size_is_refused_by_the_node(comfy: Comfy):
    made = drawing("studio", _3={"latent": ["8", 0]}) | {
        "7": load_image(PICTURE),
        "8": vae_encode(mask=["9", 0]),
        "9": node("SolidMask", value=1.0, width=64, height=64),
    }
    entry = comfy.wait(comfy.queue(made))
    assert "mask is of 64 x 64 px, but the picture is of 48 x 32 px" in error_of(entry)


# --- adapters and guiders -------------------------------------------------------------------------


def test_adapters_and_a_guider_are_asked_for(comfy: Comfy):
    made = drawing("studio", _2={"model": ["8", 0]}, _3={"model": ["8", 0], "guider": ["9", 0]}) | {
        "7": lora(strength=0.5),
        "8": lora("7", lora="paint", strength=-1.0),
        "9": guider(kind="slg", layers="1, 2", scale=2.0, stop=0.75),
    }
    found = tasks(comfy, made)
    for stage in ("text_encode", "sample"):
        loras = found[stage].params["loras"]
        assert [(lora["name"], lora["strength"]) for lora in loras] == [
            ("ink", 0.5),
            ("paint", -1.0),
        ]
    own = found["sample"].params["guider"]
    assert (own["kind"], own["stop"]) == ("slg", 0.75)
    assert own["skip_layer_guidance_layers"] == [1, 2]
    assert own["skip_layer_guidance_scale"] == 2.0


def test_a_controlnet_gets_its_picture(comfy: Comfy):
    made = drawing("studio", _3={"conditioning": ["8", 0]}) | {
        "7": load_image(PICTURE),
        "8": control(controlnet="depth", strength=0.5, end=0.75),
    }
    sample = tasks(comfy, made)["sample"]
    own = {name: value for name, value in sample.params["control"].items() if name != "revision"}
    assert own == {"name": "depth", "strength": 0.5, "start": 0.0, "end": 0.75}
    assert sample.inputs["control"].tensors["images"].array.shape == (1, 32, 48, 3)
    assert tuple(sample.params[side] for side in ("width", "height")) == SIZE


def test_the_lists_are_the_runtimes(comfy: Comfy):
    def options(kind: str, name: str) -> list[str]:
        info = get_json(f"{comfy.server.url}/object_info/{kind}")[kind]
        return list(info["input"]["required"][name][1]["options"])

    assert options("OmniStageLoRA", "lora") == list(fake_family.LORAS)
    assert options("OmniStageControl", "controlnet") == list(fake_family.CONTROLNETS)
    kinds = options("OmniStageGuider", "kind")
    assert kinds == ["cfg", "cfg_zero_star", "apg", "slg"]


@pytest.mark.parametrize(
    ("nodes", "place", "name"),
    [
        ({"8": vae_encode(mask=["7", 1])}, "8", "mask"),
        ({"7": load_image(PICTURE), "2+": {"images": ["7", 0]}}, "2", "images"),
        ({"9": guider(), "3+": {"guider": ["9", 0]}}, "3", "guider"),
        ({"9": lora(), "3+": {"model": ["9", 0]}}, "9", "lora"),
        ({"9": control(), "3+": {"conditioning": ["9", 0]}}, "9", "controlnet"),
        ({"3+": {"frames": 9}}, "3", "frames"),
        ({"4": video_decode(), "5": save_video()}, "4", "model"),
    ],
)
def test_what_a_model_does_not_take_is_refused_at_its_input(comfy: Comfy, nodes, place, name):
    made = drawing("plain", _3={"latent": ["8", 0]}) | {"7": load_image(PICTURE), "8": vae_encode()}
    for where, what in nodes.items():
        if where.endswith("+"):
            made[where[:-1]]["inputs"] |= what
        else:
            made[where] = what
    with pytest.raises(Refused) as refusal:
        comfy.queue(made)
    (error,) = refusal.value.body["node_errors"][place]["errors"]
    assert error["extra_info"]["input_name"] == name
    assert "model 'plain'" in error["message"]
    assert fake_family.TASKS == []
