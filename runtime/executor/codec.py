"""Tasks and events as frames, and frames on a socket; no pickle crosses the border.

On the socket each frame follows its length as 8 little-endian bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.core import EngineEvent, StageTask
from ..protocol.errors import OmniStageError
from ..protocol.frames import Frame, Tensor

LENGTH = struct.Struct("<Q")


def pack(frame: Frame) -> bytes:
    """A frame as it travels on the socket."""
    data = frame.encode()
    return LENGTH.pack(len(data)) + data


def task_to_frame(task: StageTask) -> Frame:
    """A task with all its inputs."""
    inputs, tensors = _merge(task.inputs)
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
        "inputs": inputs,
    }
    return Frame(header, tensors)


def task_from_frame(frame: Frame) -> StageTask:
    """The inverse of `task_to_frame`."""
    fields = dict(frame.header)
    del fields["kind"]
    return StageTask(**{**fields, "inputs": _split(fields["inputs"], frame)})


def event_to_frame(event: EngineEvent) -> Frame:
    """An event with all its outputs."""
    outputs, tensors = _merge(event.outputs)
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
        outputs=_split(head["outputs"], frame),
        error=None if head["error"] is None else OmniStageError.from_json(head["error"]),
    )


def _merge(frames: Mapping[str, Frame]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Named frames as JSON plus numbered tensors, so that they fit into one frame."""
    heads: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name, frame in frames.items():
        numbers = {}
        for tensor_name, tensor in frame.tensors.items():
            numbers[tensor_name] = str(len(tensors))
            tensors[numbers[tensor_name]] = tensor
        heads[name] = {"header": dict(frame.header), "tensors": numbers}
    return heads, tensors


def _split(heads: Mapping[str, Any], merged: Frame) -> dict[str, Frame]:
    """The inverse of `_merge`."""
    return {
        name: Frame(
            head["header"], {k: merged.tensors[number] for k, number in head["tensors"].items()}
        )
        for name, head in heads.items()
    }
