"""An engine in a process of its own: a crash of the engine is not a crash of the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from typing import Any

from ..engine.core import StageTask
from ..protocol.frames import Frame
from .backoff import Backoff
from .codec import LENGTH, event_from_frame, pack, task_to_frame
from .core_spec import CoreSpec
from .executor import ExecutorListener

log = logging.getLogger(__name__)
engine_log = logging.getLogger(f"{__name__}.engine")

_WORKER = f"{__package__}.worker"
_STREAM_LIMIT_BYTES = 16 << 20
_EXIT_TIMEOUT_S = 5.0
_TAIL_LINES = 15


class ProcessExecutor:
    """Spawns the worker, talks frames with it, and spawns another when it dies.

    The child ends when its socket closes, so it never outlives this process, however that ends.
    """

    def __init__(self, spec: CoreSpec, *, backoff: Backoff | None = None) -> None:
        self._spec = spec
        self._backoff = backoff or Backoff()
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        self._process: Process | None = None
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
        return None if self._process is None else self._process.pid

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
        with theirs:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _WORKER, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                start_new_session=True,  # Ctrl-C is for the server, which stops the engine itself
            )
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        output = asyncio.create_task(_log_output(process, tail))
        reader, writer = await asyncio.open_connection(sock=ours, limit=_STREAM_LIMIT_BYTES)
        try:
            self._connect(writer)
            await self._read_events(reader)
        finally:
            self._writer = None
            writer.close()
            await _end(process)
            await output
            self._process = None
        return self._broken or _reason(process, tail)

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


async def _log_output(process: Process, tail: deque[str]) -> None:
    """Pass on what the child prints, line by line."""
    assert process.stdout is not None
    rest = ""
    while chunk := await process.stdout.read(1 << 16):
        *lines, rest = (rest + chunk.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
        for line in filter(str.strip, lines):
            engine_log.info("%s", line)
            tail.append(line)


async def _end(process: Process) -> None:
    """Wait for a child whose socket is closed; one that hangs is killed."""
    try:
        await asyncio.wait_for(process.wait(), _EXIT_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _reason(process: Process, tail: deque[str]) -> str:
    code = process.returncode or 0
    if code == -signal.SIGKILL:
        return "it was killed (SIGKILL); the machine may have run out of memory"
    if code < 0:
        return f"it died of {signal.Signals(-code).name}"
    return "\n".join([f"it ended with code {code}", *tail])
