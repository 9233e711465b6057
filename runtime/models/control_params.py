"""The `control` parameter of sampling: which ControlNet steers it, how much and when."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, create_model, model_validator

from .stage import Params


class Control(Params):
    """A ControlNet of a request; its picture is the input `control`."""

    name: str = Field(
        min_length=1,
        max_length=255,
        description="One of the names the model lists as `controlnets`.",
    )
    strength: float = Field(1.0, ge=0.0, le=10.0, description="What it adds is multiplied by this.")
    start: float = Field(0.0, ge=0.0, lt=1.0, description="Share of the steps before it starts.")
    end: float = Field(1.0, gt=0.0, le=1.0, description="Share of the steps after which it stops.")

    @model_validator(mode="after")
    def _starts_before_it_ends(self) -> Self:
        if self.start >= self.end:
            raise ValueError("start must be less than end")
        return self


def with_control(params: type[Params]) -> type[Params]:
    """The parameters of sampling that a ControlNet can steer."""
    words = "A ControlNet for this request only."
    field: Any = (Control | None, Field(None, description=words))
    return create_model(params.__name__, __base__=params, control=field)
