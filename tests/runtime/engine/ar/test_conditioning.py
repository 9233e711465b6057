"""A conditioned model runs exactly as far as its rows have come, and says the same."""

import random

import pytest
import torch

from omnistage.runtime.engine.ar import out_of_tree
from omnistage.runtime.engine.ar.build import core_of
from omnistage.runtime.engine.ar.settings import ARSettings
from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.models.ar_stage import ARRequest
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.protocol.errors import InvalidRequest, JobFailed
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.tests.fakes import tiny_models

from .conftest import kept

pytestmark = pytest.mark.ar

PROMPT = 7
STEPS = 24
REQUESTS = 12
WIDTH = 128


class Rows:
    """The parts hold the rows themselves; the last one stands for all that follow."""

    def push(self, part):
        if "broken" in part.header:
            raise InvalidRequest("It is broken.", field="rows")
        self.last = torch.tensor(part.tensors["rows"].array)
        return self.last

    def end(self):
        return self.last[-1:]


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
        prompt = {"prompt_token_ids": params["ids"]}
        return [ARRequest(prompt, sampling, hidden_layers=(-1,), rows=Rows(), follows="rows")]

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
        return kept(core_of(ARSettings(kv_cache_mb=32), entry, Program(), "s"))


def requests():
    """Prompt ids and rows [prompt + STEPS, width] of each request."""
    generator = torch.Generator().manual_seed(5)
    return {
        str(i): (list(range(i + 1, i + 8)), torch.randn(PROMPT + STEPS, WIDTH, generator=generator))
        for i in range(REQUESTS)
    }


def part(rows, **facts):
    return Frame({"kind": "rows", **facts}, {"rows": Tensor.of(rows.numpy())})


def follow(core, name, ids):
    core.submit(StageTask(name, "c", "s", {"ids": ids}, followed=("rows",)))


def run(core):
    """The final events of all tasks that can end."""
    ends = {}
    while core.busy:
        ends |= {e.task: e for e in core.step() if e.kind in ("done", "failed", "cancelled")}
    core.check_integrity()
    return ends


def ids_of(ends):
    return {name: end.outputs.get("ids") for name, end in ends.items()}


def at_once(core, wanted):
    for name, (ids, rows) in wanted.items():
        core.submit(StageTask(name, "c", "s", {"ids": ids}, {"rows": part(rows)}))
    return ids_of(run(core))


def test_rows_decide_and_trickling_in_they_give_the_same_tokens(core):
    wanted = requests()
    expected = at_once(core, wanted)
    others = {name: (ids, -rows) for name, (ids, rows) in wanted.items()}
    assert at_once(core, others) != expected
    rng = random.Random(0)
    given = dict.fromkeys(wanted, 0)
    for name, (ids, _) in wanted.items():
        follow(core, name, ids)
    ends = {}
    while given:
        for name in list(given):
            count = rng.choice((0, 0, 0, 1, 2, 5))
            rows = wanted[name][1][given[name] :][:count]
            if count and len(rows):
                core.feed(name, "rows", part(rows))
                given[name] += len(rows)
            elif count:
                core.feed(name, "rows", None)
                del given[name]
        ends |= {e.task: e for e in core.step() if e.kind == "done"}
    assert ids_of({**ends, **run(core)}) == expected
    assert core.stats()["kv_usage"] == 0


def test_one_whose_rows_never_come_holds_up_nobody_and_can_be_cancelled(core):
    wanted = requests()
    expected = at_once(core, wanted)
    follow(core, "stuck", list(range(PROMPT)))
    core.feed("stuck", "rows", part(torch.randn(PROMPT + 2, WIDTH)))
    mates = {name: wanted[name] for name in ("0", "1", "2")}
    assert at_once(core, mates) == {name: expected[name] for name in mates}
    assert core.stats()["running"] == 1
    assert not core.busy
    core.cancel("stuck")
    assert [e.kind for e in core.step()] == ["cancelled"]
    core.check_integrity()


def test_more_that_wait_than_can_run_do_not_keep_the_core_busy(core):
    wanted = requests()
    expected = at_once(core, wanted)
    stuck = [f"stuck {i}" for i in range(4)]
    for name in stuck:
        follow(core, name, list(range(PROMPT)))
        core.feed(name, "rows", part(torch.randn(PROMPT + 2, WIDTH)))
    run(core)
    mate = {"0": wanted["0"]}
    assert at_once(core, mate) == {}
    assert core.stats()["waiting"] == 1
    core.cancel(stuck[0])
    assert ids_of(run(core)) == {stuck[0]: None, "0": expected["0"]}
    for name in stuck[1:]:
        core.cancel(name)
    assert {end.kind for end in run(core).values()} == {"cancelled"}


def test_nothing_is_done_for_one_whose_input_has_not_begun(core):
    follow(core, "early", list(range(PROMPT)))
    assert not core.busy
    assert core.stats()["waiting"] == 1
    core.cancel("early")
    assert [e.kind for e in core.step()] == ["cancelled"]


@pytest.mark.parametrize("rows", [1, PROMPT, PROMPT + 3])
def test_cancelled_with_some_of_its_rows_it_leaves_nothing(core, rows):
    follow(core, "a", list(range(PROMPT)))
    core.feed("a", "rows", part(torch.randn(rows, WIDTH)))
    run(core)
    core.cancel("a")
    assert [e.kind for e in core.step()] == ["cancelled"]
    core.feed("a", "rows", None)
    assert not core.busy
    core.check_integrity()


@pytest.mark.parametrize("before", [0, 1, PROMPT + 2])
def test_a_part_that_is_refused_fails_its_task_alone(core, before):
    wanted = requests()
    follow(core, "a", list(range(PROMPT)))
    if before:
        core.feed("a", "rows", part(torch.randn(before, WIDTH)))
    core.submit(
        StageTask("mate", "c", "s", {"ids": wanted["0"][0]}, {"rows": part(wanted["0"][1])})
    )
    core.step()
    core.feed("a", "rows", part(torch.randn(1, WIDTH), broken=True))
    ends = run(core)
    assert isinstance(ends["a"].error, InvalidRequest)
    assert ends["mate"].kind == "done"


def test_an_input_that_ends_before_it_began_fails(core):
    follow(core, "a", list(range(PROMPT)))
    core.feed("a", "rows", None)
    assert isinstance(run(core)["a"].error, JobFailed)
