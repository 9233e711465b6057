"""Autoregressive stages on vLLM: paged KV, continuous batching, prefix caching, preemption.

- `engine`       tasks to sequences, sequences to results: an `EngineCore`
- `jobs`         what is kept of a task while vLLM has its sequences
- `build`        vLLM's engine for one stage of a model
- `seams`        every place where we touch vLLM's inside, and the check that it is still there
- `worker`       seam 1: the runner keeps hidden states, and feeds rows to conditioned models
- `scheduler`    seam 2: a conditioned request runs exactly as far as its rows have come
- `rows`         seam 3: hidden states and conditioning rows, keyed by position
- `out_of_tree`  seam 4: models of ours that vLLM does not know
- `tap`, `talker_qwen25`, `talker_qwen3`, `code_predictor`  those models
"""
