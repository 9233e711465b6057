"""What clients can ask of the runtime's jobs.

Everything here happens on one event loop, and no method waits for anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..executor.executor import Executor
from ..models.catalogue import Catalogue
from ..protocol.errors import InvalidRequest, NotFound, QueueFull, ResultGone
from ..protocol.frames import Frame
from ..protocol.messages import SubmitReply, SubmitRequest
from .events import Subscription
from .integrity import check_integrity
from .jobs import Job
from .keys import Plan, plan_recipe
from .leases import Leases
from .lifecycle import Lifecycle, Limits, missing_blobs
from .store import Store

_MAX_NAME = 200


class Orchestrator:
    """Joins the jobs of all clients by content and answers for them.

    `listener` is to be given to the executor when that is started.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        executor: Executor,
        store: Store,
        leases: Leases,
        limits: Limits | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._store = store
        self._leases = leases
        self._life = Lifecycle(executor, store, leases, limits or Limits())

    @property
    def listener(self) -> Lifecycle:
        """Whom the executor reports to."""
        return self._life

    @property
    def last_loss(self) -> str | None:
        """Why the engine died the last time; None if it never did."""
        return self._life.last_loss

    def submit(self, request: SubmitRequest) -> SubmitReply:
        """Join or start a request's jobs: all of them, or none.

        The last jobs of the recipe are made sure of; those before them run only if needed.

        Raises:
            InvalidRequest: a job is wrong.
            MissingBlobs: uploads that are needed are not here.
            QueueFull: too many jobs wait already.
        """
        _check_name("owner", request.owner)
        _check_name("client", request.client)
        plans = plan_recipe(request.recipe, self._catalogue, self._blob_kind)
        by_key = {plan.key: plan for plan in plans.values()}
        missing = self._missing(by_key)
        self._check_blobs(by_key[key] for key in missing)
        self._check_room(len(missing))
        self._life.hold(request.owner, by_key)
        for key, plan in by_key.items():
            self._enter(plan, request, run=key in missing)
        states = {name: self._life.jobs[plan.key].state for name, plan in plans.items()}
        self._life.settle()
        return SubmitReply(
            keys={name: plan.key for name, plan in plans.items()},
            states=states,
            params={name: plan.params for name, plan in plans.items()},
        )

    def put_blob(self, digest: str, frame: Frame) -> None:
        """Keep an upload.

        Raises:
            StoreTooSmall: it exceeds the store.
        """
        self._store.put_blob(digest, frame)

    def job(self, key: str) -> Job:
        """The job of that key.

        Raises:
            NotFound: there is none, or it is long over.
        """
        job = self._life.jobs.get(key)
        if job is None:
            raise NotFound(f"There is no job {key!r} on this runtime.", job=key)
        return job

    def output(self, key: str, name: str) -> Frame:
        """A result.

        Raises:
            NotFound: no such job or output, or the job has not finished.
            ResultGone: it has left the store.
        """
        job = self.job(key)
        stage = job.plan.stage
        if name not in stage.outputs:
            raise NotFound(
                f"Stage {stage.name} has no output {name!r}.",
                field="output",
                value=name,
                allowed=", ".join(stage.outputs),
                job=key,
            )
        if job.state != "done":
            raise NotFound(f"Job {key} is {job.state}: it has no results.", job=key)
        outputs = self._store.result(key)
        if outputs is None:
            raise ResultGone(
                "The result has left the runtime's store; submit the job again to recompute it.",
                job=key,
                stage=stage.name,
            )
        return outputs[name]

    def subscribe(self, key: str) -> Subscription:
        """Follow a job; end with `unsubscribe`.

        Raises:
            NotFound: there is no such job.
        """
        return self.job(key).subscribe()

    def unsubscribe(self, key: str, subscription: Subscription) -> None:
        """Stop following a job, whatever became of it."""
        job = self._life.jobs.get(key)
        if job is not None:
            job.subscribers.discard(subscription)

    def renew(self, owners: Iterable[str]) -> list[str]:
        """Extend leases; returns the owners that have none."""
        return [owner for owner in owners if not self._leases.renew(owner)]

    def release(self, owner: str) -> None:
        """End an owner's lease; jobs that nobody wants any more are stopped."""
        self._life.release(owner)

    def expire(self) -> None:
        """Release the leases whose time is up."""
        for owner in self._leases.expired():
            self._life.release(owner)

    def stats(self) -> dict[str, Any]:
        """Counters and gauges as plain JSON."""
        live = Counter(job.state for job in self._life.jobs.values() if job.live)
        finished, batches = self._life.finished, self._life.batches
        return {
            "jobs": {"queued": live["queued"], "running": live["running"]},
            "finished": {kind: finished[kind] for kind in ("done", "failed", "cancelled")},
            "remembered": len(self._life.jobs),
            "batches": {str(size): batches[size] for size in sorted(batches)},
            "leases": len(self._leases),
            "store": {
                "bytes": self._store.used_bytes,
                "budget_bytes": self._store.budget_bytes,
                "items": len(self._store),
                "evictions": self._store.evictions,
            },
            "engines": self._executor.stats(),
        }

    def check_integrity(self) -> None:
        """Raise AssertionError if the tables contradict each other or leak."""
        check_integrity(self._life)

    def _blob_kind(self, digest: str) -> str | None:
        frame = self._store.blob(digest)
        return None if frame is None else str(frame.header.get("kind"))

    def _missing(self, plans: Mapping[str, Plan]) -> set[str]:
        """Keys of the plans that have to run: the last ones, and what they need, unless here."""
        needed = {parent.key for plan in plans.values() for parent in plan.needs()}
        asked = {key for key in plans if key not in needed}
        missing: set[str] = set()
        for key, plan in reversed(list(plans.items())):  # each comes after what it needs
            job = self._life.jobs.get(key)
            here = self._store.has_result(key) or (job is not None and job.live)
            if key in asked and not here:
                missing.add(key)
                asked |= {parent.key for parent in plan.needs()}
        return missing

    def _enter(self, plan: Plan, request: SubmitRequest, *, run: bool) -> None:
        job = self._life.jobs.get(plan.key)
        if run:
            self._life.begin(
                plan, client=request.client, priority=request.priority, previews=request.previews
            )
        elif job is None:
            self._life.recall(plan)
        else:
            job.priority = max(job.priority, request.priority)
            job.previews = job.previews or request.previews

    def _check_blobs(self, plans: Iterable[Plan]) -> None:
        wanted = [digest for plan in plans for digest in plan.blobs.values()]
        gone = [digest for digest in wanted if self._store.blob(digest) is None]
        if gone:
            raise missing_blobs(gone)

    def _check_room(self, new: int) -> None:
        limit = self._life.limits.queued_jobs
        waiting = sum(job.state == "queued" for job in self._life.jobs.values())
        if waiting + new > limit:
            raise QueueFull(
                f"{waiting} jobs wait already and this adds {new}; the runtime takes {limit}. "
                "Try again later, or raise server.max_queued_jobs.",
                field="jobs",
                value=new,
                allowed=f"at most {max(0, limit - waiting)} now",
            )


def _check_name(field: str, name: str) -> None:
    if not 0 < len(name) <= _MAX_NAME:
        raise InvalidRequest(
            f"`{field}` must have 1 to {_MAX_NAME} characters; it has {len(name)}.",
            field=field,
            allowed=f"1 to {_MAX_NAME} characters",
        )
