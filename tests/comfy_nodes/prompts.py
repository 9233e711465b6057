"""Prompts in ComfyUI's API format, for tests."""

from __future__ import annotations

import copy
from typing import Any

from omnistage.comfy_nodes.planner import QueuedPrompt

TEXT_TO_IMAGE: dict[str, Any] = {
    "1": {"class_type": "OmniStageLoadModel", "inputs": {"model": "demo", "address": ""}},
    "2": {
        "class_type": "OmniStageTextEncode",
        "inputs": {"model": ["1", 0], "prompt": "a red circle", "negative_prompt": ""},
    },
    "3": {
        "class_type": "OmniStageSample",
        "inputs": {
            "model": ["1", 0],
            "conditioning": ["2", 0],
            "width": 64,
            "height": 64,
            "count": 1,
            "steps": 4,
            "guidance": -1.0,
            "scheduler": "default",
            "denoise": 1.0,
            "seed": 1,
        },
    },
    "4": {
        "class_type": "OmniStageVAEDecode",
        "inputs": {"model": ["1", 0], "latent": ["3", 0]},
    },
    "5": {"class_type": "SaveImage", "inputs": {"images": ["4", 0], "filename_prefix": "x"}},
}


def graph(**changes: dict[str, Any]) -> dict[str, Any]:
    """Text to image, with some nodes' inputs changed: `graph(_3={"seed": 2})`."""
    made = copy.deepcopy(TEXT_TO_IMAGE)
    for node, inputs in changes.items():
        made[node.removeprefix("_")]["inputs"] |= inputs
    return made


def queued(made: dict[str, Any], *targets: str, prompt_id: str = "p") -> QueuedPrompt:
    """A graph as it stands in the queue."""
    return QueuedPrompt(prompt_id, made, targets or ("5",))
