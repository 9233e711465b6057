"""The shipped workflows of what only some families do: films, pictures to go by, adapters, text.

The models that they name are to be had elsewhere; tiny ones of random weights stand for them.
`UPDATE_THUMBNAILS=1 pytest tests/e2e/test_family_workflows.py` makes their thumbnails anew.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import av
import pytest
from PIL import Image

from omnistage.runtime.bench.comfyui import Comfy, Graph, with_inputs, workflow
from omnistage.runtime.bench.servers import ComfyUI, Runtime
from omnistage.tests.fakes import workflow_models
from omnistage.tests.fakes.tiny_text import WORDS
from omnistage.tests.fakes.workflow_models import SMALL

from .comfy import LEASE_S, levels_apart
from .thumbnails import card, keep

pytestmark = pytest.mark.e2e

SIZE = (96, 64)
FRAMES = 9
FPS = 16
FILMS = ("text_to_video", "image_to_video")
PICTURES = {"reference_edit": 1, "lora": 2, "control": 1}
TEXT = "text_diffusion"
THUMBNAILS = {
    "text_to_video": ["Text to film", "for Wan, LTX-2 and other models of film"],
    "image_to_video": ["Picture to film", "for Wan's models of picture to film, and others"],
    "reference_edit": ["Pictures combined", "for Flux.2, Klein, Qwen-Image-Edit and others"],
    "lora": ["With LoRAs, and without", "for Qwen-Image, Flux, SDXL, Wan and others"],
    "control": ["Kept to a picture", "for ControlNets of Qwen-Image and SDXL"],
    "text_diffusion": ["Text by diffusion", "for LLaDA 2 and DiffusionGemma"],
}
"""In words: what random weights draw shows nobody what these are for."""

OTHER = "other.png"
ROUNDING = 1
"""By how many levels of 256 equal pictures may differ."""
VISIBLE = 3
"""By how many others do at least."""


@pytest.fixture(scope="module")
def runtime_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime with a model for each name in these workflows."""
    models = workflow_models.settings(tmp_path_factory.mktemp("models"))
    server = Runtime(tmp_path_factory.mktemp("runtime"), f"leases.ttl_s={LEASE_S}", *models)
    server.start()
    yield server
    server.end()


@pytest.fixture(scope="module")
def comfyui_server(
    new_comfyui: Callable[[], ComfyUI], runtime_server: Runtime
) -> Iterator[ComfyUI]:
    server = new_comfyui()
    workflow_models.save_picture(server.folder / "input")
    workflow_models.save_picture(server.folder / "input", OTHER, "black", "white")
    server.start({"OMNISTAGE_ADDRESS": runtime_server.url})
    yield server
    server.end()


def small(name: str, **sample: Any) -> Graph:
    """A shipped workflow that asks for little.

    Each test has seeds of its own: ComfyUI would not save again what it has just saved.
    """
    graph = with_inputs(workflow(name), "OmniStageSample", **{**SMALL[name], **sample})
    return with_inputs(graph, "ImageScale", width=SIZE[0], height=SIZE[1])


def changed(graph: Graph, node: str, **inputs: Any) -> Graph:
    """A copy of a graph in which one node has these inputs."""
    made = copy.deepcopy(graph)
    made[node]["inputs"] |= inputs
    return made


def film(comfy: Comfy, graph: Graph) -> tuple[list[Image.Image], Fraction]:
    """Run a workflow that saves one film; its frames, and how many it has a second."""
    entry = comfy.finished(comfy.queue(graph))
    ((file,),) = (output["images"] for output in entry["outputs"].values())
    path = comfy.server.folder / "output" / file["subfolder"] / file["filename"]
    with av.open(path) as container:
        rate = container.streams.video[0].average_rate
        return [frame.to_image() for frame in container.decode(video=0)], rate


def test_every_workflow_of_other_models_is_run():
    assert SMALL.keys() == {*FILMS, *PICTURES, TEXT}


@pytest.mark.parametrize("name", FILMS)
def test_a_shipped_workflow_saves_a_film_as_it_was_asked_for(comfy: Comfy, name: str):
    frames, rate = film(comfy, small(name))
    keep(name, card(THUMBNAILS[name]))
    assert [frame.size for frame in frames] == [SIZE] * FRAMES
    assert rate == FPS
    assert levels_apart(frames[0], frames[-1]) > VISIBLE, "nothing moves"


@pytest.mark.parametrize("name", PICTURES)
def test_a_shipped_workflow_gives_pictures_of_the_size_asked_for(comfy: Comfy, name: str):
    pictures = comfy.run(small(name))
    keep(name, card(THUMBNAILS[name]))
    assert [picture.size for picture in pictures] == [SIZE] * PICTURES[name]


def test_a_film_begins_with_the_picture(comfy: Comfy):
    graph = small("image_to_video", seed=11)
    frames, _ = film(comfy, graph)
    others, _ = film(comfy, changed(graph, "2", image=OTHER))
    assert levels_apart(frames[0], others[0]) > VISIBLE


@pytest.mark.parametrize("node", ["2", "3"])
def test_each_reference_picture_counts(comfy: Comfy, node: str):
    graph = small("reference_edit", seed=20 + int(node))
    (picture,), (other,) = comfy.run_all([graph, changed(graph, node, image=OTHER)])
    assert levels_apart(picture, other) > ROUNDING


def test_the_size_is_that_of_the_first_picture(comfy: Comfy):
    (picture,) = comfy.run(small("reference_edit", seed=31, width=0, height=0))
    assert picture.size == SIZE


def test_adapters_change_the_picture_as_strongly_as_they_are_asked_to(comfy: Comfy):
    graph = small("lora", seed=41)
    strengths = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    graphs = [
        changed(changed(graph, "2", strength=style), "3", strength=subject)
        for style, subject in strengths
    ]
    (with_none, plain), *others = comfy.run_all(graphs)
    style, subject, both = (adapted for adapted, *_ in others)  # the plain one is there already
    assert levels_apart(with_none, plain) <= ROUNDING
    for one, other in ((style, plain), (subject, plain), (style, subject), (both, style)):
        assert levels_apart(one, other) > VISIBLE


def test_a_controlnet_keeps_to_its_picture_as_closely_as_it_is_asked_to(comfy: Comfy):
    graph = small("control", seed=71)
    graphs = [
        changed(graph, "5", strength=0.0),
        graph,
        changed(graph, "2", image=OTHER),
        changed(graph, "5", strength=0.5),
    ]
    plain, kept, other, loosely = (picture for (picture,) in comfy.run_all(graphs))
    for one, another in ((kept, plain), (kept, other), (kept, loosely), (loosely, plain)):
        assert levels_apart(one, another) > ROUNDING


def test_a_shipped_workflow_shows_what_was_denoised(comfy: Comfy):
    def shown(**asked: Any) -> str:
        graph = with_inputs(workflow(TEXT), "OmniStageThinker", **asked)
        (text,) = comfy.texts(comfy.finished(comfy.queue(graph)))
        return str(text)

    text, other = shown(seed=51, temperature=1.0), shown(seed=52, temperature=1.0)
    keep(TEXT, card(THUMBNAILS[TEXT]))
    assert {*text.split()} <= {*WORDS}
    assert text
    assert text != other


def test_a_thinker_that_denoises_needs_no_settings(comfy: Comfy):
    graph = with_inputs(workflow(TEXT), "OmniStageThinker", max_tokens=16, temperature=-1.0)
    said = [
        comfy.texts(comfy.finished(comfy.queue(changed(graph, "2", seed=seed))))
        for seed in (61, 62)
    ]
    assert said[0] == said[1], "by default each word is the likeliest"
