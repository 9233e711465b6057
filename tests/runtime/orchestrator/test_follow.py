"""Jobs that begin before those they need have ended, and take their outputs part by part."""

import pytest

from omnistage.runtime.protocol.errors import DependencyFailed
from omnistage.tests.fakes.recipes import encode, sample, speech, talk, think
from omnistage.tests.runtime.orchestrator.rig import Rig


@pytest.fixture
def rig():
    return Rig()


def running(rig, *stages):
    """The tasks of the stages that are with the engine."""
    assert rig.executor.stages() == list(stages)
    return list(rig.executor.tasks.values())


def fed(rig, task, name):
    parts = rig.executor.fed.get((task.id, name), [])
    return [part and part.header["value"] for part in parts]


def speaking(rig, handle=None):
    """The three tasks of a speech that runs."""
    (key,) = rig.submit(handle or speech())
    (thinker,) = running(rig, "think")
    rig.executor.start_task(thinker)
    _, talker = running(rig, "think", "talk")
    rig.executor.start_task(talker)
    return key, running(rig, "think", "talk", "sound")


def test_a_stage_starts_with_the_one_it_follows_and_gets_its_parts_to_the_end(rig):
    key, (thinker, talker, codec) = speaking(rig)
    assert (thinker.followed, talker.followed, codec.followed) == ((), ("hidden",), ("codes",))
    assert not talker.inputs
    rig.check()
    rig.executor.part(thinker, "hidden", 1)
    rig.executor.part(talker, "codes", 10)
    rig.executor.part(thinker, "hidden", 2)
    rig.executor.finish(thinker)
    rig.check()
    assert fed(rig, talker, "hidden") == [1, 2, None]
    assert fed(rig, codec, "codes") == [10]
    rig.executor.finish(talker)
    assert fed(rig, codec, "codes") == [10, None]
    rig.executor.finish(codec)
    rig.check()
    assert rig.state(key) == "done"


def test_one_that_comes_later_gets_all_that_was_made_so_far(rig):
    rig.submit(think())
    (thinker,) = running(rig, "think")
    rig.executor.start_task(thinker)
    rig.executor.part(thinker, "hidden", 1)
    rig.submit(talk(think()))
    _, talker = running(rig, "think", "talk")
    rig.executor.part(thinker, "hidden", 2)
    assert fed(rig, talker, "hidden") == [1, 2]


def test_one_that_comes_after_the_end_gets_the_whole(rig):
    rig.submit(think())
    rig.executor.finish_all()
    rig.submit(talk(think()))
    (talker,) = running(rig, "talk")
    assert talker.followed == ()
    assert list(talker.inputs) == ["hidden"]


def test_it_still_waits_for_inputs_that_it_cannot_follow(rig):
    (key,) = rig.submit(talk(think(), sample(encode())))
    thinker, encoder = running(rig, "think", "encode")
    rig.executor.start_task(thinker)
    rig.executor.part(thinker, "hidden", 1)
    rig.executor.finish(encoder)
    _, sampler = running(rig, "think", "sample")
    rig.check()
    rig.executor.finish(sampler)
    _, talker = running(rig, "think", "talk")
    assert (talker.followed, list(talker.inputs)) == (("hidden",), ["latent"])
    assert fed(rig, talker, "hidden") == [1]
    rig.executor.finish_all()
    assert rig.state(key) == "done"
    rig.check()


def test_a_failure_ends_what_follows_while_it_runs(rig):
    key, (thinker, talker, codec) = speaking(rig)
    rig.executor.fail(thinker)
    rig.check()
    assert set(rig.executor.cancelled) == {talker.id, codec.id}
    error = rig.events(key)[-1].error
    assert isinstance(error, DependencyFailed)
    assert "think" in error.message
    rig.executor.confirm_cancel(talker)
    rig.executor.confirm_cancel(codec)
    rig.check()
    assert rig.state(key) == "failed"


def test_a_failure_at_the_end_of_the_chain_leaves_the_rest_to_those_who_hold_it(rig):
    key, (thinker, talker, codec) = speaking(rig)
    rig.executor.fail(codec)
    assert rig.executor.cancelled == []
    rig.orchestrator.release("owner")
    rig.executor.confirm_cancel(talker)
    assert rig.executor.cancelled == [talker.id, thinker.id]
    rig.check()
    assert rig.state(key) == "failed"


def test_stop_ends_all_stages(rig):
    key, (thinker, talker, codec) = speaking(rig)
    rig.orchestrator.release("owner")
    for task in (codec, talker, thinker):
        assert rig.executor.cancelled[-1] == task.id
        rig.executor.confirm_cancel(task)
        rig.check()
    assert rig.state(key) == "cancelled"
    assert not rig.executor.tasks


def test_a_new_attempt_starts_what_follows_anew(rig):
    (key,) = rig.submit(speech())
    (thinker,) = running(rig, "think")
    rig.executor.start_task(thinker)
    rig.executor.part(thinker, "hidden", 1)
    rig.executor.die()
    rig.check()
    (again,) = running(rig, "think")
    assert again.id != thinker.id
    rig.executor.start_task(again)
    _, talker = running(rig, "think", "talk")
    assert fed(rig, talker, "hidden") == []
    rig.executor.part(again, "hidden", 3)
    assert fed(rig, talker, "hidden") == [3]
    rig.executor.finish_all()
    rig.check()
    assert rig.state(key) == "done"


def test_wanted_again_while_it_is_being_stopped_it_begins_anew_with_its_followers(rig):
    key, (_, talker, codec) = speaking(rig)
    rig.orchestrator.release("owner")
    assert rig.executor.cancelled == [codec.id]
    assert rig.submit(speech()) == [key]
    rig.executor.confirm_cancel(codec)
    rig.check()
    rig.executor.part(talker, "codes", 10)
    *_, new = running(rig, "think", "talk", "sound")
    assert fed(rig, new, "codes") == [10]


def test_clients_hear_the_parts_of_what_is_for_them_and_miss_none(rig):
    key, (thinker, _, codec) = speaking(rig)
    rig.executor.start_task(codec)
    rig.executor.part(thinker, "hidden", 1)
    for value in (20, 21):
        rig.executor.part(codec, "audio", value)
    late = next(event for event in rig.events(key) if event.kind == "part")
    assert late.output == "audio"
    assert [part.header["value"] for part in late.parts] == [20, 21]
    keys = {job.plan.stage.name: job.key for job in rig.orchestrator.listener.jobs.values()}
    assert [event.kind for event in rig.events(keys["think"])] == ["running"]


def test_two_that_follow_one_get_the_same_parts(rig):
    rig.submit(talk(think()), talk(think(), steps=2))
    (thinker,) = running(rig, "think")
    rig.executor.start_task(thinker)
    rig.executor.part(thinker, "hidden", 1)
    _, *talkers = running(rig, "think", "talk", "talk")
    assert [fed(rig, talker, "hidden") for talker in talkers] == [[1], [1]]
