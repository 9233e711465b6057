"""Real vLLM engines in this process, on tiny random checkpoints.

vLLM binds threads and NUMA memory and reseeds torch when an engine is made, and one engine must
not be shut down while others live: engines are made once and kept.
"""

import json

import pytest

from omnistage.runtime.engine.ar.settings import ARSettings
from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.torchvision_ops import make_torchvision_importable
from omnistage.tests.fakes import tiny_models

make_torchvision_importable()

SPEAKING = (tiny_models.qwen25_omni_speaking, tiny_models.qwen3_omni_speaking)


_KEPT = []


def kept(core):
    """A core that lives as long as the process."""
    _KEPT.append(core)
    return core


class Engine:
    """An AR engine, and what its tasks came to."""

    def __init__(self, entry, stage, **settings):
        from omnistage.runtime.engine.ar.build import build_core

        self.entry, self.stage = entry, entry.graph[stage]
        self.core = kept(build_core(ARSettings(kv_cache_mb=32, **settings), entry, stage))
        self.events = []

    def task(self, name, inputs=None, priority=0, followed=(), **params):
        checked = self.stage.check_params(params)
        return StageTask(
            name,
            self.entry.id,
            self.stage.name,
            checked,
            inputs or {},
            priority=priority,
            followed=followed,
        )

    def submit(self, name, *args, **kwargs):
        self.core.submit(self.task(name, *args, **kwargs))

    def step(self):
        events = self.core.step()
        self.events += events
        return events

    def run(self):
        """Steps to the end; the final event of each task by name."""
        while self.core.busy:
            self.step()
        self.core.check_integrity()
        events, self.events = self.events, []
        self.all_events = events
        return {e.task: e for e in events if e.kind in ("done", "failed", "cancelled")}

    def alone(self, name, *args, **kwargs):
        """The final event of one task that runs alone."""
        self.submit(name, *args, **kwargs)
        return self.run()[name]


def text_of(event):
    assert event.kind == "done", event.error
    return event.outputs["text"].header["text"]


def tokens_of(event):
    """Prompt and generated token ids."""
    ids = event.outputs["hidden"].tensors["token_ids"].array.tolist()
    count = event.outputs["text"].header["prompt_tokens"]
    return ids[:count], ids[count:]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Makes each tiny checkpoint once: (folder, transformers' model)."""
    made = {}

    def get(make, hidden_layers=(0, -1)):
        if make.__name__ not in made:
            folder = tmp_path_factory.mktemp(make.__name__)
            model = make(folder)
            if make not in SPEAKING:  # those keep what their Talkers need
                (folder / "omnistage.json").write_text(json.dumps({"hidden_layers": hidden_layers}))
            made[make.__name__] = (folder, model)
        return made[make.__name__]

    return get


@pytest.fixture(scope="session")
def engine(checkpoints):
    """Makes each engine once, by checkpoint and vLLM's options."""
    made = {}
    first = True

    def get(make, stage="thinker", **vllm):
        nonlocal first
        if first:
            # vLLM makes the process's group of experts with its first engine or never.
            first = False
            get(tiny_models.qwen3_omni)
        key = (make.__name__, stage, json.dumps(vllm, sort_keys=True))
        if key not in made:
            folder, _ = checkpoints(make)
            options = {"max_model_len": 512, "max_num_seqs": 8, **vllm}
            made[key] = Engine(ModelEntry("tiny", str(folder), vllm=options), stage)
        return made[key]

    return get
