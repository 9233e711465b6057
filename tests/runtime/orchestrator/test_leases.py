from omnistage.runtime.orchestrator.leases import Leases
from omnistage.tests.fakes.recipes import chain, encode, sample
from omnistage.tests.runtime.orchestrator.rig import Rig


def test_a_released_job_that_waits_is_cancelled_at_once():
    rig = Rig()
    handle = chain()
    (key,) = rig.submit(handle)
    rig.orchestrator.release("owner")
    assert rig.state(key) == "cancelled"
    (task,) = rig.executor.tasks.values()
    assert rig.executor.cancelled == [task.id], "the job with the engine is told to stop"
    rig.executor.confirm_cancel(task)
    rig.check()
    assert rig.orchestrator.stats()["finished"]["cancelled"] == 3


def test_one_of_two_owners_leaves_and_the_job_goes_on():
    rig = Rig()
    (key,) = rig.submit(chain(), owner="one")
    rig.submit(chain(), owner="two")
    rig.orchestrator.release("one")
    rig.check()
    assert not rig.executor.cancelled
    rig.executor.finish_all()
    assert rig.state(key) == "done"


def test_a_job_that_another_owners_job_needs_goes_on():
    rig = Rig()
    (first,) = rig.submit(encode("a"), owner="one")
    (second,) = rig.submit(sample(encode("a")), owner="two")
    rig.orchestrator.release("one")
    rig.check()
    rig.executor.finish_all()
    assert (rig.state(first), rig.state(second)) == ("done", "done")


def test_a_job_that_is_being_stopped_can_be_wanted_again():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    (task,) = rig.executor.tasks.values()
    rig.executor.start_task(task)
    rig.orchestrator.release("owner")
    follower = rig.orchestrator.subscribe(key)
    rig.submit(encode("a"), owner="other")
    rig.executor.confirm_cancel(task)
    rig.check()
    assert rig.state(key) == "queued", "it starts over"
    rig.executor.finish_all()
    assert rig.state(key) == "done"
    assert len(follower) == 1, "its followers see one end"


def test_a_result_that_came_before_the_stop_is_kept():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    (task,) = rig.executor.tasks.values()
    rig.orchestrator.release("owner")
    rig.executor.finish(task)
    rig.check()
    assert rig.state(key) == "done"


def test_leases_expire_unless_renewed():
    rig = Rig()
    (gone,) = rig.submit(encode("a"), owner="silent")
    (kept,) = rig.submit(encode("b"), owner="alive")
    rig.now_s = 59.0
    assert rig.orchestrator.renew(["alive", "nobody"]) == ["nobody"]
    rig.orchestrator.expire()
    assert not rig.executor.cancelled
    rig.now_s = 60.0
    rig.orchestrator.expire()
    rig.check()
    assert rig.executor.cancelled == [rig.orchestrator.job(gone).task]
    assert not rig.orchestrator.job(kept).stopping
    assert rig.orchestrator.stats()["leases"] == 1


def test_leases_know_holders_and_owners():
    leases = Leases(1.0, lambda: 0.0)
    leases.grant("one", ["a", "b"])
    leases.grant("two", ["b"])
    assert leases.release("one") == ["a"]
    assert leases.holds("b") and not leases.holds("a")
    assert leases.release("one") == []
    leases.check_integrity()
    assert leases.release("two") == ["b"]
    assert len(leases) == 0
