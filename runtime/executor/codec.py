"""Tasks and events as frames, and frames on a socket; no pickle crosses the border.

On the socket each frame follows its length as 8 little-endian bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..engine.core import EngineEvent, StageTask
from ..protocol.errors import OmniStageError
from ..protocol.frames import Frame, Tensor, merge_frames, split_frames

LENGTH = struct.Struct("<Q")


def pack(frame: Frame) -> bytes:
    """A frame as it travels on the socket."""
    data = frame.encode()
    return LENGTH.pack(len(data)) + data


def task_to_frame(task: StageTask) -> Frame:
    """A task with all its inputs."""
    inputs, tensors = merge_frames(task.inputs)
    header = {
        "kind": "submit",
        "id": task.id,
        "model": task.model,
        "stage": task.stage,
        "params": dict(task.params),
        "engine": task.engine,
        "client": task.client,
        "priority": task.priority,
        "previews": task.previews,
        "followed": list(task.followed),
        "inputs": inputs,
    }
    return Frame(header, tensors)


def task_from_frame(frame: Frame) -> StageTask:
    """The inverse of `task_to_frame`."""
    fields = dict(frame.header)
    del fields["kind"]
    inputs = split_frames(fields["inputs"], frame.tensors)
    return StageTask(**{**fields, "inputs": inputs, "followed": tuple(fields["followed"])})


def part_to_frame(task: str, name: str, part: Frame | None) -> Frame:
    """The next part of a followed input."""
    parts, tensors = merge_frames({} if part is None else {name: part})
    return Frame({"kind": "feed", "id": task, "name": name, "parts": parts}, tensors)


def part_from_frame(frame: Frame) -> tuple[str, str, Frame | None]:
    """The inverse of `part_to_frame`."""
    name = frame.header["name"]
    return frame.header["id"], name, split_frames(frame.header["parts"], frame.tensors).get(name)


def event_to_frame(event: EngineEvent) -> Frame:
    """An event with all its outputs."""
    outputs, tensors = merge_frames(event.outputs)
    header: dict[str, Any] = {
        "kind": "event",
        "task": event.task,
        "event": event.kind,
        "step": event.step,
        "total": event.total,
        "batch": event.batch,
        "text": event.text,
        "outputs": outputs,
        "error": None if event.error is None else event.error.to_json(),
    }
    if event.image is not None:
        tensors["image"] = Tensor.of(np.frombuffer(event.image, np.uint8))
    return Frame(header, tensors)


def event_from_frame(frame: Frame) -> EngineEvent:
    """The inverse of `event_to_frame`."""
    head = frame.header
    image = frame.tensors.get("image")
    return EngineEvent(
        task=head["task"],
        kind=head["event"],
        step=head["step"],
        total=head["total"],
        batch=head["batch"],
        text=head["text"],
        image=None if image is None else image.array.tobytes(),
        outputs=split_frames(head["outputs"], frame.tensors),
        error=None if head["error"] is None else OmniStageError.from_json(head["error"]),
    )
