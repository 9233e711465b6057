"""The loop that runs an engine core in one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

from ..engine.core import EngineCore, EngineEvent

Command = Callable[[EngineCore], None]
Inbox = SimpleQueue[Command | None]
"""What to do with the core between two steps; None ends the loop."""

_REPORT_INTERVAL_S = 1.0


def drive(
    core: EngineCore,
    inbox: Inbox,
    emit: Callable[[EngineEvent], None],
    report: Callable[[dict[str, Any]], None],
) -> None:
    """Run the core until the inbox says None.

    Args:
        core: made in this thread.
        inbox: filled by other threads.
        emit: gets every event.
        report: gets the core's stats when it falls idle, and every second while it is busy.
    """
    reported_s = 0.0
    while True:
        if not core.busy or time.monotonic() - reported_s > _REPORT_INTERVAL_S:
            report(core.stats())
            reported_s = time.monotonic()
        for command in _commands(inbox, wait=not core.busy):
            if command is None:
                return
            command(core)
        if core.busy:
            for event in core.step():
                emit(event)


def _commands(inbox: Inbox, *, wait: bool) -> Iterator[Command | None]:
    """What has arrived; with `wait`, at least one."""
    if wait:
        yield inbox.get()
    while True:
        try:
            yield inbox.get_nowait()
        except Empty:
            return
