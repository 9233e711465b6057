"""The `loras` parameter of stages whose modules take adapters."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from .stage import Params


class LoRA(Params):
    """One adapter of a request."""

    name: str = Field(
        min_length=1, max_length=255, description="One of the names the model lists as `loras`."
    )
    strength: float = Field(1.0, ge=-10.0, le=10.0, description="What its change is multiplied by.")


def _each_once(loras: list[LoRA]) -> list[LoRA]:
    names = [lora.name for lora in loras]
    twice = next((name for name in names if names.count(name) > 1), None)
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
