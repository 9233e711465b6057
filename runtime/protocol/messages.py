"""Requests, replies and events of the native API, as plain data.

Each has `to_json` and, where the runtime or the client reads it from the wire, `from_json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .errors import OmniStageError, ProtocolError
from .frames import Frame, Tensor, merge_frames, split_frames
from .recipe import Recipe, take_fields

EventKind = Literal[
    "queued", "running", "progress", "preview", "text", "part", "done", "failed", "cancelled"
]
FINAL_KINDS: frozenset[str] = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """Ask for jobs on behalf of an owner.

    Attributes:
        owner: names the lease, e.g. a ComfyUI prompt id; released as a whole.
        client: whoever shares fairly with others, e.g. one ComfyUI server.
        recipe: the jobs.
        priority: higher runs earlier under the `priority` policy; default 0.
        previews: whether anyone will look at previews.
    """

    owner: str
    client: str
    recipe: Recipe
    priority: int = 0
    previews: bool = True

    def to_json(self) -> dict[str, Any]:
        """Wire form."""
        return {
            "owner": self.owner,
            "client": self.client,
            "jobs": self.recipe.to_json(),
            "priority": self.priority,
            "previews": self.previews,
        }

    @classmethod
    def from_json(cls, body: Any) -> SubmitRequest:
        """Read the wire form; `priority` and `previews` may be left out.

        Raises:
            InvalidRequest: a field is missing, unknown or of the wrong type.
        """
        if isinstance(body, dict):
            body = {"priority": 0, "previews": True, **body}
        fields = take_fields(
            body,
            "submit request",
            {"owner": str, "client": str, "jobs": list, "priority": int, "previews": bool},
        )
        return cls(recipe=Recipe.from_json(fields.pop("jobs")), **fields)


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """The runtime's keys and current states of the submitted jobs, by the client's job id.

    `params` are the parameters as they will be used, defaults filled in.
    """

    keys: Mapping[str, str]
    states: Mapping[str, str]
    params: Mapping[str, Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Wire form."""
        return {"keys": dict(self.keys), "states": dict(self.states), "params": dict(self.params)}

    @classmethod
    def from_json(cls, body: Any) -> SubmitReply:
        """Read the wire form."""
        return cls(
            **take_fields(body, "submit reply", {"keys": dict, "states": dict, "params": dict})
        )


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One thing that happened to a job.

    Attributes:
        key: the runtime's key of the job.
        kind: what happened; `done`, `failed` and `cancelled` are final.
        step: steps or tokens finished so far, of `total` (progress and preview).
        batch: how many requests shared the last forward pass.
        text: what was written since the last `text` event (text). It begins anew after
            `queued` or `running`: another attempt writes it again.
        output, parts: what was made of an output since the last such event (part), as frames
            like the whole; they travel in the frame. It begins anew as `text` does.
        outputs: names of the results (done).
        error: why (failed).
        image: a JPEG or PNG (preview); travels as the frame's tensor `image`.
    """

    key: str
    kind: EventKind
    step: int = 0
    total: int = 0
    batch: int = 0
    text: str = ""
    output: str = ""
    parts: tuple[Frame, ...] = field(default=(), repr=False)
    outputs: tuple[str, ...] = ()
    error: OmniStageError | None = None
    image: bytes | None = field(default=None, repr=False)

    @property
    def final(self) -> bool:
        """Whether nothing follows this event."""
        return self.kind in FINAL_KINDS

    def to_json(self) -> dict[str, Any]:
        """Wire form, without the image and the parts."""
        body: dict[str, Any] = {"key": self.key, "kind": self.kind}
        if self.kind in ("progress", "preview"):
            body |= {"step": self.step, "total": self.total, "batch": self.batch}
        if self.text:
            body["text"] = self.text
        if self.output:
            body["output"] = self.output
        if self.outputs:
            body["outputs"] = list(self.outputs)
        if self.error is not None:
            body["error"] = self.error.to_json()
        return body

    def to_frame(self) -> Frame | None:
        """Wire form of an event with an image or parts; None: its JSON is all of it."""
        if self.image is not None:
            return Frame(self.to_json(), {"image": Tensor.of(np.frombuffer(self.image, np.uint8))})
        if not self.parts:
            return None
        heads, tensors = merge_frames({str(i): part for i, part in enumerate(self.parts)})
        return Frame({**self.to_json(), "parts": heads}, tensors)

    @classmethod
    def from_frame(cls, frame: Frame) -> JobEvent:
        """The inverse of `to_frame`."""
        body = dict(frame.header)
        image = frame.tensors.get("image")
        parts = split_frames(body.get("parts", {}), frame.tensors)
        return cls.from_json(
            body, None if image is None else image.array.tobytes(), tuple(parts.values())
        )

    @classmethod
    def from_json(
        cls, body: Any, image: bytes | None = None, parts: tuple[Frame, ...] = ()
    ) -> JobEvent:
        """Read the wire form."""
        if not isinstance(body, dict) or "key" not in body or "kind" not in body:
            raise ProtocolError("An event must be a JSON object with `key` and `kind`.")
        error = body.get("error")
        return cls(
            key=body["key"],
            kind=body["kind"],
            step=body.get("step", 0),
            total=body.get("total", 0),
            batch=body.get("batch", 0),
            text=body.get("text", ""),
            output=body.get("output", ""),
            parts=parts,
            outputs=tuple(body.get("outputs", ())),
            error=None if error is None else OmniStageError.from_json(error),
            image=image,
        )


@dataclass(frozen=True, slots=True)
class StageInfo:
    """One stage of a model, for whoever builds a request.

    Attributes:
        params: JSON schema of its parameters, with defaults and ranges.
        inputs: kind of each input by name, e.g. `{"conditioning": "conditioning"}`.
        optional: inputs that may be left out.
        outputs: kind of each output by name.
    """

    params: Mapping[str, Any]
    inputs: Mapping[str, str]
    optional: tuple[str, ...]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model the runtime serves.

    Attributes:
        loras: names of the adapters that its stages take in `loras`.
        controlnets: names of the ControlNets that sampling takes in `control`.
    """

    id: str
    family: str
    revision: str
    stages: Mapping[str, StageInfo]
    loras: tuple[str, ...] = ()
    controlnets: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Wire form."""
        stages = {
            name: {
                "params": dict(stage.params),
                "inputs": dict(stage.inputs),
                "optional": list(stage.optional),
                "outputs": dict(stage.outputs),
            }
            for name, stage in self.stages.items()
        }
        return {
            "id": self.id,
            "family": self.family,
            "revision": self.revision,
            "stages": stages,
            "loras": list(self.loras),
            "controlnets": list(self.controlnets),
        }

    @classmethod
    def from_json(cls, body: Any) -> ModelInfo:
        """Read the wire form."""
        fields = take_fields(
            body,
            "model",
            {
                "id": str,
                "family": str,
                "revision": str,
                "stages": dict,
                "loras": list,
                "controlnets": list,
            },
        )
        stages = {
            name: StageInfo(s["params"], s["inputs"], tuple(s["optional"]), s["outputs"])
            for name, s in fields.pop("stages").items()
        }
        loras, controlnets = tuple(fields.pop("loras")), tuple(fields.pop("controlnets"))
        return cls(**fields, stages=stages, loras=loras, controlnets=controlnets)
