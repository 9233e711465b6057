"""Wakes the nodes that wait, each on the loop of its own prompt, from any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Bell:
    """Rings for everyone who listens now."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Future[None]] = set()

    @contextmanager
    def heard(self) -> Iterator[asyncio.Future[None]]:
        """A future of the running loop that is done once the bell has rung within the context."""
        listener = asyncio.get_running_loop().create_future()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def ring(self) -> None:
        """Tell all who listen; callable from any thread."""
        for listener in self._listeners.copy():
            with suppress(RuntimeError):  # its loop was closed just now
                listener.get_loop().call_soon_threadsafe(_tell, listener)


def _tell(listener: asyncio.Future[None]) -> None:
    if not listener.done():
        listener.set_result(None)
