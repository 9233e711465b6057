"""What every engine core offers, and what passes between it and whoever drives it.

A core is driven by one thread: `submit` and `cancel` between calls of `step`, and `step`
until `busy` is false. It never blocks for longer than one unit of work (a forward pass, a
decode, a model load), and it reports a task's end exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..protocol.errors import OmniStageError
from ..protocol.frames import Frame

EngineEventKind = Literal[
    "started", "progress", "preview", "text", "part", "done", "failed", "cancelled"
]


@dataclass(frozen=True, slots=True)
class StageTask:
    """One attempt at one stage of one model.

    Attributes:
        id: unique per attempt.
        params: checked, with defaults filled in.
        inputs: each input's data, by name: a frame with its tensors and small facts.
        engine: which engine is to run it, where there are several.
        client: whose share the work counts towards (fair policy).
        priority: higher runs earlier (priority policy).
        previews: whether to make previews.
        followed: inputs that are not in `inputs`, but come in parts by `EngineCore.feed`.
    """

    id: str
    model: str
    stage: str
    params: Mapping[str, Any]
    inputs: Mapping[str, Frame] = field(default_factory=dict)
    engine: str = ""
    client: str = ""
    priority: int = 0
    previews: bool = False
    followed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Something that happened to a task; `done`, `failed` and `cancelled` are final.

    Attributes:
        step: steps or tokens finished, of `total` (progress, preview).
        batch: requests that shared the last forward pass.
        text: what was written since the last such event (text).
        image: JPEG bytes (preview).
        outputs: results by name (done), or their next part (part): a frame like the whole, whose
            tensors continue those of the parts before it. The parts joined are the whole.
        error: why (failed).
    """

    task: str
    kind: EngineEventKind
    step: int = 0
    total: int = 0
    batch: int = 0
    text: str = ""
    image: bytes | None = field(default=None, repr=False)
    outputs: Mapping[str, Frame] = field(default_factory=dict)
    error: OmniStageError | None = None


class EngineCore(Protocol):
    """Runs tasks of many requests together."""

    def submit(self, task: StageTask) -> None:
        """Accept a task; its fate comes out of `step` as events."""

    def feed(self, task: str, name: str, part: Frame | None) -> None:
        """Give the next part of an input that a task follows; None: that was all.

        Unknown or finished ids are ignored.
        """

    def cancel(self, task: str) -> None:
        """Stop a task at its next suspension point; unknown or finished ids are ignored."""

    def step(self) -> list[EngineEvent]:
        """Do one unit of work and return what happened."""

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""

    def stats(self) -> dict[str, Any]:
        """Counters and gauges as plain JSON: forwards, rows, batch sizes, loaded bytes ..."""

    def check_integrity(self) -> None:
        """Raise AssertionError if the core's tables contradict each other or leak."""
