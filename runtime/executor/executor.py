"""What every executor offers, and what it tells its listener."""

from __future__ import annotations

from typing import Any, Protocol

from ..engine.core import EngineEvent, StageTask
from ..protocol.frames import Frame


class ExecutorListener(Protocol):
    """Whoever handed tasks to an executor; called on the event loop that started it."""

    def on_event(self, event: EngineEvent) -> None:
        """Something happened to a task."""

    def on_lost(self, engine: str, reason: str, *, was_ready: bool) -> None:
        """An engine died: every task handed over so far is lost, and no event of it follows.

        Tasks may be handed over again at once: they wait for the new engine.

        Args:
            engine: its name.
            reason: what happened, in words.
            was_ready: whether the engine had come up at all.
        """


class Executor(Protocol):
    """Hosts an engine core, and brings up a new one when it dies.

    All methods are called on one event loop, and none but `stop` waits for the engine.
    """

    async def start(self, listener: ExecutorListener) -> None:
        """Begin to bring the engine up; tasks may be submitted at once."""

    async def stop(self) -> None:
        """End the engine with whatever it is doing; nothing is reported any more."""

    def submit(self, task: StageTask) -> None:
        """Hand a task to the engine, or keep it until the engine is up."""

    def feed(self, task: str, name: str, part: Frame | None) -> None:
        """Give the next part of an input that a task follows; see `EngineCore.feed`."""

    def cancel(self, task: str) -> None:
        """Stop a task at its next suspension point; unknown or finished ids are ignored."""

    @property
    def ready(self) -> bool:
        """Whether the engine is up."""

    @property
    def restarts(self) -> int:
        """How often a dead engine was replaced."""

    def stats(self) -> dict[str, Any]:
        """The core's latest `stats`; empty before the first."""
