"""Qwen2.5-Omni's Talker for vLLM.

Its layers are Llama's with a bias where queries, keys and values are made. It is conditioned: see
`models/talker_qwen25` for the rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper


class Qwen25OmniTalker(LlamaForCausalLM):
    """Codes and rows in, logits of the next code out."""

    _checkpoint_names = WeightsMapper(
        orig_to_new_prefix={
            "thinker.": None,
            "token2wav.": None,
            "talker.codec_head.": "lm_head.",
            "talker.": "",
        }
    )

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        config = vllm_config.model_config.hf_config
        config.qkv_bias = True  # Llama's layers ask for it
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.model.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.embedding_size)
        self.thinker_to_talker_proj = nn.Linear(config.embedding_size, config.hidden_size)
        self._never = config.tts_codec_start_token_id

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Codes `[n]` to inputs of the first layer, where they have no row."""
        return self.thinker_to_talker_proj(self.model.embed_tokens(input_ids))

    def combine(self, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Codes `[n]` and rows `[n, width + 1]` to inputs of the first layer."""
        embeddings = self.model.embed_tokens(ids)
        rows = rows.to(embeddings)
        return self.thinker_to_talker_proj(rows[:, :-1] + embeddings * rows[:, -1:])

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Logits; the code that begins speech is never said."""
        logits = super().compute_logits(hidden_states)
        if logits is not None:
            logits[:, self._never] = float("-inf")
        return logits

    def load_weights(self, weights: Any) -> set[str]:
        """Take the Talker's part of an omni checkpoint."""
        return AutoWeightsLoader(self).load_weights(weights, mapper=self._checkpoint_names)
