import pytest

from omnistage.runtime.orchestrator.lifecycle import Limits
from omnistage.runtime.protocol.errors import (
    MissingBlobs,
    NotFound,
    ResultGone,
    StoreTooSmall,
)
from omnistage.tests.fakes.recipes import (
    chain,
    decode,
    encode,
    load,
    sample,
    talk,
    think,
    upload_of,
)
from omnistage.tests.runtime.orchestrator.rig import Rig


def drop(rig, key):
    rig.orchestrator._store.drop_result(key)


def failure(rig, key):
    return rig.events(key)[-1].error


def test_an_evicted_result_is_gone_and_comes_back_on_request():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    rig.executor.finish_all()
    drop(rig, key)
    with pytest.raises(ResultGone):
        rig.orchestrator.output(key, "conditioning")
    assert rig.submit(encode("a")) == [key]
    rig.executor.finish_all()
    rig.orchestrator.output(key, "conditioning")


def test_an_evicted_input_is_made_again_from_its_recipe_however_deep():
    rig = Rig()
    middle, sink = sample(encode("a")), chain("a")
    first, middle_key = rig.submit(encode("a"), middle)
    rig.executor.finish_all()
    drop(rig, first)
    drop(rig, middle_key)
    (key,) = rig.submit(sink)
    assert rig.executor.stages() == ["encode"]
    rig.executor.finish_all()
    assert rig.state(key) == "done"
    rig.check()


def test_what_is_not_needed_is_not_made_again():
    rig = Rig()
    (key,) = rig.submit(chain("a"))
    rig.executor.finish_all()
    first, middle = rig.submit(encode("a"), sample(encode("a")))
    drop(rig, first)
    drop(rig, middle)
    assert rig.submit(chain("a")) == [key]
    assert not rig.executor.tasks
    assert rig.state(middle) == "done"


def test_two_inputs_that_evict_each_other_end_in_an_error_not_in_a_loop():
    # Room for either input, and never for both.
    rig = Rig(budget_bytes=1000)
    a, b = encode("a", size=150), load(upload_of(size=1), size=150)
    rig.upload(upload_of(size=1))
    (key,) = rig.submit(sample(a, b))
    for _ in range(20):
        if not rig.executor.tasks:
            break
        for task in list(rig.executor.tasks.values()):
            rig.executor.finish(task)
            rig.check()
            rig.upload(upload_of(size=1))
    error = failure(rig, key)
    assert isinstance(error, StoreTooSmall)
    assert "store.budget_mb" in error.message


def test_an_input_that_goes_while_a_job_that_follows_another_waits_for_its_turn():
    rig = Rig(limits=Limits(retries=1))
    latent = sample(encode("a"))
    (drawn,) = rig.submit(latent)
    rig.executor.finish_all()
    key, _ = rig.submit(talk(think(), latent), encode("b"))
    rig.executor.die()
    (thinker,) = rig.executor.tasks.values()
    rig.executor.start_task(thinker)
    assert rig.executor.stages() == ["think"], "a suspect runs alone"
    drop(rig, drawn)
    rig.executor.finish(thinker)
    assert rig.executor.stages() == ["encode"], "so does the next"
    rig.check()
    rig.executor.finish_all()
    assert rig.state(key) == "done"


def test_a_result_larger_than_the_store_fails_its_job():
    rig = Rig(budget_bytes=1000)
    (key,) = rig.submit(decode(sample(encode("a", size=500))))
    rig.executor.finish_all()
    rig.check()
    assert "does not fit" in failure(rig, key).message
    (cause,) = rig.submit(encode("a", size=500), owner="other")
    rig.executor.finish_all()
    assert isinstance(failure(rig, cause), StoreTooSmall)


def test_an_upload_that_was_evicted_while_it_waited_is_asked_for_again():
    rig = Rig()
    upload = upload_of()
    rig.upload(upload)
    rig.submit(load(upload), owner="first")
    rig.executor.finish_all()
    handle = chain_on(upload)
    (key,) = rig.submit(handle)
    (task,) = rig.executor.tasks.values()
    (latent,) = rig.submit(load(upload), owner="first")
    drop(rig, latent)
    rig.orchestrator._store._items.pop(("blob", upload[0]))
    store = rig.orchestrator._store
    store.used_bytes = sum(item.nbytes for item in store._items.values())
    rig.executor.finish(task)
    rig.check()
    error = failure(rig, key)
    assert isinstance(error, MissingBlobs), "the client knows what to do"
    assert error.value == [upload[0]]


def chain_on(upload):
    return sample(encode("a"), load(upload))


def test_finished_jobs_that_nobody_holds_are_forgotten_with_their_results():
    rig = Rig(limits=Limits(records=5))
    keys = []
    for i in range(20):
        keys += rig.submit(encode(str(i)), owner=str(i))
        rig.executor.finish_all()
        rig.orchestrator.release(str(i))
        rig.check()
    assert rig.orchestrator.stats()["remembered"] == 5
    assert rig.orchestrator.stats()["store"]["items"] == 5
    with pytest.raises(NotFound):
        rig.orchestrator.job(keys[0])
    rig.orchestrator.job(keys[-1])


def test_jobs_that_someone_holds_are_remembered():
    rig = Rig(limits=Limits(records=1))
    keys = [rig.submit(encode(str(i)))[0] for i in range(5)]
    rig.executor.finish_all()
    rig.check()
    assert [rig.state(key) for key in keys] == ["done"] * 5
