"""Main program of the engine process: `python -m ...executor.worker FD`.

FD is one end of a socket pair. The first frame says which core to build; then tasks and
cancellations come in and events go out. When the other end closes, the process ends at once,
in the middle of a forward pass if need be: nobody is left to want its result.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from queue import SimpleQueue

from ..protocol.frames import Frame
from .codec import LENGTH, event_to_frame, pack, part_from_frame, task_from_frame
from .core_spec import CoreSpec
from .drive import Inbox, drive


class Channel:
    """Frames over a blocking socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self._connection.sendall(pack(frame))

    def receive(self) -> Frame | None:
        """The next frame, or None when the other end is closed."""
        prefix = self._read(LENGTH.size)
        if prefix is None:
            return None
        (length,) = LENGTH.unpack(prefix)
        data = self._read(length)
        return None if data is None else Frame.decode(data, limit_bytes=length)

    def _read(self, size: int) -> memoryview | None:
        data = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = self._connection.recv_into(data[filled:])
            if count == 0:
                return None
            filled += count
        return data


def main(descriptor: int) -> None:
    """Serve one core until the socket closes."""
    channel = Channel(socket.socket(fileno=descriptor))
    first = channel.receive()
    if first is None:
        return
    inbox: Inbox = SimpleQueue()
    threading.Thread(target=_receive, args=(channel, inbox), daemon=True).start()
    try:
        core = CoreSpec.from_json(first.header).build()
        channel.send(Frame({"kind": "ready"}))
        drive(
            core,
            inbox,
            lambda event: channel.send(event_to_frame(event)),
            lambda stats: channel.send(Frame({"kind": "stats", "stats": stats})),
        )
    except ConnectionError:
        return  # the server has gone in the middle of a message
    except Exception as error:  # the border of the engine loop
        channel.send(Frame({"kind": "broken", "reason": f"{type(error).__name__}: {error}"}))
        raise


def _receive(channel: Channel, inbox: Inbox) -> None:
    """Put what comes in where the engine's thread takes it; runs in a thread of its own."""
    try:
        while (frame := channel.receive()) is not None:
            _put(frame, inbox)
    except ConnectionError:
        pass  # the server was killed: as good as a closed socket
    finally:
        os._exit(0)


def _put(frame: Frame, inbox: Inbox) -> None:
    match frame.header["kind"]:
        case "submit":
            task = task_from_frame(frame)
            inbox.put(lambda core: core.submit(task))
        case "feed":
            part = part_from_frame(frame)
            inbox.put(lambda core: core.feed(*part))
        case "cancel":
            name: str = frame.header["id"]
            inbox.put(lambda core: core.cancel(name))


def log_to_stderr() -> None:
    """Set up logging as the server, which reads it line by line, likes it."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s: %(message)s")


if __name__ == "__main__":
    log_to_stderr()
    main(int(sys.argv[1]))
