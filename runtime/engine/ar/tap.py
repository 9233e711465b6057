"""Text encoders that return chosen layers: Z-Image's `hidden_states[-2]`, FLUX.2's several.

Each is a model that vLLM knows, whose pooled output is the concatenation of those layers,
`[tokens, layers * width]`. The layers come with the config, as `hf_overrides` put them there.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.model_executor.models.mistral import MistralForCausalLM
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM


class _Tap:
    """Mixed over a causal model; `config.tap_layers` counts as `hidden_states` does."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        config = vllm_config.model_config.hf_config
        count = config.num_hidden_layers
        self._tapped = [layer % (count + 1) for layer in config.tap_layers]
        inner = tuple(sorted({layer for layer in self._tapped if layer < count}))
        self.model._set_aux_hidden_state_layers(inner)  # type: ignore[attr-defined]
        self._inner, self._last = inner, count

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The tapped layers side by side."""
        result = super().forward(*args, **kwargs)  # type: ignore[misc]
        hidden, inner = result if self._inner else (result, ())
        found = {**dict(zip(self._inner, inner, strict=True)), self._last: hidden}
        return torch.cat([found[layer] for layer in self._tapped], dim=-1)


class TapQwen3(_Tap, Qwen3ForCausalLM):
    """Z-Image, FLUX.2 Klein."""


class TapLlama(_Tap, LlamaForCausalLM):
    """Encoders of Llama's class."""


class TapMistral(_Tap, MistralForCausalLM):
    """FLUX.2."""
