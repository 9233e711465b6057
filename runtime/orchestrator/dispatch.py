"""Which jobs go to the engine when, and what an engine crash means for them.

A job that was with engines that died runs alone on its last try. So a job that kills engines
uses up its own tries, and the jobs that ran beside it get through; while after a single crash,
which may have had nothing to do with any of them, all run together as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from ..engine.core import StageTask
from ..executor.executor import Executor
from ..protocol.frames import Frame
from .jobs import Job


class Dispatcher:
    """The jobs that may start, and those that are with the engine."""

    def __init__(self, executor: Executor, retries: int) -> None:
        self._executor = executor
        self._retries = retries
        self._numbers = itertools.count(1)
        self.ready: dict[str, Job] = {}
        self.in_flight: dict[str, Job] = {}

    def offer(self, job: Job) -> None:
        """Everything the job needs is in the store."""
        self.ready[job.key] = job

    def withdraw(self, job: Job) -> None:
        """The job is not to start, if it was ready."""
        self.ready.pop(job.key, None)

    def due(self) -> list[Job]:
        """The ready jobs that may start now, on whichever engine."""
        engines = dict.fromkeys(job.plan.engine for job in self.ready.values())
        return [job for engine in engines for job in self._due_on(engine)]

    def ready_for(self, engine: str) -> list[Job]:
        """The ready jobs of one engine."""
        return [job for job in self.ready.values() if job.plan.engine == engine]

    def _due_on(self, engine: str) -> list[Job]:
        ready = self.ready_for(engine)
        running = [job for job in self.in_flight.values() if job.plan.engine == engine]
        if any(job.suspect for job in running):
            return []
        suspects = [job for job in ready if job.suspect]
        if not suspects:
            return ready
        return [] if running else suspects[:1]

    def start(self, job: Job, inputs: Mapping[str, Frame], followed: Iterable[str] = ()) -> None:
        """Hand a ready job to the engine; the inputs it follows are fed afterwards."""
        del self.ready[job.key]
        job.task = f"{job.key}.{next(self._numbers)}"
        self.in_flight[job.task] = job
        plan = job.plan
        self._executor.submit(
            StageTask(
                id=job.task,
                model=plan.model,
                stage=plan.stage.name,
                params=plan.params,
                inputs=inputs,
                followed=tuple(followed),
                engine=plan.engine,
                client=job.client,
                priority=job.priority,
                previews=job.previews,
            )
        )

    def stop(self, job: Job) -> None:
        """Have the engine cancel a job's attempt."""
        if job.task is not None and not job.stopping:
            job.stopping = True
            self._executor.cancel(job.task)

    def feed(self, job: Job, name: str, part: Frame | None) -> None:
        """Give a job's attempt the next part of an input; None: that was all."""
        if job.task is not None:
            self._executor.feed(job.task, name, part)

    def abandon(self, job: Job) -> None:
        """Stop a job's attempt, if there is one, and hear no more of it."""
        self.stop(job)
        if job.task is not None:
            self.ended(job)

    def ended(self, job: Job) -> None:
        """The job's attempt is over."""
        assert job.task is not None
        del self.in_flight[job.task]
        job.task, job.stopping = None, False

    def engine_died(self, engine: str, *, was_ready: bool) -> list[Job]:
        """Count a loss for every job concerned, and return those that were with the engine.

        An engine that never came up says nothing about the jobs it was given, but it concerns
        all that wait for it: otherwise they would wait for ever.
        """
        lost = [job for job in self.in_flight.values() if job.plan.engine == engine]
        for job in lost:
            self.ended(job)
        for job in lost if was_ready else [*lost, *self.ready_for(engine)]:
            job.losses += 1
            job.suspect = was_ready and job.losses >= self._retries
        return lost
