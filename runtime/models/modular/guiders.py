"""A guider of diffusers for each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from diffusers.guiders import (
    AdaptiveProjectedGuidance,
    AdaptiveProjectedMixGuidance,
    AutoGuidance,
    ClassifierFreeGuidance,
    ClassifierFreeZeroStarGuidance,
    MagnitudeAwareGuidance,
    PerturbedAttentionGuidance,
    SkipLayerGuidance,
    TangentialClassifierFreeGuidance,
)
from diffusers.guiders.guider_utils import BaseGuidance
from diffusers.hooks import LayerSkipConfig

from ...protocol.errors import InvalidRequest


class _HooksPerCall(BaseGuidance):
    """Has the stand-in put this guider's hooks on for each call, not on the shared module."""

    _count_prepared: int

    def prepare_models(self, denoiser: Any) -> None:
        """Count the prediction, and say what its call needs on the module."""
        before = self._count_prepared
        self._count_prepared += 1

        def install(module: torch.nn.Module) -> None:
            now, self._count_prepared = self._count_prepared, before
            try:
                super(_HooksPerCall, self).prepare_models(module)
            finally:
                self._count_prepared = now  # a call may run when later ones are prepared

        try:
            denoiser.hook_calls(install)
        except ValueError as error:  # diffusers found no such layers
            raise InvalidRequest(
                f"The guider does not fit the model: {error}", field="guider", stage="sample"
            ) from error

    def cleanup_models(self, denoiser: Any) -> None:
        """Calls need nothing any more."""
        denoiser.unhook_calls()


class _SkipLayer(_HooksPerCall, SkipLayerGuidance):
    """`SkipLayerGuidance` beside other requests."""


class _PerturbedAttention(_HooksPerCall, PerturbedAttentionGuidance):
    """`PerturbedAttentionGuidance` beside other requests."""


class _Auto(_HooksPerCall, AutoGuidance):
    """`AutoGuidance` beside other requests."""


# diffusers' own `..._layers` of these two takes each layer for a list of layers, and fails


def _skip_layer(*, skip_layer_guidance_layers: list[int], **numbers: Any) -> _SkipLayer:
    layers = LayerSkipConfig(indices=skip_layer_guidance_layers)
    return _SkipLayer(skip_layer_config=layers, **numbers)


def _auto(*, auto_guidance_layers: list[int], **numbers: Any) -> _Auto:
    return _Auto(auto_guidance_config=LayerSkipConfig(indices=auto_guidance_layers), **numbers)


_GUIDERS: Final[Mapping[str, Callable[..., Any]]] = {
    "cfg": ClassifierFreeGuidance,
    "cfg_zero_star": ClassifierFreeZeroStarGuidance,
    "apg": AdaptiveProjectedGuidance,
    "apg_mix": AdaptiveProjectedMixGuidance,
    "tcfg": TangentialClassifierFreeGuidance,
    "mag": MagnitudeAwareGuidance,
    "slg": _skip_layer,
    "pag": _PerturbedAttention,
    "auto": _auto,
}


def make_own_guider(spec: Any, changes: Mapping[str, Any]) -> Any:
    """The guider that a block has of itself, but for those changes that are not None."""
    given = {name: value for name, value in changes.items() if value is not None}
    return spec.type_hint(**{**spec.config, **given})


def guidance_schedule(own: Sequence[float], steps: int | None, scale: float | None) -> list[float]:
    """A guidance scale for each step.

    Args:
        own: a block's own schedule; it is stretched or squeezed for another number of steps.
        steps: how many there are; None: as many as the block's own schedule has.
        scale: the same for all steps; None: the block's own.
    """
    count = steps or len(own)
    return [own[i * len(own) // count] if scale is None else scale for i in range(count)]


def neutral_scale(config: Mapping[str, Any]) -> float:
    """The guidance scale that changes nothing."""
    return 0.0 if config.get("use_original_formulation") else 1.0


_ONLY_BESIDE_CFG: Final = frozenset({"slg", "pag"})


def make_guider(spec: Mapping[str, Any], *, guidance: float, enabled: bool) -> Any:
    """A guider of the request's own.

    Args:
        spec: as `guider_params` has it.
        guidance: the scale.
        enabled: False: one prediction a step, without guidance.

    Raises:
        InvalidRequest: the kind needs more guidance than this.
    """
    numbers = {name: value for name, value in spec.items() if name != "kind"}
    neutral = neutral_scale(spec)
    if enabled and guidance == neutral and spec["kind"] in _ONLY_BESIDE_CFG:
        # diffusers would take the third prediction for the second one
        raise InvalidRequest(
            f"Guidance of kind {spec['kind']!r} comes on top of the guidance by the prompt, and "
            f"guidance = {guidance:g} is none.",
            field="guidance",
            value=guidance,
            allowed=f"more than {neutral:g}",
            stage="sample",
        )
    return _GUIDERS[spec["kind"]](guidance_scale=guidance, enabled=enabled, **numbers)
