"""The shipped workflows: the page's form and the API's form say the same.

A saved workflow keeps widget values by position, so this also guards the order of inputs that
`tests/e2e/nodes.snapshot.json` freezes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "workflows"
NAMES = sorted(path.stem for path in WORKFLOWS.glob("*.json"))
SNAPSHOT = json.loads((ROOT / "tests" / "e2e" / "nodes.snapshot.json").read_text())
NOTE = "MarkdownNote"  # the page's own
WIDGETS = {"BOOLEAN", "COMBO", "FLOAT", "INT", "STRING"}
CORE_NODES = {
    "SaveImage": {"required": [["images", "IMAGE"], ["filename_prefix", "STRING"]]},
    "SaveAudio": {"required": [["audio", "AUDIO"], ["filename_prefix", "STRING"]]},
    "LoadAudio": {"required": [["audio", "COMBO"]]},
    "PreviewAny": {"required": [["source", "*"]]},
    "LoadImage": {"required": [["image", "COMBO"]]},
    "ImageScale": {
        "required": [
            ["image", "IMAGE"],
            ["upscale_method", "COMBO"],
            ["width", "INT"],
            ["height", "INT"],
            ["crop", "COMBO"],
        ]
    },
    "SaveVideo": {
        "required": [
            ["video", "VIDEO"],
            ["filename_prefix", "STRING"],
            ["format", "COMBO"],
            ["codec", "COMBO"],
        ]
    },
    "SolidMask": {"required": [["value", "FLOAT"], ["width", "INT"], ["height", "INT"]]},
    "MaskComposite": {
        "required": [
            ["destination", "MASK"],
            ["source", "MASK"],
            ["x", "INT"],
            ["y", "INT"],
            ["operation", "COMBO"],
        ]
    },
}


def load(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def inputs_of(kind: str) -> list[list[Any]]:
    """A node's inputs in the page's order: required, then optional."""
    groups = CORE_NODES[kind] if kind in CORE_NODES else SNAPSHOT[kind]["inputs"]
    return [*groups.get("required", []), *groups.get("optional", [])]


def widgets_of(kind: str) -> list[str]:
    """Names of a node's widgets, in the order in which their values are saved."""
    names: list[str] = []
    for name, type_, *_ in inputs_of(kind):
        if type_ in WIDGETS:
            names.append(name)
        if name == "seed":
            names.append("control_after_generate")
    return names


def widget_values(node: dict[str, Any]) -> dict[str, Any]:
    """A node's saved values by name; inputs that it got later have none yet."""
    names, values = widgets_of(node["type"]), node["widgets_values"]
    assert len(values) <= len(names)
    optional = {
        name for name, *_ in SNAPSHOT.get(node["type"], {}).get("inputs", {}).get("optional", [])
    }
    assert optional.issuperset(names[len(values) :]), "a saved workflow lost a value"
    return {
        name: value
        for name, value in zip(names, values, strict=False)
        if name != "control_after_generate"
    }


def as_api(ui: dict[str, Any]) -> dict[str, Any]:
    """A workflow as the page would send it."""
    links = {link[0]: [str(link[1]), link[2]] for link in ui["links"]}
    graph = {}
    for node in (node for node in ui["nodes"] if node["type"] != NOTE):
        values = widget_values(node)
        linked = {i["name"]: links[i["link"]] for i in node["inputs"] if i["link"] is not None}
        graph[str(node["id"])] = {"class_type": node["type"], "inputs": {**values, **linked}}
    return graph


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_agree(name: str):
    api = load(WORKFLOWS / "api" / f"{name}.json")
    titles = [node.pop("_meta")["title"] for node in api.values()]
    assert as_api(load(WORKFLOWS / f"{name}.json")) == api
    assert all(titles)  # public clients address nodes by title


@pytest.mark.parametrize("name", NAMES)
def test_links_fit_the_sockets(name: str):
    ui = load(WORKFLOWS / f"{name}.json")
    nodes = {node["id"]: node for node in ui["nodes"]}
    for _, source, slot, target, index, type_ in ui["links"]:
        assert nodes[source]["outputs"][slot]["type"] == type_
        types = {input_[0]: input_[1] for input_ in inputs_of(nodes[target]["type"])}
        assert types[nodes[target]["inputs"][index]["name"]] in (type_, "*")


@pytest.mark.parametrize("name", NAMES)
def test_every_workflow_has_a_thumbnail(name: str):
    with Image.open(WORKFLOWS / f"{name}.jpg") as picture:
        assert picture.format == "JPEG"
        assert max(picture.size) <= 512


def test_every_api_workflow_has_a_page_form():
    assert sorted(path.stem for path in (WORKFLOWS / "api").glob("*.json")) == NAMES
