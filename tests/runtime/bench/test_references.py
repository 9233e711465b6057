"""The sides of a comparison do the same work, each in the process that a benchmark gives it."""

import os
import sys

import pytest

from omnistage.runtime.bench.chats import QUESTIONS, STAGE, TransformersChats, requests_of
from omnistage.runtime.bench.encodes import (
    CoreEncodes,
    DiffusersEncodes,
    HostedCore,
    embeds_difference,
)
from omnistage.runtime.bench.pictures import PROMPTS
from omnistage.runtime.bench.raw_vllm import RawVLLM
from omnistage.runtime.bench.tiny import tiny_chat, tiny_image_model
from omnistage.runtime.engine.diffusion.settings import EngineSettings
from omnistage.runtime.executor import diffusion
from omnistage.runtime.executor.core_spec import CoreSpec
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.protocol.errors import JobFailed
from omnistage.tests.fakes.fake_core import result_of
from omnistage.tests.fakes.listener import task

FAKE = CoreSpec("omnistage.tests.fakes.fake_core:build")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Child processes find this package where this process has found it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def test_vllm_by_itself_answers_as_transformers_does(tmp_path):
    tiny_chat(tmp_path / "chat", QUESTIONS)
    entry = ModelEntry("tiny", str(tmp_path / "chat"))
    requests = requests_of(entry, QUESTIONS[:4], 8)
    with RawVLLM(entry, STAGE) as vllm:
        assert vllm.generate(requests) == TransformersChats(entry).one_by_one(requests)
        firsts_s = vllm.first_token_s(requests)
    assert len(firsts_s) == len(requests)
    assert min(firsts_s) > 0


def test_the_end_of_vllms_process_is_reported(tmp_path):
    tiny_chat(tmp_path / "chat", QUESTIONS)
    entry = ModelEntry("tiny", str(tmp_path / "chat"), vllm={"model": "/nowhere"})
    with pytest.raises(RuntimeError, match=r"/nowhere/config\.json"), RawVLLM(entry, STAGE):
        pass


def test_a_core_encodes_as_diffusers_does(tmp_path):
    tiny_image_model(tmp_path / "image", PROMPTS)
    entry = ModelEntry("tiny", str(tmp_path / "image"))
    spec = diffusion.core_spec(EngineSettings.model_validate({}), [entry])
    with HostedCore(spec) as core:
        ours = CoreEncodes(core, entry).together(PROMPTS)
    difference, scale = embeds_difference(ours, DiffusersEncodes(entry).one_by_one(PROMPTS))
    assert scale > 0
    assert difference <= 2e-5 * scale


def test_a_hosted_core_gives_outputs_in_the_order_of_the_tasks():
    with HostedCore(FAKE) as core:
        for _ in range(2):
            tasks = [task(str(i), text=str(i), steps=3 - i) for i in range(3)]
            outputs = core.run(tasks)
            assert [o["conditioning"].header for o in outputs] == [
                result_of(asked)["conditioning"].header for asked in tasks
            ]


@pytest.mark.parametrize(("trouble", "error"), [("error", JobFailed), ("kill", RuntimeError)])
def test_a_hosted_core_that_fails_says_so(trouble, error):
    with HostedCore(FAKE) as core, pytest.raises(error):
        core.run([task("a"), task("b", trouble=trouble)])
