"""An engine in a process of its own: a crash of the engine is not a crash of the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

from ..engine.core import StageTask
from ..protocol.frames import Frame
from .backoff import Backoff
from .child import Child, Output, StartChild, end, in_words, start_worker
from .codec import LENGTH, event_from_frame, pack, part_to_frame, task_to_frame
from .core_spec import CoreSpec
from .executor import ExecutorListener

log = logging.getLogger(__name__)

_STREAM_LIMIT_BYTES = 16 << 20


class ProcessExecutor:
    """Starts the worker, talks frames with it, and starts another when it dies.

    The child ends when its socket closes, so it never outlives this process, however that ends.

    Args:
        spec: how to build the core.
        start: starts the worker: in a fresh interpreter, or `ForkServer.start_worker`.
        backoff: when to start the next one.
    """

    def __init__(
        self,
        spec: CoreSpec,
        *,
        start: StartChild = start_worker,
        backoff: Backoff | None = None,
    ) -> None:
        self._spec = spec
        self._start = start
        self._backoff = backoff or Backoff()
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        self._child: Child | None = None
        self._broken: str | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._ready = False
        self._restarts = 0
        self._stats: dict[str, Any] = {}

    async def start(self, listener: ExecutorListener) -> None:
        """See `Executor.start`."""
        self._listener = listener
        self._supervisor = asyncio.create_task(self._supervise())
        self._supervisor.add_done_callback(_log_crash)

    async def stop(self) -> None:
        """See `Executor.stop`."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        self._ready = False

    def submit(self, task: StageTask) -> None:
        """See `Executor.submit`."""
        self._send(task_to_frame(task))

    def feed(self, task: str, name: str, part: Frame | None) -> None:
        """See `Executor.feed`."""
        self._send(part_to_frame(task, name, part))

    def cancel(self, task: str) -> None:
        """See `Executor.cancel`."""
        self._send(Frame({"kind": "cancel", "id": task}))

    @property
    def ready(self) -> bool:
        """See `Executor.ready`."""
        return self._ready

    @property
    def restarts(self) -> int:
        """See `Executor.restarts`."""
        return self._restarts

    @property
    def pid(self) -> int | None:
        """Process id of the engine, while there is one."""
        return None if self._child is None else self._child.pid

    def stats(self) -> dict[str, Any]:
        """See `Executor.stats`."""
        return self._stats

    def _send(self, frame: Frame) -> None:
        if self._writer is None:
            self._unsent.append(pack(frame))
        else:
            self._writer.write(pack(frame))

    async def _supervise(self) -> None:
        while True:
            try:
                reason = await self._run_once()
            except OSError as error:
                reason = f"it could not be started: {error}"
            was_ready, self._ready = self._ready, False
            log.error("the engine process ended: %s", reason)
            self._restarts += 1
            delay_s = self._backoff.died()
            self._unsent.clear()
            self._listener.on_lost(self._spec.engine, reason, was_ready=was_ready)
            await asyncio.sleep(delay_s)

    async def _run_once(self) -> str:
        """Run one engine process to its end; returns why it ended."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours, limit=_STREAM_LIMIT_BYTES)
        try:
            with theirs:
                child = await self._start(theirs)
            return await self._talk(child, reader, writer)
        finally:
            writer.close()

    async def _talk(
        self, child: Child, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str:
        self._child = child
        output = Output(child)
        try:
            self._connect(writer)
            await self._read_events(reader)
        finally:
            self._writer = None
            writer.close()
            code = await end(child)
            await output.end()
            self._child = None
        return self._broken or in_words(code, output)

    def _connect(self, writer: asyncio.StreamWriter) -> None:
        self._broken = None
        writer.write(pack(Frame(self._spec.to_json())))
        writer.writelines(self._unsent)
        self._unsent.clear()
        self._writer = writer

    async def _read_events(self, reader: asyncio.StreamReader) -> None:
        """Read frames until the child closes the socket, or dies."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                self._take(Frame.decode(await reader.readexactly(length), limit_bytes=length))

    def _take(self, frame: Frame) -> None:
        match frame.header["kind"]:
            case "event":
                self._listener.on_event(event_from_frame(frame))
            case "stats":
                self._stats = dict(frame.header["stats"])
            case "ready":
                self._ready = True
                self._backoff.came_up()
            case "broken":
                self._broken = frame.header["reason"]


def _log_crash(supervisor: asyncio.Task[None]) -> None:
    if not supervisor.cancelled():
        log.critical("the engine is no longer looked after", exc_info=supervisor.exception())
