"""Whoever hands tasks to an executor, and tasks for the fake core."""

import asyncio

from omnistage.runtime.engine.core import StageTask


class Listener:
    def __init__(self):
        self.events = []
        self.lost = []
        self.changed = asyncio.Event()

    def on_event(self, event):
        self.events.append(event)
        self.changed.set()

    def on_lost(self, engine, reason, *, was_ready):
        self.lost.append((reason, was_ready))
        self.changed.set()

    async def until(self, condition, timeout_s=30):
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def kinds(self, task):
        return [event.kind for event in self.events if event.task == task]

    async def end_of(self, task):
        await self.until(lambda: any(self.final(k) for k in self.kinds(task)))
        return self.kinds(task)[-1]

    @staticmethod
    def final(kind):
        return kind in ("done", "failed", "cancelled")


def task(
    name="t",
    stage="encode",
    inputs=None,
    previews=False,
    engine="diffusion",
    followed=(),
    **params,
):
    params = {"text": "a", "steps": 1, "size": 16, "trouble": "", **params}
    inputs = inputs or {}
    return StageTask(name, "fake", stage, params, inputs, engine, "client", 3, previews, followed)
