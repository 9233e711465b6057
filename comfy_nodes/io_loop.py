"""One thread with an event loop of its own, for everything that talks to a runtime.

ComfyUI makes a new event loop for each prompt, so sessions cannot live on the loop that runs
the nodes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class IOLoop:
    """The thread and its loop; started at once, ends with the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever, name="omnistage-io", daemon=True)
        thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the I/O loop; callable from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the I/O loop and await it on the caller's own loop."""
        return await asyncio.wrap_future(self.start(work))
