"""Queued prompts share batches, and whatever leaves the queue gives up its work."""

from __future__ import annotations

import json
import urllib.error

import pytest

from omnistage.runtime.bench.comfyui import Comfy, was_interrupted
from omnistage.runtime.bench.servers import Runtime, wait_until

from .comfy import fresh, long

pytestmark = pytest.mark.e2e


def steps_done(runtime: Runtime) -> dict[int, int]:
    """Steps so far, by the number of requests that shared the forward pass."""
    return {int(size): count for size, count in runtime.stats["batches"].items()}


def cancelled(runtime: Runtime) -> int:
    return int(runtime.stats["finished"]["cancelled"])


def leases(runtime: Runtime, count: int) -> None:
    wait_until(lambda: runtime.stats["leases"] == count, f"{count} prompts hold work")


def test_queued_prompts_share_batches(comfy: Comfy, runtime: Runtime):
    before = steps_done(runtime)
    prompts = [comfy.queue(fresh(steps=20)) for _ in range(6)]
    entries = [comfy.wait(prompt) for prompt in prompts]
    assert all(len(comfy.pictures(entry)) == 1 for entry in entries)
    gained = {k: n - before.get(k, 0) for k, n in steps_done(runtime).items()}
    shared = sum(n for size, n in gained.items() if size > 1)
    assert max(size for size, n in gained.items() if n) >= 4
    assert shared > sum(gained.values()) / 2
    leases(runtime, 0)


def test_switched_off_in_the_settings_prompts_run_one_by_one(comfy: Comfy, runtime: Runtime):
    comfy.post("/settings", {"OmniStage.queueAhead": False})
    try:
        before = steps_done(runtime)
        for prompt in [comfy.queue(fresh()) for _ in range(3)]:
            comfy.wait(prompt)
        gained = {k: n - before.get(k, 0) for k, n in steps_done(runtime).items()}
        assert {size for size, n in gained.items() if n} == {1}
        leases(runtime, 0)
    finally:
        comfy.post("/settings", {"OmniStage.queueAhead": True})


def test_delete_clear_and_interrupt_release_the_work(comfy: Comfy, runtime: Runtime):
    prompts = [comfy.queue(long()) for _ in range(4)]
    leases(runtime, 4)
    before = cancelled(runtime)
    comfy.post("/queue", {"delete": [prompts[2]]})
    leases(runtime, 3)
    assert cancelled(runtime) > before
    comfy.post("/queue", {"clear": True})
    leases(runtime, 1)
    comfy.post("/interrupt", {})
    leases(runtime, 0)
    wait_until(lambda: runtime.live_jobs == 0, "nothing runs")
    assert was_interrupted(comfy.wait(prompts[0]))


def test_deleting_one_prompt_leaves_shared_work_alone(comfy: Comfy, runtime: Runtime):
    """Both prompts need the same picture."""
    graph = fresh(steps=60)
    blocker = comfy.queue(long())
    first, second = comfy.queue(graph), comfy.queue(graph)
    leases(runtime, 3)
    comfy.post("/queue", {"delete": [first]})
    leases(runtime, 2)
    comfy.post("/interrupt", {"prompt_id": blocker})
    assert len(comfy.pictures(comfy.wait(second))) == 1


def test_a_job_cancelled_through_the_jobs_api_releases_the_work(comfy: Comfy, runtime: Runtime):
    prompt = comfy.queue(long())
    leases(runtime, 1)
    try:
        comfy.post(f"/api/jobs/{prompt}/cancel", {})
    except urllib.error.HTTPError as error:
        pytest.skip(f"this ComfyUI has no jobs API (status {error.code})")
    leases(runtime, 0)


def test_stop_ends_the_work_within_two_steps(comfy: Comfy, runtime: Runtime):
    """Big enough that a step takes longer than ComfyUI takes to notice."""
    prompt = comfy.queue(long())
    started = sum(steps_done(runtime).values()) + 2
    wait_until(lambda: sum(steps_done(runtime).values()) >= started, "it denoises")
    comfy.post("/interrupt", {})
    before = sum(steps_done(runtime).values())
    wait_until(lambda: runtime.live_jobs == 0, "nothing runs")
    assert sum(steps_done(runtime).values()) - before <= 2
    assert was_interrupted(comfy.wait(prompt))


def test_stop_spares_the_neighbours(comfy: Comfy, runtime: Runtime):
    stopped = comfy.queue(long())
    others = [comfy.queue(fresh(steps=20)) for _ in range(2)]
    leases(runtime, 3)
    comfy.post("/interrupt", {})
    for prompt in others:
        assert len(comfy.pictures(comfy.wait(prompt))) == 1
    assert was_interrupted(comfy.wait(stopped))


def test_a_prompt_comfyui_refuses_is_never_submitted(comfy: Comfy, runtime: Runtime):
    before = json.dumps(runtime.stats["finished"])
    graph = fresh()
    graph["5"]["inputs"]["images"] = ["2", 0]  # conditioning where pictures belong
    with pytest.raises(Exception, match="failed validation"):
        comfy.queue(graph)
    leases(runtime, 0)
    assert json.dumps(runtime.stats["finished"]) == before
