import pytest

from omnistage.runtime.orchestrator.lifecycle import Limits
from omnistage.runtime.protocol.errors import (
    InvalidRequest,
    MissingBlobs,
    NotFound,
    QueueFull,
    UnknownModel,
)
from omnistage.tests.fakes.recipes import chain, decode, encode, load, sample, upload_of
from omnistage.tests.runtime.orchestrator.rig import Rig


def test_jobs_run_when_what_they_need_is_there():
    rig = Rig()
    handle = chain()
    (key,) = rig.submit(handle)
    stages = []
    while rig.executor.tasks:
        (task,) = rig.executor.tasks.values()
        stages.append(task.stage)
        rig.executor.finish(task)
        rig.check()
    assert stages == ["encode", "sample", "decode"]
    assert rig.state(key) == "done"
    assert rig.orchestrator.output(key, "images").header == {"kind": "images"}


def test_jobs_that_wait_for_the_same_one_start_in_the_order_they_came():
    rig = Rig()
    for steps in range(1, 9):
        rig.submit(sample(encode(), steps=steps))
    (task,) = rig.executor.tasks.values()
    rig.executor.finish(task)
    assert [t.params["steps"] for t in rig.executor.tasks.values()] == list(range(1, 9))


def test_equal_work_is_joined_whoever_asks_and_however_it_is_written():
    rig = Rig()
    (first,) = rig.submit(encode("a"), owner="one")
    (second,) = rig.submit(encode("a", steps=1, size=16), owner="two")  # spelled-out defaults
    assert first == second
    assert rig.executor.stages() == ["encode"]
    rig.executor.finish_all()
    (third,) = rig.submit(encode("a"), owner="three")
    assert third == first
    assert not rig.executor.tasks, "a finished job is served from the store"


def test_the_reply_shows_the_parameters_that_will_be_used():
    rig = Rig()
    from omnistage.tests.fakes.recipes import request

    handle = encode("a")
    reply = rig.orchestrator.submit(request(handle))
    assert reply.params[handle.job] == {"text": "a", "steps": 1, "size": 16, "trouble": ""}
    assert reply.states == {handle.job: "queued"}


def test_keys_differ_with_model_stage_params_and_inputs():
    rig = Rig(fake="fake", other="fake")
    handles = [
        encode("a"),
        encode("b"),
        encode("a", model="other"),
        sample(encode("a")),
        sample(encode("b")),
        sample(encode("a"), sample(encode("a"))),
        sample(encode("a"), load(upload_of(0.1))),
        sample(encode("a"), load(upload_of(0.2))),
    ]
    rig.upload(upload_of(0.1))
    rig.upload(upload_of(0.2))
    assert len(set(rig.submit(*handles))) == len(handles)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (encode("a", steps=0), "steps = 0 is refused.*at least 1"),
        (encode("a", wings=2), "no parameter 'wings'"),
        (encode("a", steps=1.5), "steps = 1.5"),
        (decode(encode("a")), "takes latent, not conditioning"),
        (sample(sample(encode("a"))), "takes conditioning, not latent"),
        (load(upload_of(kind="latent")), "takes images, not latent"),
        (load(upload_of(kind="cheese")), "takes images, not cheese"),
    ],
)
def test_one_wrong_job_means_that_none_is_started(bad, words):
    rig = Rig()
    rig.upload(upload_of(kind="latent"))
    rig.upload(upload_of(kind="cheese"))
    with pytest.raises(InvalidRequest, match=words) as caught:
        rig.submit(encode("fine"), bad)
    assert caught.value.job and caught.value.stage
    assert not rig.executor.tasks
    assert rig.orchestrator.stats()["leases"] == 0
    rig.check()


def test_unknown_models_stages_and_outputs_are_refused():
    rig = Rig()
    with pytest.raises(UnknownModel, match="it has fake"):
        rig.submit(encode("a", model="../../etc"))
    handle = encode("a")
    wrong = type(handle)(handle.recipe, handle.job, "latent")
    with pytest.raises(InvalidRequest, match="none of that name"):
        rig.submit(sample(wrong))


def test_what_a_model_keeps_inside_does_not_go_to_another_family():
    rig = Rig(fake="one", twin="one", other="two")
    rig.submit(sample(encode("a"), model="twin"))
    with pytest.raises(InvalidRequest, match="family one; this stage's model is of family two"):
        rig.submit(sample(encode("a"), model="other"))
    images = chain("a")
    from omnistage.runtime.protocol.recipe import JobSpec, handle_of

    other = JobSpec.make("other", "load", {}, {"images": images.ref})
    rig.submit(handle_of(other, "latent", [images]))


def test_missing_uploads_are_named_before_anything_starts():
    rig = Rig()
    upload = upload_of()
    with pytest.raises(MissingBlobs) as caught:
        rig.submit(encode("a"), load(upload))
    assert caught.value.value == [upload[0]]
    assert not rig.executor.tasks
    rig.upload(upload)
    (key,) = rig.submit(load(upload))
    assert rig.task(key).inputs["images"].header["kind"] == "images"


def test_uploads_are_not_asked_for_when_the_result_is_here():
    rig = Rig()
    upload = upload_of(size=1000)
    rig.upload(upload)
    (key,) = rig.submit(load(upload))
    rig.executor.finish_all()
    rig.orchestrator._store._items.pop(("blob", upload[0]))
    rig.orchestrator._store.used_bytes = sum(
        item.nbytes for item in rig.orchestrator._store._items.values()
    )
    assert rig.submit(load(upload)) == [key]


def test_the_queue_is_bounded():
    rig = Rig(limits=Limits(queued_jobs=3))
    rig.submit(encode("a"), encode("b"))
    with pytest.raises(QueueFull, match="2 jobs wait already and this adds 3"):
        rig.submit(chain("c"))
    rig.check()
    rig.submit(encode("a"), encode("b"), encode("c"))  # two of them wait already
    rig.executor.finish_all()
    rig.submit(chain("d"))


@pytest.mark.parametrize("owner", ["", "x" * 201])
def test_owners_have_names_of_a_sane_length(owner):
    with pytest.raises(InvalidRequest, match="owner"):
        Rig().submit(encode("a"), owner=owner)


def test_outputs_that_are_not_there_are_told_apart():
    rig = Rig()
    with pytest.raises(NotFound, match="no job 'x'"):
        rig.orchestrator.output("x", "y")
    (key,) = rig.submit(encode("a"))
    with pytest.raises(NotFound, match="has no output 'y'"):
        rig.orchestrator.output(key, "y")
    with pytest.raises(NotFound, match="is queued"):
        rig.orchestrator.output(key, "conditioning")
