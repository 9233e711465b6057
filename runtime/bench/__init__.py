"""Benchmarks: ratios measured in one run, next to how far the results differ.

Each bench prints a table and writes `.bench/<name>.json`.

- `report`      the table and the JSON
- `pictures`    requests for pictures, run through the engine or by diffusers' own pipeline
- `engine`      16 requests: the engine against diffusers, one by one and as one batch
- `families`    every family: eight requests together, in each mode, against one by one
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
from pathlib import Path

BENCHES = ("ar", "engine", "families", "memory", "mixed", "policy", "queue", "residency", "speech")


def run(name: str, *, checkpoints: Path | None = None) -> None:
    """Run one benchmark by name.

    Args:
        name: one of `BENCHES`.
        checkpoints: a folder of checkpoints in diffusers layout, for `families`.

    Raises:
        ValueError: there is no such benchmark, or it has no such option.
    """
    if name not in BENCHES:
        raise ValueError(f"no benchmark {name!r}; there are {', '.join(BENCHES)}")
    if checkpoints is not None and name != "families":
        raise ValueError(f"benchmark {name!r} has a model of its own")
    options = {} if checkpoints is None else {"checkpoints": checkpoints}
    import_module(f".{name}", __name__).run(**options)
