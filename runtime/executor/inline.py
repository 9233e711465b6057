"""An engine in a thread of this process: for tests, and where one process must do."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..engine.core import StageTask
from ..protocol.frames import Frame
from .backoff import Backoff
from .core_spec import CoreSpec
from .drive import Inbox, drive
from .executor import ExecutorListener

log = logging.getLogger(__name__)


class InlineExecutor:
    """Runs the core in one daemon thread; an exception out of the core counts as a crash."""

    def __init__(self, spec: CoreSpec, *, backoff: Backoff | None = None) -> None:
        self._spec = spec
        self._backoff = backoff or Backoff()
        self._inbox: Inbox = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._stopped = False
        self._ready = False
        self._restarts = 0
        self._stats: dict[str, Any] = {}

    async def start(self, listener: ExecutorListener) -> None:
        """See `Executor.start`."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._launch()

    async def stop(self) -> None:
        """See `Executor.stop`; waits for the step in progress."""
        self._stopped = True
        self._ready = False
        if self._restart is not None:
            self._restart.cancel()
        self._inbox.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def submit(self, task: StageTask) -> None:
        """See `Executor.submit`."""
        self._inbox.put(lambda core: core.submit(task))

    def feed(self, task: str, name: str, part: Frame | None) -> None:
        """See `Executor.feed`."""
        self._inbox.put(lambda core: core.feed(task, name, part))

    def cancel(self, task: str) -> None:
        """See `Executor.cancel`."""
        self._inbox.put(lambda core: core.cancel(task))

    @property
    def ready(self) -> bool:
        """See `Executor.ready`."""
        return self._ready

    @property
    def restarts(self) -> int:
        """See `Executor.restarts`."""
        return self._restarts

    def stats(self) -> dict[str, Any]:
        """See `Executor.stats`."""
        return self._stats

    # in the engine's thread

    def _run(self, inbox: Inbox) -> None:
        try:
            core = self._spec.build()
            self._post(self._came_up)
            drive(
                core,
                inbox,
                lambda event: self._post(lambda: self._listener.on_event(event)),
                lambda stats: self._post(lambda: self._keep(stats)),
            )
        except Exception as error:  # the border of the engine loop
            log.exception("the engine died")
            reason = f"{type(error).__name__}: {error}"
            self._post(lambda: self._died(reason))

    def _post(self, call: Callable[[], None]) -> None:
        """Have `call` made on the event loop, unless this executor was stopped meanwhile."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: None if self._stopped else call())

    # on the event loop

    def _launch(self) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(self._inbox,), name="omnistage-engine", daemon=True
        )
        self._thread.start()

    def _came_up(self) -> None:
        self._ready = True
        self._backoff.came_up()

    def _keep(self, stats: dict[str, Any]) -> None:
        self._stats = stats

    def _died(self, reason: str) -> None:
        was_ready, self._ready = self._ready, False
        self._inbox = SimpleQueue()  # what the dead engine had not taken yet is lost with it
        self._restarts += 1
        self._restart = self._loop.call_later(self._backoff.died(), self._launch)
        self._listener.on_lost(self._spec.engine, reason, was_ready=was_ready)
