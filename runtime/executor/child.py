"""A child process of the server: started on a socket, listened to, and ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

log = logging.getLogger(__name__)

WORKER = f"{__package__}.worker"
"""The main program of an engine process."""

_ENVIRONMENT = {
    # Engines run side by side. Their OpenMP threads must sleep when they wait for each other: by
    # default they spin, and take the cores from the engine that has work.
    "OMP_WAIT_POLICY": "PASSIVE",
    # A process keeps up to 1 GiB that its tensors have freed. By default glibc gives it back, and
    # on a CPU each large layer waits for the same pages to be zeroed again. Weights of 64 MiB and
    # more still go back at once, so that a model that is evicted makes room.
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
"""What a child is told, unless the server's own environment says otherwise."""

_EXIT_TIMEOUT_S = 5.0
_TAIL_LINES = 15


class Child(Protocol):
    """A process that ends when the socket it was started on is closed."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def output(self) -> asyncio.StreamReader:
        """What it prints, to standard output and standard error."""

    async def wait(self) -> int | None:
        """Wait for its end.

        Returns:
            Its exit code, `-N` if signal N killed it, None if nobody saw how it ended.
        """

    def kill(self) -> None:
        """Send SIGKILL; harmless when it has ended."""


StartChild = Callable[[socket.socket], Awaitable[Child]]
"""Starts an engine process on one end of a socket pair, which the caller closes afterwards.

Raises OSError when no process can be started.
"""


class Output:
    """What a child prints: logged line by line, the last lines kept for the report of its end."""

    def __init__(self, child: Child) -> None:
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._task = asyncio.create_task(self._read(child.output))

    async def end(self) -> None:
        """Wait for the rest of it."""
        await self._task

    async def _read(self, output: asyncio.StreamReader) -> None:
        rest = ""
        while chunk := await output.read(1 << 16):
            *lines, rest = (rest + chunk.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
            for line in filter(str.strip, lines):
                log.info("%s", line)
                self.tail.append(line)


async def spawn(program: str, connection: socket.socket, *arguments: str) -> Child:
    """Start `python -m PROGRAM FD ARGUMENTS...` in a fresh interpreter.

    Args:
        program: a module's name.
        connection: the socket that FD is; the caller closes it afterwards.
        arguments: further arguments.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", program, str(connection.fileno()), *arguments),
        env=_ENVIRONMENT | os.environ,
        pass_fds=(connection.fileno(),),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,  # Ctrl-C is for the server, which stops the child itself
    )
    return _Spawned(process)


async def start_worker(connection: socket.socket) -> Child:
    """Start an engine process in a fresh interpreter; a `StartChild`."""
    return await spawn(WORKER, connection)


class _Spawned:
    """A child that asyncio watches."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._process = process
        self.pid = process.pid
        self.output = process.stdout

    async def wait(self) -> int | None:
        return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


async def end(child: Child) -> int | None:
    """Wait for a child whose socket is closed, and kill it if it hangs; see `Child.wait`."""
    try:
        return await asyncio.wait_for(child.wait(), _EXIT_TIMEOUT_S)
    except TimeoutError:
        child.kill()
        return await child.wait()


def in_words(code: int | None, output: Output) -> str:
    """How a child ended.

    Args:
        code: what `Child.wait` returned.
        output: what it printed.
    """
    if code == -signal.SIGKILL:
        return "it was killed (SIGKILL); the machine may have run out of memory"
    if code is not None and code < 0:
        return f"it died of {signal.Signals(-code).name}"
    how = "(nobody saw how: its parent was gone)" if code is None else f"with code {code}"
    return "\n".join([f"it ended {how}", *output.tail])
