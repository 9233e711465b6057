"""Main program of the fork server: `python -m ...executor.zygote FD MODULE:FUNCTION`.

It calls the function, which makes the slow imports, and then forks an engine process for each
request on FD. A fork has the imports without repeating them. This needs a process that has started
no thread and has not touched a GPU: a fork inherits neither. So nothing else happens here.

FD is one end of a `SOCK_SEQPACKET` pair. A request is `REQUEST` and three descriptors: the engine's
socket, what it is to print to, and the socket on which its process id is sent at once and its exit
code at its end, each packed by `NUMBER`. When the other end of FD closes, the fork server ends;
engines end with their own sockets.
"""

from __future__ import annotations

import gc
import os
import selectors
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass

from . import worker
from .core_spec import entry_point

REQUEST = b"fork"
NUMBER = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class _Engine:
    """A running fork.

    Attributes:
        descriptor: of the process; readable when it has ended.
        status: where its end is reported.
    """

    pid: int
    descriptor: int
    status: socket.socket

    def close(self) -> None:
        os.close(self.descriptor)
        self.status.close()


class Zygote:
    """Forks on request, and reports how the forks end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def run(self) -> int | None:
        """Fork until the control socket closes.

        Returns:
            In a fork, the descriptor of its engine socket; in the fork server itself, None.
        """
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._report(key.data)
                    continue
                request, received, *_ = socket.recv_fds(
                    self._control, len(REQUEST), 3, socket.MSG_CMSG_CLOEXEC
                )
                if not request:
                    return None
                connection, output, status = received
                if self._fork(output, socket.socket(fileno=status)):
                    return connection
                os.close(connection)

    def _fork(self, output: int, status: socket.socket) -> bool:
        """Whether this is the fork."""
        pid = os.fork()
        if pid == 0:
            status.close()
            self._leave(output)
            return True
        os.close(output)
        engine = _Engine(pid, os.pidfd_open(pid), status)
        self._selector.register(engine.descriptor, selectors.EVENT_READ, engine)
        _send(status, pid)
        return False

    def _leave(self, output: int) -> None:
        """In a fork: let go of all that is the fork server's, and print to `output`."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                key.data.close()
        self._selector.close()
        self._control.close()
        os.setsid()
        os.dup2(output, sys.stdout.fileno())
        os.dup2(output, sys.stderr.fileno())
        os.close(output)

    def _report(self, engine: _Engine) -> None:
        _, status = os.waitpid(engine.pid, 0)
        self._selector.unregister(engine.descriptor)
        _send(engine.status, os.waitstatus_to_exitcode(status))
        engine.close()


def _send(status: socket.socket, number: int) -> None:
    with suppress(ConnectionError):  # whoever asked for the engine may no longer care
        status.send(NUMBER.pack(number))


def _check_no_gpu_was_touched() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("the imports have initialised CUDA, which a fork cannot use")


def main(descriptor: int, preload: str) -> None:
    """Be the fork server, and in each fork the worker."""
    entry_point(preload)()
    _check_no_gpu_was_touched()
    sys.stdout.flush()
    gc.freeze()  # a collection must not write to the memory that the forks share
    connection = Zygote(socket.socket(fileno=descriptor)).run()
    if connection is not None:
        worker.main(connection)


if __name__ == "__main__":
    worker.log_to_stderr()
    main(int(sys.argv[1]), sys.argv[2])
