"""Prompts in ComfyUI's API format, for tests."""

from __future__ import annotations

import copy
from typing import Any

import torch

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


def thinker(**inputs: Any) -> dict[str, Any]:
    """A Thinker on the language model of node "6"."""
    neutral = {"system": "", "max_tokens": 0, "temperature": -1.0, "seed": 1}
    return {
        "class_type": "OmniStageThinker",
        "inputs": {"model": ["6", 0], "prompt": "Say hello.", **neutral, **inputs},
    }


def sampling(**inputs: Any) -> dict[str, Any]:
    """A Text Sampling that leaves everything else to the model."""
    neutral = {"top_p": 0.0, "top_k": -1, "min_p": -1.0, "repetition_penalty": 0.0}
    texts = {"stop": "", "json_schema": ""}
    return {"class_type": "OmniStageTextSampling", "inputs": {**neutral, **texts, **inputs}}


def message(**inputs: Any) -> dict[str, Any]:
    """A Message of the user's."""
    return {"class_type": "OmniStageMessage", "inputs": {"role": "user", "text": "Hi.", **inputs}}


def chat(**nodes: dict[str, Any]) -> dict[str, Any]:
    """A prompt around the language model of node "6": `chat(_7=thinker())`; "9" shows node "7"."""
    return {
        "6": {"class_type": "OmniStageLoadModel", "inputs": {"model": "smollm2", "address": ""}},
        **{name.removeprefix("_"): node for name, node in nodes.items()},
        "9": {"class_type": "PreviewAny", "inputs": {"source": ["7", 0]}},
    }


def written() -> dict[str, Any]:
    """Text to image of a text that Thinker "7" writes."""
    return graph(_2={"prompt": ["7", 0]}) | chat(_7=thinker())


def talker(**inputs: Any) -> dict[str, Any]:
    """A Talker that says what Thinker "7" writes."""
    neutral = {"voice": "default", "max_seconds": 0.0, "seed": 1}
    own = {"model": ["6", 0], "hidden": ["7", 1]}
    return {"class_type": "OmniStageTalker", "inputs": {**own, **neutral, **inputs}}


def codec_decode(**inputs: Any) -> dict[str, Any]:
    """A Codec Decode of what Talker "8" says."""
    neutral = {"steps": 0, "guidance": -1.0, "play": False, "seed": 1}
    own = {"model": ["6", 0], "codes": ["8", 0]}
    return {"class_type": "OmniStageCodecDecode", "inputs": {**own, **neutral, **inputs}}


def speak(**inputs: Any) -> dict[str, Any]:
    """A Speak on the language model of node "6"."""
    neutral = {"text": "Say hello.", "voice": "default", "play": False, "seed": 1}
    return {"class_type": "OmniStageSpeak", "inputs": {"model": ["6", 0], **neutral, **inputs}}


def speech(**nodes: dict[str, Any]) -> dict[str, Any]:
    """A prompt that shows the text of node "7" and saves the sound of node "12"."""
    save = {"class_type": "SaveAudio", "inputs": {"audio": ["12", 0], "filename_prefix": "x"}}
    return chat(**nodes) | {"13": save}


def silence() -> dict[str, Any]:
    """A short AUDIO."""
    return {"waveform": torch.zeros(1, 1, 4), "sample_rate": 16000}


def lora(model: str = "1", **inputs: Any) -> dict[str, Any]:
    """A LoRA on the model of another node."""
    neutral = {"lora": "ink", "strength": 1.0}
    return {"class_type": "OmniStageLoRA", "inputs": {"model": [model, 0], **neutral, **inputs}}


def guider(**inputs: Any) -> dict[str, Any]:
    """A Guider that leaves everything else to its kind."""
    shares = dict.fromkeys(("start", "stop", "guidance_rescale", "scale_start", "scale_stop"), -1.0)
    numbers = dict.fromkeys(("scale", "norm_limit", "eta", "alpha"), -1.0)
    steps = {"start_step": -1, "zero_init_steps": -1}
    others = {"use_original_formulation": False, "layers": "", "momentum": -2.0}
    neutral = {"kind": "cfg", **shares, **numbers, **steps, **others}
    return {"class_type": "OmniStageGuider", "inputs": {**neutral, **inputs}}


def control(conditioning: str = "2", **inputs: Any) -> dict[str, Any]:
    """A Control by the picture of node "7", on the model of node "1"."""
    own = {"model": ["1", 0], "conditioning": [conditioning, 0], "image": ["7", 0]}
    neutral = {"controlnet": "lines", "strength": 1.0, "start": 0.0, "end": 1.0}
    return {"class_type": "OmniStageControl", "inputs": {**own, **neutral, **inputs}}


def load_image(name: str = "cat.png") -> dict[str, Any]:
    """A picture and its mask from a file."""
    return {"class_type": "LoadImage", "inputs": {"image": name}}


def vae_encode(image: str = "7", **inputs: Any) -> dict[str, Any]:
    """A VAE Encode of the picture of another node, on the model of node "1"."""
    own = {"model": ["1", 0], "image": [image, 0]}
    return {"class_type": "OmniStageVAEEncode", "inputs": {**own, **inputs}}


def film(**inputs: Any) -> dict[str, Any]:
    """Text to film by the model `film`: text to image with another end."""
    return graph(_1={"model": "film"}, _3={"frames": 5}) | {
        "4": {
            "class_type": "OmniStageVideoDecode",
            "inputs": {"model": ["1", 0], "latent": ["3", 0], "fps": 0.0, **inputs},
        },
        "5": {"class_type": "SaveVideo", "inputs": {"video": ["4", 0], "filename_prefix": "x"}},
    }
