"""The `loras` parameter of stages whose modules take adapters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from .stage import Params

HIGH_NOISE, LOW_NOISE = "transformer", "transformer_2"
"""The transformers of models that have two; files name the layers of both by the first."""

Noise = Literal["all", "high", "low"]
"""Which steps an adapter acts in, by the noise that is left: where a model has a transformer for
high noise and another for low noise, it belongs to one of them or to both."""


class LoRA(Params):
    """One adapter of a request."""

    name: str = Field(
        min_length=1, max_length=255, description="One of the names the model lists as `loras`."
    )
    strength: float = Field(1.0, ge=-10.0, le=10.0, description="What its change is multiplied by.")
    noise: Noise = Field(
        "all",
        description="Of a model with a transformer for high noise and one for low noise: which of "
        "them the adapter changes.",
    )


def _each_once(loras: list[LoRA]) -> list[LoRA]:
    asked = [(lora.name, lora.noise) for lora in loras]
    twice = next((name for name, noise in asked if asked.count((name, noise)) > 1), None)
    if twice is not None:
        raise ValueError(f"LoRA {twice!r} is listed twice; list it once, with the sum")
    return loras


LoRAList = Annotated[
    list[LoRA],
    AfterValidator(_each_once),
    Field(
        default_factory=list,
        max_length=16,
        description="Adapters for this request only, each with a strength.",
    ),
]
"""Annotation of a parameter: `loras: LoRAList`; left out means none."""
