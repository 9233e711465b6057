"""Autoregressive stages on vLLM: paged KV, continuous batching, prefix caching, preemption."""
