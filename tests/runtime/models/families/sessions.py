"""Stages of a tiny checkpoint, run one after another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from omnistage.runtime.bench.pictures import make_engine
from omnistage.runtime.engine.core import StageTask
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS


def write(family: str, folder: Path) -> ModelEntry:
    """A tiny checkpoint of a family."""
    CHECKPOINTS[family](folder)
    return ModelEntry(family, str(folder))


class Session:
    """One model in an engine."""

    def __init__(self, model: ModelEntry) -> None:
        self.model = model
        self._engine = make_engine(model, profile=False)
        self._count = 0

    def stage(self, stage: str, inputs: Mapping[str, Frame], **params: Any) -> dict[str, Frame]:
        """A stage's outputs.

        Raises:
            OmniStageError: it failed, or was refused.
        """
        graph = self.model.graph
        self._count += 1
        task = StageTask(
            f"{stage}-{self._count}",
            self.model.id,
            stage,
            graph[stage].check_params(params),
            dict(inputs),
        )
        self._engine.submit(task)
        end = None
        while self._engine.busy:
            for event in self._engine.step():
                end = event
        assert end is not None
        if end.error is not None:
            raise end.error
        return dict(end.outputs)

    def stats(self) -> dict[str, Any]:
        """Of the engine."""
        return self._engine.stats()

    def encode(self, prompt: str = "a red circle", **inputs: Frame) -> dict[str, Frame]:
        """Conditioning of a prompt."""
        return self.stage("text_encode", inputs, prompt=prompt)

    def latent(self, conditioning: dict[str, Frame], **params: Any) -> np.ndarray[Any, Any]:
        """Sampled latents."""
        frames = self.stage("sample", conditioning, steps=2, **params)
        return frames["latent"].tensors["samples"].array

    def made(self, conditioning: dict[str, Frame], **params: Any) -> tuple[int, int]:
        """Width and height of what is sampled and decoded."""
        out = self.stage("vae_decode", self.stage("sample", conditioning, steps=1, **params))
        if "video" in out:
            shape = out["video"].tensors["frames"].array.shape
        else:
            shape = out["images"].tensors["images"].array.shape
        return int(shape[2]), int(shape[1])


def pictures(count: int, width: int, height: int, channels: int = 3, seed: int = 0) -> Frame:
    """Random pictures."""
    values = np.random.default_rng(seed).random((count, height, width, channels), np.float32)
    return images(values)


def images(values: np.ndarray[Any, Any]) -> Frame:
    """Pictures `[B, H, W, C]` as an input."""
    return Frame({"kind": "images"}, {"images": Tensor.of(np.ascontiguousarray(values))})
