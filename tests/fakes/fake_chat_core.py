"""An engine core that answers with what it was given, a few characters per step; no model.

The answer is JSON: `messages` as they came, `media` (each tensor's dtype, shape and hash),
`params` and `client`.
"""

import json
import time
from hashlib import sha256
from pathlib import Path

import numpy as np

from omnistage.runtime.engine.core import EngineEvent
from omnistage.runtime.protocol.errors import InvalidRequest, JobFailed
from omnistage.runtime.protocol.frames import Frame, Tensor

PIECE = 24


def build(config):
    return FakeChatCore(**config)


class FakeChatCore:
    """Each step writes a piece, which counts as a token.

    Args:
        say: the answer, instead of what was given.
        then: the answer after a crash, instead of the same again.
        trouble: what happens after `at` pieces: `crash` (once, if there is a `folder`), `fail`,
            `fault` and `prompt` (failures that are the request's fault), or nothing more than a
            pause.
        at: None: never.
        folder: the trouble waits for a file `go` in it; `crashed` is there after the crash.
        endless: it says the answer again and again.
    """

    def __init__(self, say=None, then=None, trouble="", at=None, folder="", endless=False):
        self.crashed = folder and Path(folder, "crashed").exists()
        self.say = then if self.crashed and then is not None else say
        self.trouble = trouble
        self.at = None if self.crashed else at
        self.folder = folder
        self.endless = endless
        self.tasks = {}
        self.written = {}
        self.fed = {}
        self.made = {}

    def submit(self, task):
        self.tasks[task.id] = task

    def feed(self, task, name, part):
        if self.tasks.get(task):
            self.fed.setdefault(task, []).append(part)

    def cancel(self, task):
        if task in self.tasks:
            self.tasks[task] = None

    @property
    def busy(self):
        return bool(self.tasks)

    def step(self):
        return [event for name in list(self.tasks) for event in self._step(name)]

    def stats(self):
        return {"running": len(self.tasks)}

    def check_integrity(self):
        assert self.written.keys() <= self.tasks.keys()

    def _step(self, name):
        task = self.tasks[name]
        if task is None:
            return [self._end(name, "cancelled")]
        if name not in self.written:
            self.written[name] = 0
            return [EngineEvent(name, "started")]
        return self._think(name, task) if task.stage == "thinker" else self._speak(name, task)

    def _think(self, name, task):
        count = self.written[name]
        if count == self.at and self.folder and not Path(self.folder, "go").exists():
            time.sleep(0.001)
            return []
        if count == self.at and self.trouble:
            return [self._end(name, "failed", error=self._error())]
        answer = answer_to(task) if self.say is None else self.say
        pieces = [answer[at : at + PIECE] for at in range(0, len(answer), PIECE)]
        limit = task.params["max_tokens"]
        if not self.endless and count == min(len(pieces), limit):
            reason = "length" if limit < len(pieces) else "stop"
            outputs = outputs_of(task, "".join(pieces[:limit]), reason, count)
            return [self._end(name, "done", outputs=outputs)]
        if self.endless:
            time.sleep(0.001)
        self.written[name] += 1
        step = {"step": count + 1, "total": limit, "batch": len(self.tasks)}
        piece = pieces[count % len(pieces)]
        hidden = Frame({"kind": "hidden", "text": piece})
        return [
            EngineEvent(name, "text", text=piece),
            EngineEvent(name, "part", outputs={"hidden": hidden}),
            EngineEvent(name, "progress", **step),
        ]

    def _speak(self, name, task):
        """Turn what was fed since the last step into codes, or sound."""
        whole = [frame for frame in task.inputs.values() if name not in self.fed]
        fed = self.fed.pop(name, []) or ([*whole, None] if whole else [])
        parts = [part_of(task, part) for part in fed if part is not None]
        made = self.made.setdefault(name, [])
        made += parts
        (output,) = {"talker": ("codes",), "codec_decode": ("audio",)}[task.stage]
        events = [EngineEvent(name, "part", outputs={output: part}) for part in parts]
        if None in fed:
            events.append(self._end(name, "done", outputs={output: joined(self.made.pop(name))}))
        return events

    def _error(self):
        if self.trouble == "crash":
            if self.folder:
                Path(self.folder, "crashed").touch()
            raise RuntimeError("the core is broken")
        if self.trouble == "prompt":
            return InvalidRequest("The prompt is too long.", field="prompt")
        if self.trouble == "fault":
            return InvalidRequest("The history is too long.", field="history[0].content")
        return JobFailed("The thinker lost its thread.")

    def _end(self, name, kind, **facts):
        del self.tasks[name]
        self.written.pop(name, None)
        self.fed.pop(name, None)
        return EngineEvent(name, kind, **facts)


SAMPLES = 480


def part_of(task, part):
    """Each character is a code, and each code a stretch of sound as loud as the code."""
    if task.stage == "talker":
        codes = np.array([ord(character) for character in part.header["text"]], np.int64)
        return Frame({"kind": "codes", "voice": task.params["voice"]}, {"codes": Tensor.of(codes)})
    sound = np.repeat(part.tensors["codes"].array / 1000, SAMPLES).astype(np.float32)
    return Frame({"kind": "audio", "rate": 24000}, {"waveform": Tensor.of(sound[None, None])})


def said(sound):
    """The text that a sound is."""
    return "".join(chr(round(float(level) * 1000)) for level in sound[SAMPLES // 2 :: SAMPLES])


def joined(parts):
    """Parts as a whole."""
    (name,) = parts[0].tensors
    arrays = [part.tensors[name].array for part in parts]
    return Frame(parts[0].header, {name: Tensor.of(np.concatenate(arrays, axis=-1))})


def answer_to(task):
    """What it was given, or what it was told to say."""
    if task.params["answer"]:
        return task.params["answer"]
    history = task.inputs["history"]
    media = {
        name: [t.tag, list(t.array.shape), sha256(t.array.tobytes()).hexdigest()]
        for name, t in history.tensors.items()
    }
    given = {
        "messages": history.header["messages"],
        "media": media,
        "params": dict(task.params),
        "client": task.client,
    }
    return json.dumps(given, ensure_ascii=False)


def outputs_of(task, text, reason, count):
    facts = {
        "text": text,
        "finish_reason": reason,
        "prompt_tokens": len(history_of(task).header["messages"]),
        "completion_tokens": count,
        "cached_tokens": 1,
    }
    return {
        "text": Frame({"kind": "text", **facts}),
        "hidden": Frame({"kind": "hidden", **facts}),
        "history": history_of(task),
    }


def history_of(task):
    return task.inputs.get("history") or Frame({"kind": "chat", "messages": []})
