"""A job, and the table of its legal transitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..protocol.frames import Frame
from ..protocol.messages import JobEvent
from .events import News, Subscription
from .keys import Plan

JobState = Literal["queued", "running", "done", "failed", "cancelled"]

LEGAL: dict[JobState, frozenset[JobState]] = {
    "queued": frozenset({"running", "failed", "cancelled"}),
    # Back to queued: the engine died, or the job was wanted again while it was being stopped.
    "running": frozenset({"queued", "done", "failed", "cancelled"}),
    "done": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}


@dataclass(slots=True, eq=False)
class Job:
    """One run of a plan. A finished job stays as it ended; another run is another job.

    Attributes:
        client: whose share the work counts towards.
        waiting: keys of the jobs whose results this one waits for.
        following: keys of the running jobs whose outputs this one takes part by part.
        dependants: keys of the jobs that wait for this one's results, or follow it, in the order
            in which they came.
        parts: what its attempt has told of its streamed outputs so far.
        task: the attempt that is with the engine.
        stopping: the engine was told to cancel the attempt.
        losses: times an engine died with it, or could not start for it.
        suspect: it was with engines that died, so that its last try is to be alone.
        evictions: times results it needed were gone when it was about to start.
    """

    plan: Plan
    client: str
    priority: int = 0
    previews: bool = False
    state: JobState = "queued"
    waiting: set[str] = field(default_factory=set)
    following: set[str] = field(default_factory=set)
    dependants: dict[str, None] = field(default_factory=dict)
    parts: dict[str, list[Frame]] = field(default_factory=dict)
    task: str | None = None
    stopping: bool = False
    losses: int = 0
    suspect: bool = False
    evictions: int = 0
    has_waited: bool = False
    news: News = field(default_factory=News)
    subscribers: set[Subscription] = field(default_factory=set)

    @property
    def key(self) -> str:
        """The plan's key."""
        return self.plan.key

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return bool(LEGAL[self.state])

    def takes(self, parent: Plan) -> dict[str, str]:
        """The inputs that come from another plan, to the outputs of it that they take."""
        found = self.plan.parents.items()
        return {name: output for name, (plan, output) in found if plan.key == parent.key}

    def can_follow(self, parent: Job) -> bool:
        """Whether it can take what it needs of a running job part by part."""
        if parent.task is None or parent.state != "running":
            return False
        edges = self.takes(parent.plan).items()
        stage, source = self.plan.stage, parent.plan.stage
        return all(name in stage.follows and output in source.streams for name, output in edges)

    def move(self, state: JobState) -> None:
        """Change state.

        Raises:
            AssertionError: the transition is not legal.
        """
        assert state in LEGAL[self.state], f"job {self.key}: {self.state} -> {state}"
        self.state = state

    def publish(self, event: JobEvent) -> None:
        """Tell every follower, now and to come; who comes after the end sees the end alone."""
        self.news.add(event)
        for subscriber in self.subscribers:
            subscriber.push(event)
        if event.final:
            self.subscribers.clear()
            self.news = News([event])

    def subscribe(self) -> Subscription:
        """A new follower."""
        subscription = Subscription(self.news)
        if self.live:
            self.subscribers.add(subscription)
        return subscription
