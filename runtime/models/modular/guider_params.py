"""What the guiders take: diffusers' own parameters by diffusers' own names, with their ranges.

The guidance scale is not among them: it is a parameter of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from ...protocol.errors import InvalidRequest
from ..stage import Params

Layers = Annotated[
    list[Annotated[int, Field(ge=0, le=999, strict=True)]], Field(min_length=1, max_length=64)
]


def _share(default: float, words: str) -> Any:
    return Field(default, ge=0.0, le=1.0, strict=True, description=words)


def _scale(default: float, words: str) -> Any:
    return Field(default, ge=0.0, le=100.0, strict=True, description=words)


class GuiderParams(BaseModel):
    """What all guiders take."""

    # a job's parameters come as plain objects, which a strict model would refuse
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    guidance_rescale: float = _share(0.0, "Pull the deviation back to the unguided one's.")
    use_original_formulation: bool = Field(
        False, strict=True, description="Count the scale from 0, as the paper does, not from 1."
    )
    start: float = Field(
        0.0, ge=0.0, lt=1.0, strict=True, description="Share of the steps before guidance starts."
    )
    stop: float = _share(1.0, "Share of the steps after which guidance stops.")

    @model_validator(mode="after")
    def _starts_before_it_stops(self) -> Self:
        if self.start > self.stop:
            raise ValueError(f"start = {self.start} lies behind stop = {self.stop}")
        return self


class CFG(GuiderParams):
    """Classifier-free guidance."""

    kind: Literal["cfg"]


class CFGZeroStar(GuiderParams):
    """CFG-Zero*: the unguided prediction is rescaled, and the first steps are left out."""

    kind: Literal["cfg_zero_star"]
    zero_init_steps: int = Field(1, ge=0, le=1000, strict=True, description="Steps left out.")


class APG(GuiderParams):
    """Adaptive projected guidance."""

    kind: Literal["apg"]
    adaptive_projected_guidance_momentum: float | None = Field(
        None, ge=-1.0, le=1.0, strict=True, description="Share of the last step's direction."
    )
    adaptive_projected_guidance_rescale: float = Field(
        15.0, ge=0.0, le=1000.0, strict=True, description="Largest norm of the guidance."
    )
    eta: float = Field(
        1.0, ge=0.0, le=100.0, strict=True, description="Share of the part that saturates."
    )


class APGMix(GuiderParams):
    """Classifier-free guidance in the first steps, adaptive projected guidance after them."""

    kind: Literal["apg_mix"]
    adaptive_projected_guidance_scale: float = _scale(10.0, "Its guidance scale.")
    adaptive_projected_guidance_momentum: float = Field(
        -0.5, ge=-1.0, le=1.0, strict=True, description="Share of the last step's direction."
    )
    adaptive_projected_guidance_rescale: float = Field(
        10.0, ge=0.0, le=1000.0, strict=True, description="Largest norm of the guidance."
    )
    eta: float = Field(
        0.0, ge=0.0, le=100.0, strict=True, description="Share of the part that saturates."
    )
    adaptive_projected_guidance_start_step: int = Field(
        5, ge=0, le=1000, strict=True, description="Steps before it starts."
    )


class TCFG(GuiderParams):
    """Tangential classifier-free guidance."""

    kind: Literal["tcfg"]


class MAG(GuiderParams):
    """Magnitude-aware guidance: less where the guidance would be large."""

    kind: Literal["mag"]
    alpha: float = _scale(8.0, "How much less.")


class SLG(GuiderParams):
    """Skip-layer guidance: also away from what the model does without some layers."""

    kind: Literal["slg"]
    skip_layer_guidance_scale: float = _scale(2.8, "How far away.")
    skip_layer_guidance_start: float = Field(0.01, ge=0.0, lt=1.0, strict=True)
    skip_layer_guidance_stop: float = _share(0.2, "Share of the steps after which it stops.")
    skip_layer_guidance_layers: Layers = Field(description="Layers to do without.")

    @model_validator(mode="after")
    def _inside(self) -> Self:
        _check_inside(self, self.skip_layer_guidance_start, self.skip_layer_guidance_stop)
        return self


class PAG(GuiderParams):
    """Perturbed-attention guidance: also away from what the model does without attention."""

    kind: Literal["pag"]
    perturbed_guidance_scale: float = _scale(2.8, "How far away.")
    perturbed_guidance_start: float = Field(0.01, ge=0.0, lt=1.0, strict=True)
    perturbed_guidance_stop: float = _share(0.2, "Share of the steps after which it stops.")
    perturbed_guidance_layers: Layers = Field(description="Layers without attention.")

    @model_validator(mode="after")
    def _inside(self) -> Self:
        _check_inside(self, self.perturbed_guidance_start, self.perturbed_guidance_stop)
        return self


class Auto(GuiderParams):
    """Auto guidance: away from what the model does without some layers and the prompt."""

    # dropout, diffusers' other parameter, draws from the generator that all requests share
    kind: Literal["auto"]
    auto_guidance_layers: Layers = Field(description="Layers to do without.")


def _check_inside(guider: GuiderParams, start: float, stop: float) -> None:
    """diffusers takes the third prediction for the second one where it has no second one."""
    if not guider.start <= start <= stop <= guider.stop:
        raise ValueError(
            f"{start} to {stop} of the steps is not inside {guider.start} to {guider.stop}, "
            "where there is guidance"
        )


_MODELS: Final[Mapping[str, type[GuiderParams]]] = {
    "cfg": CFG,
    "cfg_zero_star": CFGZeroStar,
    "apg": APG,
    "apg_mix": APGMix,
    "tcfg": TCFG,
    "mag": MAG,
    "slg": SLG,
    "pag": PAG,
    "auto": Auto,
}

KINDS: Final = frozenset(_MODELS)
"""All kinds there are. diffusers' others: FDG needs kornia, and SEG in 0.42 never takes effect
(it does not count the predictions by which it would know its own)."""

PLAIN_KINDS: Final = frozenset({"cfg", "apg", "apg_mix", "tcfg"})
"""Kinds that run on every model with a guider."""


def guider_type(kinds: frozenset[str]) -> Any:
    """The type of a `guider` parameter that takes these kinds, or None.

    Raises:
        ValueError: a kind that there is not, or none at all.
    """
    if not kinds or not kinds <= KINDS:
        raise ValueError(f"kinds of guiders are {sorted(KINDS)}, not {sorted(kinds)}")
    models = tuple(model for kind, model in _MODELS.items() if kind in kinds)
    if len(models) == 1:
        return models[0] | None
    union: Any = reduce(or_, models)
    return Annotated[union, Field(discriminator="kind")] | None


def with_guider(params: type[Params], kinds: frozenset[str]) -> type[Params]:
    """The parameters with a `guider` of these kinds, if there are any."""
    if not kinds:
        return params
    words = "How to guide, instead of plain classifier-free guidance; `guidance` is its scale."
    field: Any = (guider_type(kinds), Field(None, description=words))
    return create_model(params.__name__, __base__=params, guider=field)


def check_guider(spec: Mapping[str, Any] | None, supported: frozenset[str]) -> None:
    """Refuse a kind of guidance that a family does not run.

    Raises:
        InvalidRequest: names the kind, and those that run.
    """
    if spec is None or spec["kind"] in supported:
        return
    allowed = ", ".join(kind for kind in _MODELS if kind in supported)
    raise InvalidRequest(
        f"Guidance of kind {spec['kind']!r} does not run on this model. "
        + (f"Those that do: {allowed}." if allowed else "Its guidance is built in."),
        field="guider",
        value=spec["kind"],
        allowed=allowed or "no guider",
        stage="sample",
    )
