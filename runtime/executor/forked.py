"""Engine processes that are forked from one which has done the slow imports.

Not the fork server of `multiprocessing`: it pickles what the child is to run, gives all children
its own output, hides what goes wrong in its imports, and is one per interpreter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from contextlib import ExitStack, suppress
from typing import IO

from .child import Child, Output, end, in_words, spawn, start_worker
from .zygote import NUMBER, REQUEST

log = logging.getLogger(__name__)

_ZYGOTE = f"{__package__}.zygote"


class ForkServer:
    """Starts engine processes in a fraction of the time that their imports take.

    Its own process starts with the first engine. If that process dies, running engines go on, and
    the next engine starts it anew; if it cannot do its work, engines start in fresh interpreters.

    Args:
        preload: `module:function`; the function does the imports. It must start no thread and
            leave GPUs alone.
    """

    def __init__(self, preload: str) -> None:
        self._preload = preload
        self._starting = asyncio.Lock()
        self._zygote: _Zygote | None = None

    async def start_worker(self, connection: socket.socket) -> Child:
        """Start an engine process; a `StartChild`."""
        try:
            return await self._fork(connection)
        except OSError as error:
            log.warning("cannot fork an engine process, so it starts afresh: %s", error)
            return await start_worker(connection)

    async def stop(self) -> None:
        """End the process that forks; engines are not touched."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            await zygote.end()

    @property
    def pid(self) -> int | None:
        """Process id of the process that forks, while there is one."""
        return None if self._zygote is None else self._zygote.process.pid

    async def _fork(self, connection: socket.socket) -> Child:
        while True:
            zygote = await self._running()
            child = await zygote.fork(connection)
            if child is not None:
                return child
            if not zygote.has_forked:
                raise ChildProcessError(f"the process that forks is gone: {await zygote.end()}")

    async def _running(self) -> _Zygote:
        async with self._starting:
            if self._zygote is not None and not self._zygote.alive:
                log.error("the process that forks engines is gone: %s", await self._zygote.end())
                self._zygote = None
            if self._zygote is None:
                self._zygote = await _Zygote.start(self._preload)
            return self._zygote


class _Zygote:
    """The process that forks."""

    def __init__(self, process: Child, control: socket.socket) -> None:
        self.process = process
        self._control = control
        self._output = Output(process)
        self._ending: asyncio.Task[str] | None = None
        self.has_forked = False

    @classmethod
    async def start(cls, preload: str) -> _Zygote:
        ours, theirs = _socket_pair()
        with theirs, ExitStack() as undo:
            undo.enter_context(ours)
            process = await spawn(_ZYGOTE, theirs, preload)
            undo.pop_all()
        return cls(process, ours)

    @property
    def alive(self) -> bool:
        """Whether the other end of its socket is open."""
        try:
            return bool(self._control.recv(1, socket.MSG_PEEK))
        except BlockingIOError:  # it never sends anything
            return True
        except OSError:
            return False

    async def fork(self, connection: socket.socket) -> Child | None:
        """Ask for an engine process; None if this one dies instead."""
        status, theirs = _socket_pair()
        with ExitStack() as undo:
            undo.enter_context(status)
            output, transport, descriptor = await _open_pipe()
            undo.callback(transport.close)
            with theirs, os.fdopen(descriptor, "wb") as printed:
                self._send(connection, printed, theirs)
            pid = await _receive(status)
            if pid is None:
                return None
            undo.pop_all()
        self.has_forked = True
        return _Forked(pid, output, status)

    def _send(self, *files: socket.socket | IO[bytes]) -> None:
        with suppress(ConnectionError):  # it is gone, as nobody's answer will show
            socket.send_fds(self._control, [REQUEST], [file.fileno() for file in files])

    async def end(self) -> str:
        """Have it end; returns how it ended, in words. May be repeated."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        return await asyncio.shield(self._ending)

    async def _end(self) -> str:
        self._control.close()
        code = await end(self.process)
        await self._output.end()
        return in_words(code, self._output)


class _Forked:
    """An engine process whose parent is the process that forks."""

    def __init__(self, pid: int, output: asyncio.StreamReader, status: socket.socket) -> None:
        self.pid = pid
        self.output = output
        self._status = status

    async def wait(self) -> int | None:
        code = await _receive(self._status)
        self._status.close()
        if code is None:  # its parent is gone, so that its end cannot be waited for
            self.kill()
        return code

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Our end, for the event loop, and theirs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


async def _open_pipe() -> tuple[asyncio.StreamReader, asyncio.ReadTransport, int]:
    """A pipe's reading end, which closes when all writers have closed, and its writing end."""
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
    )
    return reader, transport, theirs


async def _receive(status: socket.socket) -> int | None:
    """The next number, or None when the other end is closed."""
    data = await asyncio.get_running_loop().sock_recv(status, NUMBER.size)
    return NUMBER.unpack(data)[0] if data else None
