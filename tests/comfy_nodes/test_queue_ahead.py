"""The watcher of ComfyUI's queue, against a runtime that only takes notes."""

from __future__ import annotations

import pytest
import torch

from omnistage.comfy_nodes.leases import CLIENT, Leases, owner_of
from omnistage.comfy_nodes.queue_ahead import QueueAhead
from omnistage.comfy_nodes.settings import Settings
from omnistage.runtime.protocol.errors import InvalidRequest, NotFound, RuntimeUnavailable
from omnistage.runtime.protocol.messages import SubmitReply, SubmitRequest

from .prompts import codec_decode, graph, queued, silence, speech, talker, thinker


class NotingClient:
    """A runtime that accepts everything, until told otherwise."""

    address = "http://runtime"

    def __init__(self) -> None:
        self.submitted: list[SubmitRequest] = []
        self.blobs: list[dict[str, bytes]] = []
        self.released: list[str] = []
        self.renewed: list[str] = []
        self.lost: set[str] = set()
        self.refusal: Exception | None = None

    async def submit(self, request, blobs):
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(request)
        self.blobs.append(dict(blobs))
        return SubmitReply({}, {}, {})

    async def release(self, owner):
        self.released.append(owner)
        if owner in self.lost:
            raise NotFound("no such lease")

    async def renew(self, owners):
        self.renewed += owners
        return [owner for owner in owners if owner in self.lost]


class Bench:
    """A watcher with a queue that the test fills."""

    def __init__(self) -> None:
        self.queue = []
        self.client = NotingClient()
        self.settings = Settings.of({}, {})
        self.leases = Leases()
        self.watcher = QueueAhead(
            lambda: list(self.queue),
            self.read,
            lambda _: silence(),
            lambda: self.settings,
            self.client_at,
            self.leases,
        )

    def client_at(self, _: str) -> NotingClient:
        return self.client

    def read(self, _: str) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(1, 64, 64, 3), torch.zeros(1, 64, 64)

    @property
    def stages(self) -> list[list[str]]:
        return [[job.stage for job in r.recipe] for r in self.client.submitted]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_new_prompt_is_submitted_once(bench):
    bench.queue.append(queued(graph(), prompt_id="a"))
    for _ in range(3):
        await bench.watcher.tick()
    assert bench.stages == [["text_encode", "sample", "vae_decode"]]
    (request,) = bench.client.submitted
    assert (request.owner, request.client) == (owner_of("a"), CLIENT)


async def test_all_waiting_prompts_are_submitted_in_their_order(bench):
    bench.queue += [queued(graph(_3={"seed": i}), prompt_id=str(i)) for i in range(3)]
    await bench.watcher.tick()
    assert [r.owner for r in bench.client.submitted] == [owner_of(str(i)) for i in range(3)]


async def test_a_prompt_that_left_the_queue_is_released(bench):
    bench.queue += [queued(graph(), prompt_id="a"), queued(graph(), prompt_id="b")]
    await bench.watcher.tick()
    del bench.queue[0]
    await bench.watcher.tick()
    assert bench.client.released == [owner_of("a")]
    assert bench.leases.prompts == {"b"}


async def test_a_lease_that_had_expired_is_no_error(bench):
    bench.queue.append(queued(graph(), prompt_id="a"))
    await bench.watcher.tick()
    bench.client.lost = {owner_of("a")}
    bench.queue.clear()
    await bench.watcher.tick()
    assert bench.leases.prompts == frozenset()


async def test_switched_off_nothing_is_submitted_but_leases_still_end(bench):
    bench.settings = Settings.of({"OMNISTAGE_QUEUE_AHEAD": "0"}, {})
    bench.queue.append(queued(graph(), prompt_id="a"))
    await bench.watcher.tick()
    assert bench.client.submitted == []
    bench.leases.hold("a", bench.client)  # its node ran
    bench.queue.clear()
    await bench.watcher.tick()
    assert bench.client.released == [owner_of("a")]


async def test_a_prompt_without_our_nodes_touches_no_runtime(bench):
    made = {"1": {"class_type": "SaveImage", "inputs": {}}}
    bench.queue.append(queued(made, "1"))
    await bench.watcher.tick()
    assert bench.client.submitted == []
    assert bench.leases.prompts == frozenset()


async def test_an_unreachable_runtime_is_tried_again(bench, monkeypatch):
    monkeypatch.setattr("omnistage.comfy_nodes.queue_ahead._RETRY_S", 0.0)
    bench.client.refusal = RuntimeUnavailable("down")
    bench.queue.append(queued(graph(), prompt_id="a"))
    await bench.watcher.tick()
    bench.client.refusal = None
    await bench.watcher.tick()
    assert len(bench.client.submitted) == 1


async def test_a_refused_prompt_is_left_to_its_nodes(bench):
    bench.client.refusal = InvalidRequest("width")
    bench.queue.append(queued(graph(), prompt_id="a"))
    await bench.watcher.tick()
    bench.client.refusal = None
    await bench.watcher.tick()
    assert bench.client.submitted == []


async def test_after_a_restart_of_the_runtime_work_is_submitted_again(bench, monkeypatch):
    bench.queue.append(queued(graph(), prompt_id="a"))
    await bench.watcher.tick()
    bench.client.lost = {owner_of("a")}
    await bench.watcher.renew()
    assert bench.client.renewed == [owner_of("a")]
    await bench.watcher.tick()
    assert len(bench.client.submitted) == 2


async def test_an_input_picture_is_read_and_uploaded(bench):
    made = graph(_3={"latent": ["8", 0]}) | {
        "7": {"class_type": "LoadImage", "inputs": {"image": "cat.png"}},
        "8": {"class_type": "OmniStageVAEEncode", "inputs": {"model": ["1", 0], "image": ["7", 0]}},
    }
    bench.queue.append(queued(made))
    await bench.watcher.tick()
    assert sorted(bench.stages[0]) == ["sample", "text_encode", "vae_decode", "vae_encode"]
    assert set(bench.client.blobs[0]) == bench.client.submitted[0].recipe.blobs()


async def test_what_is_said_to_a_model_is_answered_aloud_as_one_chain(bench):
    made = speech(_7=thinker(audio=["10", 0]), _8=talker(), _12=codec_decode()) | {
        "10": {"class_type": "LoadAudio", "inputs": {"audio": "question.wav"}}
    }
    bench.queue.append(queued(made, "13"))
    await bench.watcher.tick()
    assert bench.stages == [["thinker", "talker", "codec_decode"]]
    assert set(bench.client.blobs[0]) == bench.client.submitted[0].recipe.blobs()


async def test_work_released_while_it_was_submitted_is_released_again(bench):
    """Stop reaches a prompt while its plan is on the way to the runtime."""
    submit = bench.client.submit

    async def stopped_meanwhile(request, blobs):
        bench.queue.clear()
        await bench.leases.release("a")
        return await submit(request, blobs)

    bench.client.submit = stopped_meanwhile
    bench.queue.append(queued(graph(), prompt_id="a"))
    await bench.watcher.tick()
    await bench.watcher.tick()
    assert bench.client.released == [owner_of("a")] * 2
