"""Servers that die at any moment: errors are clear, and the next prompt works."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnistage.runtime.bench.comfyui import Comfy, Refused, error_of
from omnistage.runtime.bench.servers import ComfyUI, Runtime, wait_until

from .comfy import LEASE_S, fresh, long, small

pytestmark = pytest.mark.e2e


def denoising(runtime: Runtime) -> None:
    before = sum(runtime.stats["batches"].values())
    wait_until(lambda: sum(runtime.stats["batches"].values()) > before + 1, "it denoises")


def test_a_runtime_that_is_down_is_named_with_its_address(comfy: Comfy, runtime: Runtime):
    runtime.end()
    try:
        with pytest.raises(Refused) as refusal:
            wait_until(lambda: comfy.queue(fresh()) and None, "it is refused", 5.0)
        assert runtime.url in refusal.value.details
        assert "omnistage serve" in refusal.value.details
    finally:
        runtime.start()
    assert len(comfy.run(fresh())) == 1


def test_a_runtime_killed_mid_run_fails_the_node_and_the_next_prompt_works(
    comfy: Comfy, runtime: Runtime
):
    prompt = comfy.queue(long())
    denoising(runtime)
    runtime.kill()
    try:
        message = error_of(comfy.wait(prompt))
        assert message.startswith("DiT Sample: ")
        assert runtime.url in message
    finally:
        runtime.start()
    assert len(comfy.run(fresh())) == 1


def test_handles_that_comfyui_cached_outlive_a_restart(comfy: Comfy, runtime: Runtime):
    """The second prompt reuses the cached latent; the restarted runtime never saw it."""
    graph = small(seed=123)
    (before,) = comfy.run(graph)
    runtime.kill()
    runtime.start()
    graph |= {
        "6": {"class_type": "OmniStageVAEDecode", "inputs": dict(graph["4"]["inputs"])},
        "7": {"class_type": "SaveImage", "inputs": {"images": ["6", 0], "filename_prefix": "e2e"}},
    }
    entry = comfy.wait(comfy.queue(graph))
    cached = next(d["nodes"] for kind, d in entry["status"]["messages"] if "cached" in kind)
    assert "3" in cached
    assert comfy.pictures(entry)[-1].tobytes() == before.tobytes()


def test_work_of_a_comfyui_that_died_is_cancelled(
    comfy: Comfy, runtime: Runtime, new_comfyui: Callable[[], ComfyUI]
):
    doomed = new_comfyui()
    doomed.start({"OMNISTAGE_ADDRESS": runtime.url})
    other = Comfy(doomed)
    other.queue(long())
    other.queue(long())
    wait_until(lambda: runtime.stats["leases"] == 2, "both prompts hold work")
    doomed.kill()
    wait_until(lambda: runtime.live_jobs == 0, "its leases ran out", LEASE_S + 10)
    assert runtime.stats["leases"] == 0


def test_leases_of_a_living_comfyui_do_not_run_out(comfy: Comfy, runtime: Runtime):
    """The second prompt waits longer than a lease lasts, and its work is not cancelled."""
    first, second = comfy.queue(long()), comfy.queue(long())
    wait_until(lambda: runtime.stats["leases"] == 2, "both prompts hold work")
    before = runtime.stats["finished"]["cancelled"]
    with pytest.raises(TimeoutError, match="not within"):
        wait_until(lambda: runtime.stats["leases"] < 2, "a lease runs out", LEASE_S * 1.5)
    assert runtime.stats["finished"]["cancelled"] == before
    comfy.drain()
    assert comfy.wait(first)["status"]["completed"] is False
    assert second not in comfy.running()
