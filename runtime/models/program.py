"""What a loaded model gives the engine: modules, how they merge, and a program per stage.

A stage's program is plain code that calls the model's modules; it runs as a coroutine of the
engine and need not know that others run beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from .call_spec import Method, Preview, SpecTable
from .lora_shelf import AdapterShelf


@dataclass(frozen=True, slots=True)
class Bundle:
    """Tensors with small JSON facts about them: what travels between stages."""

    tensors: Mapping[str, torch.Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


class StageContext(Protocol):
    """What the engine offers a running stage."""

    strict: bool

    def module(self, name: str) -> Any:
        """The stand-in for one of the model's modules."""

    def begin_steps(self, total: int) -> None:
        """Say how many steps are to come."""

    def end_step(self) -> None:
        """Say that one more step is done."""

    def write(self, text: str) -> None:
        """Tell the next piece of a text that is being written; the program still returns it all."""

    def parts(self, name: str) -> Iterator[Bundle]:
        """The parts of an input as they come; the whole as one, if it is there already."""

    def emit(self, **outputs: Bundle) -> None:
        """Give the next part of streamed outputs; the program still returns the whole."""


Program = Callable[[StageContext, Mapping[str, Any], Mapping[str, Bundle]], Mapping[str, Bundle]]
"""(context, params, inputs) -> outputs of one stage."""


@dataclass(frozen=True, slots=True)
class LatentToRGB:
    """How a model's latents become colours in previews.

    Attributes:
        module: the module that tells.
        fit: from it, a `[C + 1, 3]` linear map (last row: bias) from clean latents to 0..1.
    """

    module: str
    fit: Callable[[torch.nn.Module], torch.Tensor]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to be run.

    Attributes:
        modules: the heavy modules by name; they hold no request state. As `Modules`, an engine
            loads them when they are needed, and may take their weights away again.
        denoiser: the method whose results show the picture so far.
        preview: estimates clean latents from a denoiser call.
        latent_to_rgb: their colours; without it there are no previews.
        loras: adapters for its modules; without it there are none.
    """

    modules: Mapping[str, torch.nn.Module]
    specs: SpecTable
    programs: Mapping[str, Program]
    denoiser: Method | None = None
    preview: Preview | None = None
    latent_to_rgb: LatentToRGB | None = None
    loras: AdapterShelf | None = None


def text_of(name: str, params: Mapping[str, Any], inputs: Mapping[str, Bundle]) -> str:
    """A text that is an input (another stage wrote it), or else a parameter."""
    given = inputs.get(name)
    return str(params[name] if given is None else given.facts["text"])


_context: ContextVar[StageContext] = ContextVar("stage_context")


def enter_stage(context: StageContext) -> None:
    """Make `context` the one that `StepProgress` reports to in this coroutine."""
    _context.set(context)


class StepProgress:
    """Stands in for the progress bar of a diffusers loop and reports its steps to the engine."""

    def update(self, n: int = 1) -> None:
        """One loop iteration (or `n`) is done."""
        for _ in range(n):
            _context.get().end_step()


@contextmanager
def step_progress(iterable: Any = None, total: int | None = None) -> Iterator[StepProgress]:
    """Replacement for `progress_bar` of diffusers' loop blocks (same signature)."""
    if total is None:
        raise ValueError("loop blocks give their number of steps")
    _context.get().begin_steps(total)
    yield StepProgress()
