"""Whether the orchestrator's tables agree; for tests, and for whoever suspects a leak."""

from __future__ import annotations

from .jobs import Job
from .lifecycle import Lifecycle


def check_integrity(life: Lifecycle) -> None:
    """Raise AssertionError if the tables contradict each other or leak."""
    life.leases.check_integrity()
    life.store.check_integrity()
    assert life.leases.keys() <= set(life.jobs), "a lease on a job that is not there"
    assert len(life.retired) <= life.limits.records
    for key, job in life.jobs.items():
        assert key == job.key
        if job.live:
            _check_live(life, job)
        else:
            _check_finished(life, job)
    ready, in_flight = life.dispatcher.ready, life.dispatcher.in_flight
    assert all(life.jobs[key] is job and job.live for key, job in ready.items())
    assert all(life.jobs[job.key] is job and job.live for job in in_flight.values())
    assert all(job.task == task for task, job in in_flight.items())


def _check_live(life: Lifecycle, job: Job) -> None:
    assert life.wanted(job) or job.stopping, f"nobody wants job {job.key}, yet it lives"
    assert job.key not in life.retired
    for key in job.waiting:
        assert life.jobs[key].live, f"job {job.key} waits for {key}, which has ended"
        assert job.key in life.jobs[key].dependants
    for key in job.following:
        assert life.jobs[key].task is not None, f"job {job.key} follows {key}, which does not run"
        assert job.key in life.jobs[key].dependants
    assert not job.waiting & job.following
    for key in job.dependants:
        assert life.jobs[key].live, f"job {key} has ended, yet depends on {job.key}"
        assert job.key in life.jobs[key].waiting | life.jobs[key].following
    places = [bool(job.waiting), job.key in life.dispatcher.ready, job.task is not None]
    assert sum(places) == 1, f"job {job.key} is in {sum(places)} places, not in one"


def _check_finished(life: Lifecycle, job: Job) -> None:
    assert not (job.waiting or job.following or job.dependants or job.subscribers)
    assert not (job.task or job.stopping or job.parts)
    held, retired = life.leases.holds(job.key), job.key in life.retired
    assert held is not retired, f"finished job {job.key}: held {held}, ageing {retired}"
