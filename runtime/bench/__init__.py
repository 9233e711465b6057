"""Benchmarks: ratios measured in one run, next to how far the results differ.

Each bench prints a table and writes `.bench/<name>.json`.

- `report`      the table and the JSON
- `pictures`    requests for pictures, run through the engine or by diffusers' own pipeline
- `engine`      16 requests: the engine against diffusers, one by one and as one batch
- `mixed`       mixed sizes: packed, grouped and one by one
- `policy`      short jobs behind long ones, under each policy
- `queue`       a ComfyUI queue, with and without queue-ahead, and against a plain node
- `ar`          chats and text encodes: against vLLM by itself, and one by one
- `residency`   cold, loaded and unloaded: how soon a stage answers, and its memory
- `memory`      three models under a budget that holds two
- `speech`      the first sound of a long speech, and eight speeches at once
- `chats`       questions, answered through a real runtime or by transformers
- `speeches`    texts, said by a real runtime
- `encodes`     prompts, encoded by a core or by diffusers' own pipeline
- `raw_vllm`    vLLM by itself, in a process of its own
- `tiny`        tiny models with random weights
- `servers`     real servers as child processes
- `processes`   child processes and their memory
- `demo`        the example workflows through a real ComfyUI, pictures on disk
"""

from __future__ import annotations

from importlib import import_module

BENCHES = ("ar", "engine", "memory", "mixed", "policy", "queue", "residency", "speech")


def run(name: str) -> None:
    """Run one benchmark by name.

    Raises:
        ValueError: there is no such benchmark.
    """
    if name not in BENCHES:
        raise ValueError(f"no benchmark {name!r}; there are {', '.join(BENCHES)}")
    import_module(f".{name}", __name__).run()
