"""ComfyUI's `/free` and the runtime's memory."""

from __future__ import annotations

import pytest

from omnistage.runtime.bench.comfyui import Comfy
from omnistage.runtime.bench.servers import Runtime, wait_until

from .comfy import fresh

pytestmark = pytest.mark.e2e


def test_free_unloads_the_runtime_and_hurts_no_running_prompt(comfy: Comfy, runtime: Runtime):
    running = comfy.queue(fresh(steps=20))
    wait_until(lambda: runtime.live_jobs > 0, "the runtime works")
    comfy.post("/free", {"unload_models": True, "free_memory": True})
    assert comfy.finished(running)
    wait_until(lambda: not runtime.stats["engines"], "all engines are unloaded")
    assert len(comfy.run(fresh())) == 1, "it comes back for the next prompt"
    assert runtime.stats["engines"]["diffusion"]["core"]["resident_bytes"] > 0
