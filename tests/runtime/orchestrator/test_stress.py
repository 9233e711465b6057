import random

import pytest

from omnistage.runtime.orchestrator.lifecycle import Limits
from omnistage.runtime.protocol.errors import MissingBlobs, QueueFull
from omnistage.tests.fakes.recipes import (
    chain,
    encode,
    load,
    request,
    sample,
    speech,
    talk,
    think,
    upload_of,
)
from omnistage.tests.runtime.orchestrator.rig import Rig

UPLOADS = [upload_of(i / 4, size=30) for i in range(4)]


class Stress:
    """Random requests, releases, ends and crashes; every job must end exactly once."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rig = Rig(budget_bytes=3000, limits=Limits(queued_jobs=60, records=20))
        self.ends = {}
        self.followed = []
        publish = self.rig.orchestrator.listener.begin

        def begin(plan, **options):
            job = publish(plan, **options)
            self.followed.append(job)
            self.ends[id(job)] = job.subscribe()
            return job

        self.rig.orchestrator.listener.begin = begin

    def handle(self):
        text = self.random.choice("abcdef")
        upload = self.random.choice(UPLOADS)
        return self.random.choice(
            [
                encode(text),
                sample(encode(text)),
                chain(text),
                sample(encode(text), load(upload)),
                speech(text),
                talk(think(text), sample(encode(text))),
            ]
        )

    def submit(self):
        handles = [self.handle() for _ in range(self.random.randint(1, 3))]
        owner = self.random.choice("1234")
        try:
            self.rig.orchestrator.submit(request(*handles, owner=owner))
        except MissingBlobs as error:
            for digest, data in UPLOADS:
                if digest in error.value:
                    self.rig.upload((digest, data))
        except QueueFull:
            pass

    def release(self):
        self.rig.orchestrator.release(self.random.choice("1234"))

    def expire(self):
        self.rig.now_s += 25
        self.rig.orchestrator.renew(self.random.sample("1234", 2))
        self.rig.orchestrator.expire()

    def with_task(self, act):
        tasks = list(self.rig.executor.tasks.values())
        if tasks:
            act(self.random.choice(tasks))

    def end_one(self):
        self.with_task(self.rig.executor.finish)

    def fail_one(self):
        self.with_task(self.rig.executor.fail)

    def cancel_asked(self):
        for task in list(self.rig.executor.tasks.values()):
            if task.id in self.rig.executor.cancelled:
                self.rig.executor.confirm_cancel(task)

    def crash(self):
        self.rig.executor.die(was_ready=self.random.random() < 0.8)

    def step(self):
        acts = [self.submit, self.end_one, self.release, self.cancel_asked]
        acts += [self.fail_one, self.expire, self.crash]
        self.random.choices(acts, [30, 40, 4, 10, 4, 4, 3])[0]()
        self.rig.check()

    def drain(self):
        for owner in "1234":
            self.rig.orchestrator.release(owner)
        for _ in range(1000):
            if not self.rig.executor.tasks:
                break
            self.end_one()
        self.rig.check()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_tables_agree_and_every_job_ends_once(seed):
    stress = Stress(seed)
    for _ in range(400):
        stress.step()
    stress.drain()
    assert not stress.rig.executor.tasks
    assert not any(job.live for job in stress.followed)
    for job in stress.followed:
        final = list(stress.ends[id(job)]._news)
        assert len(final) == 1 and final[0].final and final[0].kind == job.state
    stats = stress.rig.orchestrator.stats()
    assert sum(stats["finished"].values()) == len(stress.followed)
    assert stats["leases"] == 0 and stats["remembered"] <= 20
    assert len(stress.followed) > 100
