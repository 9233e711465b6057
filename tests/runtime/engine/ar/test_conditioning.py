"""A conditioned model runs exactly as far as its rows have come, and says the same."""

import random

import pytest
import torch

from omnistage.runtime.engine.ar import out_of_tree
from omnistage.runtime.engine.ar.build import core_of
from omnistage.runtime.engine.ar.rows import conditioning_rows
from omnistage.runtime.engine.ar.settings import ARSettings
from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.models.ar_stage import ARRequest
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.tests.fakes import tiny_models

pytestmark = pytest.mark.ar

STEPS = 24
REQUESTS = 12


class Program:
    """Prompt ids are the parameters; the tokens come back."""

    def engine_args(self):
        return {
            "hf_overrides": {"architectures": ["Conditioned"]},
            "enable_prompt_embeds": True,
            "enable_prefix_caching": False,
            "additional_config": {"omnistage": {"conditioned": True}},
        }

    def prepare(self, params, inputs):
        sampling = {"max_tokens": STEPS, "temperature": 0.0, "ignore_eos": True}
        return [ARRequest({"prompt_token_ids": params["ids"]}, sampling, hidden_layers=(-1,))]

    def outputs(self, params, inputs, results):
        return {"ids": list(results[0].token_ids)}


@pytest.fixture(scope="module")
def core(checkpoints, engine):
    engine(tiny_models.qwen3_omni)  # see the fixture: the first engine decides
    folder, _ = checkpoints(tiny_models.chat_model)
    entry = ModelEntry("c", str(folder), vllm={"max_model_len": 256, "max_num_seqs": 4})
    place = "omnistage.tests.fakes.conditioned_model:Conditioned"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(out_of_tree.MODELS, "Conditioned", place)
        return core_of(ARSettings(kv_cache_mb=32), entry, Program(), "s")


def requests():
    """Prompt ids and rows [prompt + STEPS, width] of each request."""
    generator = torch.Generator().manual_seed(5)
    return {
        str(i): (list(range(i + 1, i + 8)), torch.randn(7 + STEPS, 128, generator=generator))
        for i in range(REQUESTS)
    }


def run(core, wanted, feed):
    """`feed(conditioning, rows, step)` is called before each step until it says it is done."""
    waiting = {}
    for name, (ids, rows) in wanted.items():
        waiting[name] = (conditioning_rows.open(f"{name}/0"), rows)
        core.submit(StageTask(name, "c", "s", {"ids": ids}))
    ends = {}
    while core.busy:
        for name in [n for n, given in waiting.items() if feed(*given)]:
            del waiting[name]
        ends |= {e.task: e for e in core.step() if e.kind in ("done", "failed", "cancelled")}
    core.check_integrity()
    for name in wanted:
        conditioning_rows.drop(f"{name}/0")
    return {name: end.outputs.get("ids") for name, end in ends.items()}


def at_once(conditioning, rows):
    conditioning.push(rows, final=True)
    return True


def test_rows_decide_and_trickling_in_they_give_the_same_tokens(core):
    wanted = requests()
    expected = run(core, wanted, at_once)
    others = {name: (ids, -rows) for name, (ids, rows) in wanted.items()}
    assert run(core, others, at_once) != expected
    rng = random.Random(0)

    def trickle(conditioning, rows):
        have = 0 if conditioning.rows is None else len(conditioning.rows)
        new = rng.choice((0, 0, 0, 1, 2)) if have else 7
        if new:
            conditioning.push(rows[have : have + new], final=have + new >= len(rows))
        return conditioning.final

    assert run(core, wanted, trickle) == expected
    assert core.stats()["kv_usage"] == 0


def test_one_whose_rows_never_come_holds_up_nobody_and_can_be_cancelled(core):
    wanted = requests()
    expected = run(core, wanted, at_once)
    stuck = conditioning_rows.open("stuck/0")
    stuck.push(torch.randn(9, 128))
    core.submit(StageTask("stuck", "c", "s", {"ids": list(range(7))}))
    mates = {name: wanted[name] for name in ("0", "1", "2")}
    for name, (ids, rows) in mates.items():
        at_once(conditioning_rows.open(f"{name}/0"), rows)
        core.submit(StageTask(name, "c", "s", {"ids": ids}))
    done = {}
    while len(done) < len(mates):
        done |= {e.task: e.outputs["ids"] for e in core.step() if e.kind == "done"}
    assert done == {name: expected[name] for name in mates}
    assert core.stats()["running"] == 1
    core.cancel("stuck")
    assert [e.kind for e in core.step()] == ["cancelled"]
    core.check_integrity()
