"""What followers of a job see: its latest news, whole if they keep up, coalesced if not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..protocol.messages import FINAL_KINDS, JobEvent


class News:
    """The latest event of each sort, in order of arrival.

    At most one state (or the end), one progress, one preview, and one text and one `part` of
    each output, which hold all that was written, or made, and not yet read.
    """

    def __init__(self, events: Iterable[JobEvent] = ()) -> None:
        self._latest: dict[str, JobEvent] = {}
        for event in events:
            self.add(event)

    def add(self, event: JobEvent) -> None:
        """Put in an event; it replaces an older one of its sort, or adds to what it continues."""
        sort = "state"
        if event.kind in ("progress", "preview", "text", "part"):
            sort = event.kind + event.output
        if event.final and self._continued():
            sort = "end"  # and not in the place of a `running`, which says that all begins anew
        if event.kind in ("queued", "running"):
            self._latest.clear()  # a new attempt makes the old one's progress void
        older = self._latest.pop(sort, None)
        if older is not None and event.kind in ("text", "part"):
            event = replace(event, text=older.text + event.text, parts=(*older.parts, *event.parts))
        self._latest[sort] = event

    def _continued(self) -> bool:
        return any(event.kind in ("text", "part") for event in self._latest.values())

    def take(self) -> JobEvent | None:
        """Remove and return the oldest event."""
        if not self._latest:
            return None
        return self._latest.pop(next(iter(self._latest)))

    def __iter__(self) -> Iterator[JobEvent]:
        return iter(list(self._latest.values()))

    def __len__(self) -> int:
        return len(self._latest)


class Subscription:
    """One follower of one job: begins with the current state, ends after the final event."""

    def __init__(self, past: Iterable[JobEvent]) -> None:
        self._news = News(past)
        self._wake = asyncio.Event()
        self._ended = False

    def push(self, event: JobEvent) -> None:
        """Tell the follower; never blocks, never grows."""
        self._news.add(event)
        self._wake.set()

    def __len__(self) -> int:
        """Events waiting to be read."""
        return len(self._news)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> JobEvent:
        if self._ended:
            raise StopAsyncIteration
        while (event := self._news.take()) is None:
            self._wake.clear()
            await self._wake.wait()
        self._ended = event.kind in FINAL_KINDS
        return event
