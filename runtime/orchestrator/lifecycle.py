"""The life of every job: begin, wait for inputs, run, end, and be forgotten.

Work that a change entails (start what can start, stop what nobody wants) is noted in worklists
and done by `settle`, so that no chain of jobs is too long for the stack.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..engine.core import EngineEvent
from ..executor.executor import Executor
from ..models.stage import PORTABLE
from ..protocol.errors import (
    DependencyFailed,
    EngineLost,
    JobCancelled,
    JobFailed,
    MissingBlobs,
    OmniStageError,
    StoreTooSmall,
)
from ..protocol.frames import Frame
from ..protocol.messages import EventKind, JobEvent
from .dispatch import Dispatcher
from .jobs import Job
from .keys import Plan
from .leases import Leases
from .store import Store

_MAX_EVICTIONS = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the tables.

    Attributes:
        queued_jobs: jobs that may wait at once.
        retries: times a job is tried again after engine crashes.
        records: finished jobs that are remembered without anyone holding them.
    """

    queued_jobs: int = 1000
    retries: int = 2
    records: int = 4096


class Lifecycle:
    """All jobs by key, and what moves them; an `ExecutorListener`."""

    def __init__(self, executor: Executor, store: Store, leases: Leases, limits: Limits) -> None:
        self.store = store
        self.leases = leases
        self.limits = limits
        self.jobs: dict[str, Job] = {}
        self.retired: OrderedDict[str, None] = OrderedDict()
        self.dispatcher = Dispatcher(executor, limits.retries)
        self.finished: Counter[str] = Counter()
        self.batches: Counter[int] = Counter()
        self.last_loss: str | None = None
        self._to_fail: deque[tuple[Job, OmniStageError]] = deque()
        self._to_review: deque[str] = deque()
        self._to_advance: deque[Job] = deque()

    def wanted(self, job: Job) -> bool:
        """Whether someone holds the job, or another job waits for it."""
        return bool(job.dependants) or self.leases.holds(job.key)

    def begin(self, plan: Plan, *, client: str, priority: int, previews: bool) -> Job:
        """Start a run of a plan; an earlier run of it has ended."""
        job = Job(plan, client, priority, previews)
        job.publish(JobEvent(plan.key, "queued"))
        self._put(job)
        self._to_advance.append(job)
        return job

    def recall(self, plan: Plan) -> None:
        """Note a job as done whose result nobody needs: what was made of it is here."""
        job = Job(plan, client="", state="done")
        job.publish(JobEvent(plan.key, "done", outputs=tuple(plan.stage.outputs)))
        self._put(job)

    def hold(self, owner: str, keys: Iterable[str]) -> None:
        """Put jobs on an owner's lease."""
        self.leases.grant(owner, keys)
        for key in keys:
            self.retired.pop(key, None)

    def release(self, owner: str) -> None:
        """End an owner's lease, and stop what nobody wants any more."""
        self._to_review.extend(self.leases.release(owner))
        self.settle()

    def settle(self) -> None:
        """Do all that the latest changes entail."""
        while True:
            if self._to_fail:
                self._fail_dependant(*self._to_fail.popleft())
            elif self._to_review:
                self._review(self._to_review.popleft())
            elif self._to_advance:
                self._advance(self._to_advance.popleft())
            else:
                self._start_due()
                if not self._to_advance:
                    return

    # what the engine reports

    def on_event(self, event: EngineEvent) -> None:
        """See `ExecutorListener.on_event`."""
        job = self.dispatcher.in_flight.get(event.task)
        if job is None:
            return
        if event.kind == "started":
            job.move("running")
            job.publish(JobEvent(job.key, "running"))
            self._let_follow(job)
            self.settle()
        elif event.kind == "part":
            self._pass_on(job, event)
        elif event.kind in ("progress", "preview"):
            self._report(job, event)
        elif event.kind == "text":
            self._report_text(job, event)
        else:
            self._end_attempt(job, event)
            self.settle()

    def on_lost(self, engine: str, reason: str, *, was_ready: bool) -> None:
        """See `ExecutorListener.on_lost`."""
        self.last_loss = reason
        lost = self.dispatcher.engine_died(engine, was_ready=was_ready)
        for job in [*lost, *self.dispatcher.ready_for(engine)]:
            if not self.wanted(job):
                self._cancelled(job)
            elif job.losses > self.limits.retries:
                self._fail(job, EngineLost(_lost_words(job, reason)))
            elif job in lost:
                self._requeue(job)
        self.settle()

    def _report(self, job: Job, event: EngineEvent) -> None:
        facts: dict[str, Any] = {"step": event.step, "total": event.total, "batch": event.batch}
        if event.kind == "preview":
            job.publish(JobEvent(job.key, "preview", image=event.image, **facts))
        else:
            self.batches[event.batch] += 1
            job.publish(JobEvent(job.key, "progress", **facts))

    def _pass_on(self, job: Job, event: EngineEvent) -> None:
        """Give parts of a job's outputs to the jobs and clients that follow it."""
        followers = [self.jobs[key] for key in job.dependants]
        for output, part in event.outputs.items():
            job.parts.setdefault(output, []).append(part)
            for follower in followers:
                self._feed(follower, job, output, part)
            if job.plan.stage.outputs[output] in PORTABLE:
                job.publish(JobEvent(job.key, "part", output=output, parts=(part,)))

    def _feed(self, follower: Job, job: Job, output: str, part: Frame | None) -> None:
        if job.key in follower.following:
            for name, taken in follower.takes(job.plan).items():
                if taken == output:
                    self.dispatcher.feed(follower, name, part)

    def _report_text(self, job: Job, event: EngineEvent) -> None:
        job.publish(JobEvent(job.key, "text", text=event.text))
        if event.total:
            step, total, batch = event.step, event.total, event.batch
            job.publish(JobEvent(job.key, "progress", step=step, total=total, batch=batch))

    def _end_attempt(self, job: Job, event: EngineEvent) -> None:
        rejoined = job.stopping and self.wanted(job)
        self.dispatcher.ended(job)
        if event.kind == "done":
            self._keep(job, dict(event.outputs))
        elif event.kind == "failed":
            self._fail(job, event.error or JobFailed("The engine gave no reason."))
        elif rejoined:
            self._requeue(job)
        else:
            self._cancelled(job)

    # ends

    def _keep(self, job: Job, outputs: dict[str, Frame]) -> None:
        stage = job.plan.stage
        absent = set(stage.outputs) - set(outputs)
        if absent:
            self._fail(job, JobFailed(f"Stage {stage.name} gave no {', '.join(sorted(absent))}."))
            return
        try:
            self.store.put_result(job.key, outputs)
        except StoreTooSmall as error:
            self._fail(job, error)
            return
        if job.state == "queued":
            job.move("running")
        self._finish(job, "done", outputs=tuple(outputs))

    def _fail(self, job: Job, error: OmniStageError) -> None:
        error.job, error.stage = job.key, error.stage or job.plan.stage.name
        self._finish(job, "failed", error=error)

    def _fail_dependant(self, job: Job, cause: OmniStageError) -> None:
        if not job.live:
            return
        if isinstance(cause, MissingBlobs):  # the cure is the same: upload, and submit again
            self._fail(job, MissingBlobs(cause.message, value=cause.value, stage=cause.stage))
        elif isinstance(cause, DependencyFailed):
            self._fail(job, DependencyFailed(cause.message, stage=cause.stage))
        else:
            words = f"Stage {cause.stage}, which this one needs, failed: {cause.message}"
            self._fail(job, DependencyFailed(words, stage=cause.stage))

    def _cancelled(self, job: Job) -> None:
        words = "The job was stopped: nobody wants it any more."
        error = JobCancelled(words, job=job.key, stage=job.plan.stage.name)
        self._finish(job, "cancelled", error=error)

    def _finish(
        self,
        job: Job,
        kind: EventKind,
        *,
        outputs: tuple[str, ...] = (),
        error: OmniStageError | None = None,
    ) -> None:
        """End a job, for good: its one final event, and the jobs around it."""
        job.move(kind)  # type: ignore[arg-type]  # final kinds of events are states
        self.dispatcher.withdraw(job)
        self.dispatcher.abandon(job)
        self.finished[kind] += 1
        for key in sorted(job.waiting | job.following):
            self.jobs[key].dependants.pop(job.key, None)
            self._to_review.append(key)
        job.waiting.clear()
        job.following.clear()
        job.parts.clear()
        dependants = [self.jobs[key] for key in job.dependants]
        job.dependants.clear()
        for dependant in dependants:
            self._tell_dependant(dependant, job, error)
        job.publish(JobEvent(job.key, kind, outputs=outputs, error=error))
        self._to_review.append(job.key)

    def _tell_dependant(self, dependant: Job, job: Job, error: OmniStageError | None) -> None:
        """Let a job know that one it waited for, or followed, has ended."""
        if error is not None:
            self._to_fail.append((dependant, error))
        elif dependant.task is not None:
            for output in job.plan.stage.streams:
                self._feed(dependant, job, output, None)
        dependant.waiting.discard(job.key)
        dependant.following.discard(job.key)
        if error is None and not dependant.waiting:
            self._to_advance.append(dependant)

    # steps on the way

    def _requeue(self, job: Job) -> None:
        """Begin an attempt anew; what followed the last one begins anew with it."""
        job.parts.clear()
        for follower in [self.jobs[key] for key in job.dependants]:
            if job.key in follower.following:
                follower.following.discard(job.key)
                follower.waiting.add(job.key)
                self.dispatcher.withdraw(follower)
                self.dispatcher.abandon(follower)
                self._requeue(follower)
                self._to_review.append(follower.key)
        if job.state == "running":
            job.move("queued")
            job.publish(JobEvent(job.key, "queued"))
        self._to_advance.append(job)

    def _let_follow(self, job: Job) -> None:
        """Start the jobs that need not wait for the end of one that has begun."""
        for follower in [self.jobs[key] for key in job.dependants]:
            if job.key in follower.waiting and follower.can_follow(job):
                follower.waiting.discard(job.key)
                follower.following.add(job.key)
                if not follower.waiting:
                    self._to_advance.append(follower)

    def _advance(self, job: Job) -> None:
        """Offer a queued job to the dispatcher, or have it wait for what it needs."""
        if not job.live or job.waiting or job.task is not None:
            return
        gone = [d for d in job.plan.blobs.values() if self.store.blob(d) is None]
        if gone:
            self._fail(job, missing_blobs(gone))
            return
        missing = [plan for plan in job.plan.needs() if not self._is_at_hand(job, plan)]
        if not missing:
            self.dispatcher.offer(job)
            return
        job.evictions += job.has_waited
        if job.evictions > _MAX_EVICTIONS:
            self._fail(job, StoreTooSmall(_EVICTED_WORDS, field="store.budget_mb"))
            return
        job.has_waited = True
        self.dispatcher.withdraw(job)  # it may have been ready: then an input was evicted since
        for plan in missing:
            self._wait_for(job, plan)
        if not job.waiting:
            self.dispatcher.offer(job)

    def _is_at_hand(self, job: Job, plan: Plan) -> bool:
        return plan.key in job.following or self.store.has_result(plan.key)

    def _wait_for(self, job: Job, plan: Plan) -> None:
        parent = self.jobs.get(plan.key)
        if parent is None or not parent.live:
            parent = self.begin(plan, client=job.client, priority=job.priority, previews=False)
        parent.dependants[job.key] = None
        (job.following if job.can_follow(parent) else job.waiting).add(parent.key)

    def _start_due(self) -> None:
        for job in self.dispatcher.due():
            inputs = self._inputs(job)
            if inputs is None:  # evicted while it waited for its turn
                self.dispatcher.withdraw(job)
                self._to_advance.append(job)
            else:
                self._start(job, inputs)

    def _start(self, job: Job, inputs: dict[str, Frame]) -> None:
        followed = [name for name in job.plan.parents if name not in inputs]
        self.dispatcher.start(job, inputs, followed)
        for name in followed:
            plan, output = job.plan.parents[name]
            for part in self.jobs[plan.key].parts.get(output, ()):
                self.dispatcher.feed(job, name, part)

    def _inputs(self, job: Job) -> dict[str, Frame] | None:
        """A job's inputs but for those it follows; None if one is gone."""
        found: dict[str, Frame] = {}
        for name, (plan, output) in job.plan.parents.items():
            if plan.key in job.following:
                continue
            result = self.store.result(plan.key)
            if result is None:
                return None
            found[name] = result[output]
        for name, digest in job.plan.blobs.items():
            blob = self.store.blob(digest)
            if blob is None:
                return None
            found[name] = blob
        return found

    def _review(self, key: str) -> None:
        """Stop a job that nobody wants; let a finished one that nobody holds age."""
        job = self.jobs.get(key)
        if job is None:
            return
        if not job.live:
            self._retire(job)
        elif not self.wanted(job):
            if job.task is None:
                self._cancelled(job)
            else:
                self.dispatcher.stop(job)

    def _put(self, job: Job) -> None:
        self.jobs[job.key] = job
        self.retired.pop(job.key, None)
        self._to_review.append(job.key)

    def _retire(self, job: Job) -> None:
        if self.leases.holds(job.key):
            return
        self.retired[job.key] = None
        while len(self.retired) > self.limits.records:
            oldest, _ = self.retired.popitem(last=False)
            del self.jobs[oldest]
            self.store.drop_result(oldest)


_EVICTED_WORDS = (
    "What this job needs does not fit the runtime's result store at the same time. "
    "Raise store.budget_mb, or ask for less at once."
)


def missing_blobs(digests: Iterable[str]) -> MissingBlobs:
    """The error that asks for uploads."""
    wanted = sorted(set(digests))
    return MissingBlobs(
        f"The runtime does not hold {len(wanted)} upload(s) this needs; upload and submit again.",
        field="inputs",
        value=wanted,
    )


def _lost_words(job: Job, reason: str) -> str:
    times = "once" if job.losses == 1 else f"{job.losses} times"
    return f"The engine stopped {times} before this job was done. Last cause: {reason}"
