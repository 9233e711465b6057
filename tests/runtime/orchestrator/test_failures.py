import pytest

from omnistage.runtime.orchestrator.jobs import LEGAL, Job
from omnistage.runtime.orchestrator.lifecycle import Limits
from omnistage.runtime.protocol.errors import DependencyFailed, EngineLost, JobFailed
from omnistage.tests.fakes.recipes import chain, encode, sample
from omnistage.tests.runtime.orchestrator.rig import Rig


def failure(rig, key):
    return rig.events(key)[-1].error


def test_a_failure_reaches_everything_that_depends_on_it_and_nothing_else():
    rig = Rig()
    sink, other = rig.submit(chain("a"), encode("b"))
    (cause,) = rig.submit(encode("a"), owner="other")
    rig.executor.fail(rig.task(cause))
    rig.check()
    assert type(failure(rig, cause)) is JobFailed
    error = failure(rig, sink)
    assert isinstance(error, DependencyFailed)
    assert "encode" in error.message and "It broke." in error.message
    assert error.job == sink
    rig.executor.finish_all()
    assert rig.state(other) == "done"


def test_a_failed_job_runs_again_when_it_is_asked_for_again():
    rig = Rig()
    (key,) = rig.submit(chain("a"))
    rig.executor.fail(next(iter(rig.executor.tasks.values())))
    assert rig.submit(chain("a")) == [key]
    rig.executor.finish_all()
    assert rig.state(key) == "done"
    rig.check()


def test_jobs_of_a_dead_engine_run_again_together_and_on_their_last_try_alone():
    rig = Rig(limits=Limits(retries=2))
    keys = rig.submit(encode("a"), encode("b"))
    rig.executor.start_task(rig.task(keys[0]))
    follower = rig.orchestrator.subscribe(keys[0])
    rig.executor.die()
    rig.check()
    assert len(rig.executor.tasks) == 2
    rig.executor.die()
    rig.check()
    assert len(rig.executor.tasks) == 1, "a suspect runs alone"
    (late,) = rig.submit(encode("c"))
    assert len(rig.executor.tasks) == 1, "and nothing starts beside it"
    rig.executor.finish_all()
    rig.check()
    assert [rig.state(k) for k in (*keys, late)] == ["done"] * 3
    assert len(follower) == 1


@pytest.mark.parametrize("retries", [1, 2, 3])
def test_a_job_that_kills_engines_fails_alone(retries):
    rig = Rig(limits=Limits(retries=retries))
    mate, killer = rig.submit(encode("mate"), encode("killer"))
    deaths = 0
    while rig.executor.tasks:
        tasks = {t.params["text"]: t for t in rig.executor.tasks.values()}
        if "killer" in tasks:
            deaths += 1
            rig.executor.die()
        else:
            rig.executor.finish(tasks["mate"])
        rig.check()
    assert deaths == retries + 1
    assert rig.state(mate) == "done"
    assert isinstance(failure(rig, killer), EngineLost)
    assert f"{deaths} times" in failure(rig, killer).message


def test_without_retries_a_crash_is_the_end():
    rig = Rig(limits=Limits(retries=0))
    (key,) = rig.submit(encode("a"))
    rig.executor.die()
    assert isinstance(failure(rig, key), EngineLost)


def test_an_engine_that_never_comes_up_fails_all_that_wait_for_it():
    rig = Rig(limits=Limits(retries=1))
    keys = rig.submit(encode("a"), chain("b"))
    rig.executor.die(was_ready=False)
    assert len(rig.executor.tasks) == 2, "they are no suspects: it had not come to run them"
    rig.executor.die(was_ready=False)
    rig.check()
    assert isinstance(failure(rig, keys[0]), EngineLost)
    assert isinstance(failure(rig, keys[1]), DependencyFailed)
    assert not rig.executor.tasks


def test_a_job_that_was_being_stopped_when_the_engine_died_is_cancelled():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    rig.orchestrator.release("owner")
    rig.executor.die()
    rig.check()
    assert rig.state(key) == "cancelled"
    assert not rig.executor.tasks


def test_late_news_of_a_lost_attempt_is_ignored():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    old = rig.task(key)
    rig.executor.die()
    rig.executor.start_task(old)
    assert rig.state(key) == "queued"


def test_an_engine_that_cancels_unasked_ends_the_job_and_its_dependants():
    rig = Rig()
    (key,) = rig.submit(sample(encode("a")))
    rig.executor.confirm_cancel(next(iter(rig.executor.tasks.values())))
    rig.check()
    assert isinstance(failure(rig, key), DependencyFailed)


@pytest.mark.parametrize("state", LEGAL)
def test_only_legal_transitions_are_possible(state):
    for target in LEGAL:
        job = Job(plan=None, client="", state=state)  # type: ignore[arg-type]
        if target in LEGAL[state]:
            job.move(target)
        elif state != target or not LEGAL[state]:
            with pytest.raises((AssertionError, AttributeError)):
                job.move(target)


def test_a_long_chain_fails_without_exhausting_the_stack():
    rig = Rig(limits=Limits(queued_jobs=5000))
    handle = sample(encode("a"))
    for i in range(800):
        handle = sample(encode("a"), handle, steps=i + 1)
    (key,) = rig.submit(handle)
    rig.executor.fail(next(iter(rig.executor.tasks.values())))
    assert isinstance(failure(rig, key), DependencyFailed)
    rig.check()
