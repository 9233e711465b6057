"""An executor that does nothing until the test says what happened."""

from omnistage.runtime.engine.core import EngineEvent
from omnistage.runtime.protocol.errors import JobFailed
from omnistage.runtime.protocol.frames import Frame

from .fake_core import result_of


class FakeExecutor:
    ready = True
    restarts = 0

    def __init__(self):
        self.tasks = {}
        self.cancelled = []
        self.started = set()
        self.fed = {}

    def listen(self, listener):
        self.listener = listener

    async def start(self, listener):
        self.listen(listener)

    async def stop(self):
        pass

    def submit(self, task):
        assert task.id not in self.tasks
        self.tasks[task.id] = task

    def feed(self, task, name, part):
        assert name in self.tasks[task].followed
        fed = self.fed.setdefault((task, name), [])
        assert None not in fed, "fed after the end"
        fed.append(part)

    def cancel(self, task):
        assert task in self.tasks, "cancelled what was never submitted, or has ended"
        self.cancelled.append(task)

    def stats(self):
        return {}

    # what the test says

    def stages(self):
        return [task.stage for task in self.tasks.values()]

    def start_task(self, task):
        if task.id not in self.started:
            self.started.add(task.id)
            self.listener.on_event(EngineEvent(task.id, "started"))

    def progress(self, task, step, **facts):
        self.listener.on_event(EngineEvent(task.id, "progress", step=step, total=9, **facts))

    def write(self, task, text):
        self.listener.on_event(EngineEvent(task.id, "text", text=text))

    def part(self, task, output, value):
        part = Frame({"kind": output, "value": value})
        self.listener.on_event(EngineEvent(task.id, "part", outputs={output: part}))

    def preview(self, task, step):
        event = EngineEvent(task.id, "preview", step=step, total=9, image=b"jpeg")
        self.listener.on_event(event)

    def finish(self, task):
        del self.tasks[task.id]
        self.start_task(task)
        self.listener.on_event(EngineEvent(task.id, "done", outputs=result_of(task)))

    def fail(self, task):
        del self.tasks[task.id]
        self.listener.on_event(EngineEvent(task.id, "failed", error=JobFailed("It broke.")))

    def confirm_cancel(self, task):
        del self.tasks[task.id]
        self.listener.on_event(EngineEvent(task.id, "cancelled"))

    def die(self, *, was_ready=True):
        self.tasks.clear()
        self.listener.on_lost("diffusion", "it was killed", was_ready=was_ready)

    def finish_all(self):
        while self.tasks:
            self.finish(next(iter(self.tasks.values())))
