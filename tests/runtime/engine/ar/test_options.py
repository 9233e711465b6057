"""What of the configuration reaches vLLM."""

import pytest

from omnistage.runtime.engine.ar.build import engine_options
from omnistage.runtime.engine.ar.settings import ARSettings
from omnistage.runtime.models.catalogue import ModelEntry


def options(device, **vllm):
    settings = ARSettings(vllm={"max_num_seqs": 8, "seed": 1})
    return engine_options(settings, ModelEntry("demo", "demo", device=device, vllm=vllm), {})


@pytest.mark.parametrize(("device", "kv_cache_mb"), [("cpu", 512), ("cuda:0", 4096)])
def test_a_stage_takes_its_own_part_of_a_device(device, kv_cache_mb):
    found = options(device)
    assert found["kv_cache_memory_bytes"] == kv_cache_mb << 20
    assert found.get("gpu_memory_utilization", 0) < 0.05


def test_a_share_of_the_device_can_be_given_instead():
    found = options("cuda:0", gpu_memory_utilization=0.5)
    assert found["gpu_memory_utilization"] == 0.5
    assert "kv_cache_memory_bytes" not in found


def test_the_models_options_win_over_those_of_all_stages():
    found = options("cpu", max_num_seqs=4)
    assert (found["max_num_seqs"], found["seed"]) == (4, 1)
