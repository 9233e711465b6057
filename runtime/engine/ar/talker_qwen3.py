"""Qwen3-Omni's Talker for vLLM, with transformers' code predictor beside it.

It is conditioned: see `models/talker_qwen3` for the rows.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration as CodePredictor,
)
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeTalkerResizeMLP as Projection,
)
from vllm.model_executor.models.interfaces import SupportsMRoPE
from vllm.model_executor.models.qwen3_moe import Qwen3MoeForCausalLM
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper

_SPECIAL_CODES = 1024
"""The end of the vocabulary; of these only the end of speech is ever said."""


class Qwen3OmniTalker(Qwen3MoeForCausalLM, SupportsMRoPE):
    """Codes and rows in, logits of the next frame's first code out."""

    _checkpoint_names = WeightsMapper(
        orig_to_new_prefix={
            "thinker.": None,
            "code2wav.": None,
            "talker.codec_head.": "lm_head.",
            "talker.model.codec_embedding.": "model.embed_tokens.",
            "talker.": "",
        }
    )

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        config = vllm_config.model_config.hf_config
        self.text_projection = Projection(config)
        self.hidden_projection = Projection(config)
        self.code_predictor = CodePredictor._from_config(config.code_predictor_config)
        size = config.text_config.vocab_size
        never = torch.zeros(size, dtype=torch.bool)
        never[max(size - _SPECIAL_CODES, 0) :] = True
        never[config.codec_eos_token_id] = False
        self.register_buffer("_never", never, persistent=False)
        self._never: torch.Tensor

    def embed_codes(self, ids: torch.Tensor) -> torch.Tensor:
        """Embeddings `[n, width]` of first codes."""
        return self.model.embed_tokens(ids)

    def combine(self, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Codes `[n]` and rows `[n, width + 2]` to inputs of the first layer."""
        codes = self.model.embed_tokens(ids)
        rows = rows.to(codes)
        heard, is_state, adds_code = rows[:, :-2], rows[:, -2:-1], rows[:, -1:]
        states, words = self.hidden_projection(heard), self.text_projection(heard)
        return torch.where(is_state > 0, states, words) + codes * adds_code

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Logits; of the special codes only the end is ever said."""
        logits = super().compute_logits(hidden_states)
        return None if logits is None else logits.masked_fill(self._never, float("-inf"))

    def get_mrope_input_positions(
        self,
        input_tokens: list[int],
        mm_features: list[Any],
    ) -> tuple[torch.Tensor, int]:
        """Positions that count, where a request brings none of its own."""
        return torch.arange(len(input_tokens)).expand(3, -1).clone(), 0

    def load_weights(self, weights: Any) -> set[str]:
        """Take the Talker's part of an omni checkpoint."""
        return AutoWeightsLoader(self).load_weights(weights, mapper=self._checkpoint_names)
