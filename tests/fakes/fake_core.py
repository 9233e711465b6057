"""An engine core that batches whatever it has and computes hashes; no torch.

`params["trouble"]`:  `error`  the task fails        `raise`  the core breaks
                      `kill`   its process is killed  `kill-once:FILE`  the first time only
                      `exit`   its process ends with some last words
"""

import json
import os
import signal
import time
from hashlib import sha256
from pathlib import Path

import numpy as np

from omnistage.runtime.engine.core import EngineEvent
from omnistage.runtime.protocol.errors import JobFailed
from omnistage.runtime.protocol.frames import Frame, Tensor

KINDS = {
    "encode": ("conditioning",),
    "sample": ("latent",),
    "decode": ("images",),
    "load": ("latent",),
    "think": ("hidden", "text"),
    "talk": ("codes",),
    "sound": ("audio",),
}
JPEG = b"\xff\xd8 a picture \xff\xd9"


def build(config):
    """The entry point; `config` may hold `step_s`, and `broken` makes it fail."""
    if config.get("broken"):
        raise RuntimeError("no such device")
    return FakeCore(**config)


class FakeCore:
    def __init__(self, step_s=0.0):
        self.step_s = step_s
        self.tasks = {}
        self.steps = {}
        self.fed = {}
        self.cancels = set()
        self.forwards = 0

    def submit(self, task):
        assert task.id not in self.tasks
        self.tasks[task.id] = task
        self.steps[task.id] = -1

    def feed(self, task, name, part):
        if task in self.tasks:
            assert name in self.tasks[task].followed
            self.fed.setdefault(task, []).append(part)

    def cancel(self, task):
        if task in self.tasks:
            self.cancels.add(task)

    @property
    def busy(self):
        return bool(self.tasks)

    def step(self):
        events = [self._end(name, "cancelled") for name in self.cancels]
        self.cancels.clear()
        batch = len(self.tasks)
        if batch:
            time.sleep(self.step_s)
            self.forwards += 1
        for task in list(self.tasks.values()):
            events += self._step(task, batch)
        return events

    def stats(self):
        return {"forwards": self.forwards, "running": len(self.tasks)}

    def check_integrity(self):
        assert self.tasks.keys() == self.steps.keys() >= self.cancels

    def _step(self, task, batch):
        """A task that follows inputs tells each part of them as a part of its own, and ends."""
        if task.followed:
            return self._follow(task)
        self.steps[task.id] += 1
        step, total = self.steps[task.id], task.params["steps"]
        if step == 0:
            return [EngineEvent(task.id, "started")]
        make_trouble(task.params["trouble"])
        if task.params["trouble"] == "error":
            error = JobFailed("The stage did not feel like it.", stage=task.stage)
            return [self._end(task.id, "failed", error=error)]
        facts = {"step": step, "total": total, "batch": batch}
        events = [EngineEvent(task.id, "progress", **facts)]
        if task.previews:
            events.append(EngineEvent(task.id, "preview", image=JPEG, **facts))
        if step == total:
            events.append(self._end(task.id, "done", outputs=result_of(task)))
        return events

    def _follow(self, task):
        fed = self.fed.pop(task.id, [])
        kind = KINDS[task.stage][0]
        events = [EngineEvent(task.id, "part", outputs={kind: part}) for part in fed if part]
        if None in fed:
            events.append(self._end(task.id, "done", outputs=result_of(task)))
        return events

    def _end(self, name, kind, **facts):
        del self.tasks[name], self.steps[name]
        return EngineEvent(name, kind, **facts)


def make_trouble(kind):
    if kind == "raise":
        raise RuntimeError("the core is broken")
    if kind == "exit":
        os.write(1, b"no more of this\n")
        os._exit(7)
    name, _, file = kind.partition(":")
    if name == "kill" or (name == "kill-once" and not Path(file).exists()):
        if file:
            Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def result_of(task):
    """The task's outputs: values that depend on all that a result may depend on."""
    inputs = {k: v.tensors["x"].array.tobytes().hex()[:64] for k, v in task.inputs.items()}
    seed = sha256(json.dumps([task.stage, dict(task.params), inputs], sort_keys=True).encode())
    values = np.frombuffer(seed.digest(), np.uint8)
    x = np.resize(values, task.params["size"]).astype(np.float32) / 255
    if task.stage == "decode":
        x = np.resize(values, (2, 4, 4, 3)).astype(np.float32) / 255
        return {"images": Frame({"kind": "images"}, {"images": Tensor.of(x)})}
    return {kind: Frame({"kind": kind}, {"x": Tensor.of(x)}) for kind in KINDS[task.stage]}
