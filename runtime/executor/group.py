"""Many engines as one executor: each is started when it is first needed, and can be unloaded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ..engine.core import EngineEvent, StageTask
from ..protocol.errors import InvalidRequest
from ..protocol.frames import Frame
from .executor import Executor, ExecutorListener

log = logging.getLogger(__name__)

_FINAL = frozenset({"done", "failed", "cancelled"})


class EngineGroup:
    """Engines by name; a task goes to the one that `StageTask.engine` names.

    Args:
        make: the executor of the engine of that name, not started yet.
        eager: engines to start at once.
        idle_s: an engine that had nothing to do for so long is unloaded, unless it is eager;
            None: never.
        on_stop: awaited when all engines have ended.
    """

    def __init__(
        self,
        make: Callable[[str], Executor],
        *,
        eager: Iterable[str] = (),
        idle_s: float | None = None,
        on_stop: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._eager = tuple(eager)
        self._idle_s = idle_s
        self._on_stop = on_stop
        self._clock = clock
        self._members: dict[str, Executor] = {}
        self._tasks: dict[str, str] = {}
        self._used_s: dict[str, float] = {}
        self._leaving: set[str] = set()
        self._starts: set[asyncio.Task[None]] = set()

    async def start(self, listener: ExecutorListener) -> None:
        """See `Executor.start`."""
        self._listener = listener
        for engine in self._eager:
            self._member(engine)

    async def stop(self) -> None:
        """See `Executor.stop`."""
        await asyncio.gather(*(member.stop() for member in self._members.values()))
        self._members.clear()
        if self._on_stop is not None:
            await self._on_stop()

    def submit(self, task: StageTask) -> None:
        """See `Executor.submit`."""
        self._tasks[task.id] = task.engine
        self._member(task.engine).submit(task)

    def feed(self, task: str, name: str, part: Frame | None) -> None:
        """See `Executor.feed`."""
        engine = self._tasks.get(task)
        if engine is not None:
            self._members[engine].feed(task, name, part)

    def cancel(self, task: str) -> None:
        """See `Executor.cancel`."""
        engine = self._tasks.get(task)
        if engine is not None:
            self._members[engine].cancel(task)

    def load(self, engine: str) -> None:
        """Start an engine before it is needed."""
        self._member(engine)

    async def unload(self, engine: str) -> bool:
        """End an engine and free all it holds; it comes back when it is needed.

        Returns:
            Whether it was loaded.

        Raises:
            InvalidRequest: it has work to do.
        """
        if engine in self._tasks.values():
            raise InvalidRequest(
                f"Engine {engine} has work to do; stop that first, or wait for it.",
                field="engine",
                value=engine,
                allowed="an engine without running jobs",
            )
        member = self._members.pop(engine, None)
        if member is None:
            return False
        log.info("unloading engine %s", engine)
        await member.stop()
        return True

    async def unload_all(self) -> list[str]:
        """End all engines; those that have work to do, as soon as they have none.

        Returns:
            Their names.
        """
        engines = list(self._members)
        self._leaving.update(engines)
        await self._let_go()
        return engines

    async def unload_idle(self) -> None:
        """Unload what is to go, and what had nothing to do for too long."""
        await self._let_go()
        if self._idle_s is None:
            return
        busy = set(self._tasks.values())
        for engine in [name for name in self._members if name not in (*self._eager, *busy)]:
            if self._clock() - self._used_s[engine] >= self._idle_s:
                await self.unload(engine)

    async def _let_go(self) -> None:
        """Unload those of the engines that are to go that have no work."""
        for engine in list(self._leaving):
            if engine not in self._tasks.values():
                self._leaving.discard(engine)
                await self.unload(engine)

    def __getitem__(self, engine: str) -> Executor:
        """The executor of a loaded engine."""
        return self._members[engine]

    @property
    def ready(self) -> bool:
        """Whether the engines that start at once are up, or were unloaded until they are needed."""
        eager = [self._members[engine] for engine in self._eager if engine in self._members]
        return all(member.ready for member in eager)

    @property
    def restarts(self) -> int:
        """How often a dead engine was replaced."""
        return sum(member.restarts for member in self._members.values())

    def stats(self) -> dict[str, Any]:
        """By engine: whether it is up, its restarts, and its core's `stats`."""
        return {
            engine: {"ready": member.ready, "restarts": member.restarts, "core": member.stats()}
            for engine, member in self._members.items()
        }

    # what the engines report

    def on_event(self, event: EngineEvent) -> None:
        """See `ExecutorListener.on_event`."""
        if event.kind in _FINAL:
            engine = self._tasks.pop(event.task, None)
            if engine is not None:
                self._used_s[engine] = self._clock()
        self._listener.on_event(event)

    def on_lost(self, engine: str, reason: str, *, was_ready: bool) -> None:
        """See `ExecutorListener.on_lost`."""
        self._tasks = {task: of for task, of in self._tasks.items() if of != engine}
        self._listener.on_lost(engine, reason, was_ready=was_ready)

    def _member(self, engine: str) -> Executor:
        self._used_s[engine] = self._clock()
        member = self._members.get(engine)
        if member is None:
            member = self._members[engine] = self._make(engine)
            start = asyncio.ensure_future(member.start(self))
            self._starts.add(start)
            start.add_done_callback(self._starts.discard)
        return member
