"""The interface that saved workflows freeze, as a real ComfyUI reports it.

`nodes.snapshot.json` holds ids, inputs in their order with their types, and outputs. It may only
ever grow at the end of a list: a workflow keeps the values of widgets by position. After an
addition, `UPDATE_SNAPSHOT=1 pytest tests/e2e/test_interface.py` writes it anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from omnistage.runtime.bench.comfyui import WORKFLOWS, Comfy
from omnistage.runtime.bench.servers import get_json

pytestmark = pytest.mark.e2e

SNAPSHOT = Path(__file__).with_name("nodes.snapshot.json")


def interface_of(info: dict[str, Any]) -> dict[str, Any]:
    """The part of a node's description that saved workflows depend on."""
    inputs = {
        group: [[name, kind, *_fixed(options)] for name, (kind, options) in members.items()]
        for group, members in info["input"].items()
        if group != "hidden" and members
    }
    outputs = [list(pair) for pair in zip(info["output_name"], info["output"], strict=True)]
    return {"shown_as": info["display_name"], "inputs": inputs, "outputs": outputs}


def options_of(info: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of all inputs a user can see, by name."""
    groups = (info["input"].get(group, {}) for group in ("required", "optional"))
    return {name: options for members in groups for name, (_, options) in members.items()}


def _fixed(options: dict[str, Any]) -> list[Any]:
    """A widget's default and range; a list's choices come from the runtime."""
    kept = {k: options[k] for k in ("default", "min", "max", "step") if k in options}
    return [kept] if kept else []


def test_the_interface_is_the_frozen_one(comfy: Comfy):
    nodes = get_json(comfy.server.url + "/object_info")
    ours = {k: interface_of(info) for k, info in nodes.items() if k.startswith("OmniStage")}
    if os.environ.get("UPDATE_SNAPSHOT"):
        SNAPSHOT.write_text(json.dumps(ours, indent=1) + "\n")
    assert ours == json.loads(SNAPSHOT.read_text())


def test_seed_is_the_last_widget_and_changes_after_each_run(comfy: Comfy):
    info = get_json(comfy.server.url + "/object_info/OmniStageSample")["OmniStageSample"]
    name, (kind, options) = list(info["input"]["required"].items())[-1]
    assert (name, kind) == ("seed", "INT")
    assert options["control_after_generate"] is True
    assert (options["min"], options["max"]) == (0, 2**64 - 1)


def test_every_input_has_a_tooltip_and_every_node_a_page(comfy: Comfy):
    nodes = get_json(comfy.server.url + "/object_info")
    for name, info in nodes.items():
        if not name.startswith("OmniStage"):
            continue
        for field, options in options_of(info).items():
            assert options["tooltip"], f"{name}.{field}"
        assert info["category"].startswith("OmniStage/")
        assert info["description"]
        assert comfy.text(f"/extensions/omnistage/docs/{name}.md").startswith("# ")


def test_texts_are_served_in_both_languages_and_english_is_the_nodes_own(comfy: Comfy):
    texts = get_json(comfy.server.url + "/i18n")
    nodes = get_json(comfy.server.url + "/object_info")
    for name, info in nodes.items():
        if not name.startswith("OmniStage"):
            continue
        english, chinese = texts["en"]["nodeDefs"][name], texts["zh"]["nodeDefs"][name]
        tooltips = {field: options["tooltip"] for field, options in options_of(info).items()}
        assert english["display_name"] == info["display_name"]
        assert english["description"] == info["description"]
        assert {k: v["tooltip"] for k, v in english.get("inputs", {}).items()} == tooltips
        assert chinese.get("inputs", {}).keys() == tooltips.keys()
    assert texts["zh"]["settings"].keys() == texts["en"]["settings"].keys()


def test_the_list_of_models_is_the_runtimes(comfy: Comfy):
    info = get_json(comfy.server.url + "/object_info/OmniStageLoadModel")
    _, options = info["OmniStageLoadModel"]["input"]["required"]["model"]
    assert options["options"] == ["demo", "voice", "smollm2"]


def test_the_templates_are_listed(comfy: Comfy):
    listed = get_json(comfy.server.url + "/workflow_templates")["omnistage"]
    assert sorted(listed) == sorted(path.stem for path in WORKFLOWS.glob("*.json"))
    assert len(listed) >= 6
