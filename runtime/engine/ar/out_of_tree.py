"""Seam 4: models by the name vLLM finds them under; ours among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MODELS: Final = {
    "Qwen3ForCausalLM+tap": f"{__package__}.tap:TapQwen3",
    "LlamaForCausalLM+tap": f"{__package__}.tap:TapLlama",
    "MistralForCausalLM+tap": f"{__package__}.tap:TapMistral",
    "Qwen2_5OmniTalker": f"{__package__}.talker_qwen25:Qwen25OmniTalker",
    "Qwen3OmniMoeTalker": f"{__package__}.talker_qwen3:Qwen3OmniTalker",
}
"""Architectures that vLLM does not know, to `module:class`."""


def register_models(architectures: Iterable[str]) -> None:
    """Make the architectures of a checkpoint known to vLLM, each as a class.

    vLLM would look at a class in a process of its own first, which costs seconds and lacks what
    this process has prepared (`make_torchvision_importable`). This process serves no other model,
    so there is nothing to be kept apart from.
    """
    from vllm import ModelRegistry

    for architecture in architectures:
        if architecture in MODELS:
            ModelRegistry.register_model(architecture, MODELS[architecture])
        known = ModelRegistry.models.get(architecture)
        if known is not None:
            ModelRegistry.register_model(architecture, known.load_model_cls())
