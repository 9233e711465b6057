"""Makes sound of codes as the runtime does: on its engine, in chunks, by the model's defaults."""

from __future__ import annotations

from pathlib import Path

import torch

from ...engine.core import EngineEvent, StageTask
from ...engine.diffusion.build import build_core
from ...engine.diffusion.settings import EngineSettings
from ...models.catalogue import ModelEntry
from ...models.codec import STAGE
from ...protocol.frames import Frame, Tensor
from .checkpoint import CHECKPOINT


class ServedCodec:
    """A checkpoint's codec on an engine of its own."""

    def __init__(self, folder: Path = CHECKPOINT) -> None:
        self._model = ModelEntry("voice", str(folder))
        self._engine = build_core(EngineSettings.model_validate({"profile": False}), [self._model])

    def sound(self, codes: torch.Tensor, voice: str, seed: int) -> torch.Tensor:
        """The sound [480 N] at 24 kHz of any codes [N] in a voice."""
        params = self._model.graph[STAGE].check_params({"seed": seed})
        spoken = Frame({"kind": "codes", "voice": voice}, {"codes": Tensor.of(codes.numpy())})
        task = StageTask("speech", self._model.id, STAGE, params, {"codes": spoken})
        waveform = self._last(task).outputs["audio"].tensors["waveform"].array
        return torch.from_numpy(waveform.copy()).flatten()

    def _last(self, task: StageTask) -> EngineEvent:
        events: list[EngineEvent] = []
        self._engine.submit(task)
        while self._engine.busy:
            events += self._engine.step()
        if events[-1].error is not None:
            raise events[-1].error
        return events[-1]
