"""A model for vLLM that adds a row to each token's embedding, as talkers do; for tests."""

from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM


class Conditioned(Qwen3ForCausalLM):
    def combine(self, ids, rows):
        return self.model.embed_input_ids(ids) + rows
